"""The job's limits: its cgroup, and options of a container outside it."""

from pathlib import Path

import pytest

from slurmray.agent.node.runtimes import limits

from ...fake_node import FakeNode


def test_cpu_options(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text(
        "Name:\tpython3\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\n"
    )
    online = tmp_path / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-15\n")
    assert limits.allocation_options(node, "docker", str(tmp_path)) == ["--cpuset-cpus", "0-3,8"]
    assert node.phases == ["container docker leaves the job's cgroup, so it gets --cpuset-cpus 0-3,8"]
    online.write_text("0-3,8\n")
    assert limits.allocation_options(node, "docker", str(tmp_path)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_0\n", "0::"),
        ("7:memory:/slurm/uid_0/job_9/step_0\n0::/slurm/uid_0/job_9/step_0\n", "0::"),
        ("7:memory:/slurm/uid_0/job_9/step_0\n0::/init.scope\n", "7:memory:"),
        ("0::/slurm/job_91/step_0\n", ""),
    ],
)
def test_cgroup_of_the_job(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(text)
    found = limits.cgroup_of_job("9", str(tmp_path))
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
