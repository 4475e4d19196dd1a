"""Options of pyxis for srun."""

from pathlib import Path

import pytest

from slurmray.agent import errors
from slurmray.agent.node import runtimes

from ...fake_node import FakeNode


def test_step_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from slurmray.agent.node.runtimes import pyxis

    monkeypatch.setenv("HOME", "/home/alice")
    mounts = [
        {"source": "data/../x", "destination": "", "options": []},
        {"source": "~/y", "destination": "/y", "options": ["ro", "rslave"]},
        {"source": "/z", "destination": "/z", "options": []},
    ]
    node = FakeNode(tmp_path, {"mounts": mounts, "step_args": ["--container-mount-home"]}, temp_dir="/tmp")
    node.job["run_dir"] = "/runs/9-0"
    own = "/tmp:/tmp,/runs:/runs,/submit:/submit"
    assert pyxis.step_options(node.settings, node.job, "/submit") == [
        "--no-container-remap-root",
        f"--container-mounts={own},/submit/x:/submit/x,/home/alice/y:/y:ro+rslave,/z:/z",
        "--container-image=rayproject/ray:2.60.0",
    ]
    assert runtimes.make("pyxis", node).exec_prefix == [
        "--container-image=rayproject/ray:2.60.0",
        "--container-mounts=/tmp:/tmp",
        "--container-mount-home",
    ]
    for path in ("/a b", "/a,b", "/a\nb", "/a:b"):
        with pytest.raises(errors.JobError, match="pyxis cannot mount") as error:
            pyxis.step_options(node.settings, node.job, path)
        assert error.value.kind == "config"
