"""The page docs/first-hour.md, command by command."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from slurmray import process
from slurmray.rehearsal.cluster.config import ClusterConfig
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .conftest import GPUS
from .jobs import HANG, slurm_commands, wait_clean, wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/first-hour.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Where a person would wait.
_NOT_YET = re.compile("the job is PENDING|no events in|cluster not ready")


@pytest.mark.full
def test_the_first_hour(
    podman_layout: Layout, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SlurmCluster(ClusterConfig(nodes=("node1", "node2"), gres=GPUS), podman_layout) as cluster:
        monkeypatch.setenv("PATH", slurm_commands(cluster, tmp_path / "commands"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.chdir(folder)
        printed = ""
        for kind, text in _BLOCK.findall(PAGE):
            if kind == "python":
                (folder / text.splitlines()[0].removeprefix("# ")).write_text(text)
            elif kind == "text":
                assert without_ids(printed) == without_ids(text)
            for line in text.splitlines() if kind == "sh" else ():
                printed = run(line)
        wait_clean(cluster)


def without_ids(text: str) -> str:
    return re.sub(r"\bjob \d+", "job N", text)


def run(line: str) -> str:
    """Run a line of the page; return its standard output."""
    command, _, comment = line.partition(" #")
    name, *arguments = shlex.split(command)
    assert name == "slurmray", "the page needs no other command"
    done: list[subprocess.CompletedProcess[str]] = []

    def is_done() -> bool:
        done[:] = [process.run([sys.executable, "-m", "slurmray", *arguments], timeout=HANG)]
        return not _NOT_YET.search(done[0].stderr)

    wait_until(is_done, lambda: str(done))
    assert done[0].returncode == int(comment.partition("exit code ")[2] or 0), (line, done)
    return done[0].stdout
