"""Whole jobs of scripts with the agent: a real Slurm, real containers, a real Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmray.rehearsal.lab import Lab
from slurmray.script.render import render_script

from .jobs import HANG, Jobs

ROOT = Path(__file__).parents[2]
TWO = "slurm: {nodes: 2, cpus_per_task: 2, mem: 1G}\n"


class AgentJobs(Jobs):
    """Jobs of scripts with the agent."""

    render = staticmethod(render_script)

    def log(self, job: int) -> str:
        """In the agent's own words."""
        log = self.folder / f"slurm-{job}.out"
        return log.read_text() if log.exists() else ""


@pytest.fixture
def jobs(podman_lab: Lab, folder: Path) -> Jobs:
    return AgentJobs(podman_lab, folder)


def test_the_built_in_check(jobs: Jobs) -> None:
    job = jobs.run((ROOT / "examples/hello.yaml").read_text().replace("nodes: 2", "nodes: 3"))
    assert (job.state, job.code) == ("COMPLETED", "0:0"), job.log
    assert "3 nodes, 24 GPUs, 12 CPUs" in job.log
    for node in ("node1", "node2", "node3"):
        assert f"{node}: a task ran on {node}, 4 CPUs, 8 GPUs" in job.log
    assert job.last_line == "done: trainer exited with 0"


@pytest.mark.full
@pytest.mark.parametrize("code", [7, 71])
def test_the_trainers_exit_code(jobs: Jobs, code: int) -> None:
    job = jobs.run(TWO, ["bash", "-c", f"exit {code}"])
    assert (job.state, job.code) == ("FAILED", f"{code}:0"), job.log
    assert job.last_line == f"done: trainer exited with {code}"


def test_scancel(jobs: Jobs) -> None:
    number = jobs.submit(
        TWO, ["bash", "-c", "trap 'echo saved; exit 3' TERM; echo started; while :; do sleep 0.1; done"]
    )
    jobs.wait_for(number, "started")
    jobs.lab.run(["scancel", str(number)])
    job = jobs.end(number)
    assert (job.state, job.code) == ("CANCELLED", "3:0"), job.log
    assert "saved" in job.log


@pytest.mark.full
def test_a_killed_task(jobs: Jobs) -> None:
    number = jobs.submit(TWO, ["bash", "-c", "echo started; exec sleep infinity"])
    jobs.wait_for(number, "started")
    jobs.lab.run(["bash", "-c", "kill -KILL $(pgrep -f '^[^ ]*python3 -I -S -c .* node$')"], host="node2")
    assert jobs.lab.wait(number, HANG) == ("FAILED", "71:0"), jobs.log(number)
    assert "failed (71 node lost): node2: the node's task was killed" in jobs.log(number)
    # Its folder stays, emptied, until the next job removes it.
    assert jobs.run(TWO, ["true"]).code == "0:0"
