"""Images and mounts of a rehearsal, from the settings of a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.loading.load import load_plan
from slurmray.rehearsal.cluster.container_settings import read_container_settings
from slurmray.rendering.script import render_script


def test_container_settings_of_a_rendered_script() -> None:
    settings = [
        ("container.image", "my/image:1"),
        ("container.mounts", "['~/a b:/b:ro', /odd):/c, 'x:/d']"),
        ("container.runtime", "docker"),
    ]
    container = read_container_settings(render_script(load_plan(None, settings, ["echo", "IMAGE=no"])))
    assert container.image == "docker.io/my/image:1"
    assert container.runtimes == ("docker",)
    assert container.mounts == ("~/a b", "/odd)", "x")
    assert container.sources(Path("/home/me")) == [Path("/home/me/a b"), Path("/odd)")]


def test_script_that_slurmray_did_not_render() -> None:
    for text in ("#!/bin/bash\nIMAGE=x\n", "#!/bin/bash\n: <<'SETTINGS'\n[]\nSETTINGS\n"):
        with pytest.raises(ValueError, match="did not render"):
            read_container_settings(text)
