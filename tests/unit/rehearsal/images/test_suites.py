"""Root filesystems of Debian suites."""

from pathlib import Path

import pytest

from slurmray.errors import RehearsalError
from slurmray.rehearsal.images import suites


@pytest.mark.cluster
def test_unknown_suite_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(RehearsalError, match=r"Debian nosuchsuite could not be built: E: .*nosuchsuite"):
        suites.root(tmp_path, "nosuchsuite", lambda _: None)
