"""slurmray attach: a command whose container ends under it."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from slurmray.cli import attach
from slurmray.errors import SlurmError
from slurmray.slurm.submitted_job import Job


@pytest.mark.parametrize(
    ("code", "then", "is_told"),
    [
        (137, ["echo", "runs"], False),  # the command's own exit code
        (137, ["true"], True),  # a step that Slurm ends with its job may have exit code 0
        (255, ["false"], True),
        (125, None, True),
        (1, ["false"], False),
    ],
)
def test_a_container_that_has_ended(
    code: int, then: list[str] | None, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter([["bash", "-c", f"exit {code}"], then])

    def attach_argv(*_: Any, **__: Any) -> list[str]:
        argv = next(asked)
        if argv is None:
            raise SlurmError("job 7: the job is COMPLETED")
        return argv

    monkeypatch.setattr(Job, "attach_argv", attach_argv)
    monkeypatch.setattr(attach, "job_argument", lambda _: (Job(7), None))
    done = CliRunner().invoke(attach.attach, [], obj=["train"], standalone_mode=False)
    assert done.return_value == code
    told = "job 7: its container has ended or cannot be reached; slurmray status 7 shows the job\n"
    assert done.stderr == (told if is_told else "")
