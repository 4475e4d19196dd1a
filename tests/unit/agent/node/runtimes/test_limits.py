"""The job's limits: its cgroup, what the kernel killed there, and options of a container outside it."""

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


# /proc/self/cgroup of a task, as recorded with 22.05.8 of Debian 12, 24.11.5 of Debian 13 and 26.05.5 of
# Debian sid; the last one as that version's cgroup.conf(5) has it. The layout: Slurm's src/plugins/cgroup.
V1_22_05 = """\
9:name=systemd:/
8:pids:/
7:blkio:/
6:freezer:/slurm_node1/uid_0/job_1/step_0
5:devices:/
4:memory:/slurm_node1/uid_0/job_1/step_0/task_0
3:cpuset:/slurm_node1/uid_0/job_1/step_0
2:cpuacct:/
1:cpu:/
0::/
"""
V2_24_11 = "0::/system.slice/vm_slurmstepd.scope/job_19629/step_0/user/task_0\n"
V2_26_05 = "0::/system.slice/vm_slurmstepd.scope/sEA9M8BPFJFW00/step_0/user/task_0\n"
V2_26_05_JOB_ID_PATHS = "0::/system.slice/vm_slurmstepd.scope/job_19900/step_0/user/task_0\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(V1_22_05, "3:cpuset:/slurm_node1/uid_0/job_1/step_0", id="v1-22.05"),
        pytest.param(V2_24_11, V2_24_11.strip(), id="v2-24.11"),
        pytest.param(V2_26_05, V2_26_05.strip(), id="v2-26.05"),
        pytest.param(V2_26_05_JOB_ID_PATHS, V2_26_05_JOB_ID_PATHS.strip(), id="v2-26.05-CgroupJobIdPaths"),
        # Both versions mounted: Slurm uses v1.
        pytest.param("7:memory:/slurm/uid_0/job_9/step_0\n0::/init.scope\n", "7:memory:", id="hybrid"),
        pytest.param("0::/system.slice/slurmd.service\n", "", id="proctrack/linuxproc"),
        pytest.param("0::/\n", "", id="cgroup-namespace"),
        pytest.param(None, "", id="no-cgroups"),
    ],
)
def test_cgroup_of_the_step(tmp_path: Path, text: str | None, expected: str) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    if text is not None:
        (tmp_path / "proc/self/cgroup").write_text(text)
    cgroup = limits.step_cgroup(str(tmp_path))
    assert cgroup.startswith(expected)
    assert bool(cgroup) == bool(expected)


# The kernel's files, as Linux 6.18 (v1) and 6.1 (v2) write them.
V1_OOM = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
V2_EVENTS = "low 0\nhigh 0\nmax 31\noom 3\noom_kill 3\noom_group_kill 0\n"
V1_FILE = "memory/slurm_node1/uid_0/job_1/step_0/task_0/memory.oom_control"
V2_FILE = "system.slice/vm_slurmstepd.scope/{}/step_0/memory.events"


@pytest.mark.parametrize(
    ("text", "file", "counts", "expected"),
    [
        pytest.param(V1_22_05, V1_FILE, V1_OOM, 2, id="v1"),
        pytest.param(V1_22_05, V1_FILE, V1_OOM.replace("oom_kill 2\n", ""), 0, id="v1-before-Linux-4.13"),
        # Of the step: a container of Docker is beside the task.
        pytest.param(V2_24_11, V2_FILE.format("job_19629"), V2_EVENTS, 3, id="v2"),
        pytest.param(V2_26_05, V2_FILE.format("sEA9M8BPFJFW00"), V2_EVENTS, 3, id="v2-26.05"),
        pytest.param(V2_24_11, "memory.events", V2_EVENTS, 0, id="v2-without-memory-controller"),
        pytest.param("0::/system.slice/slurmd.service\n", "memory.events", V2_EVENTS, 0, id="no-step"),
        pytest.param(None, "memory.events", V2_EVENTS, 0, id="no-cgroups"),
    ],
)
def test_processes_that_the_kernel_killed(
    tmp_path: Path, text: str | None, file: str, counts: str, expected: int
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    if text is not None:
        (tmp_path / "proc/self/cgroup").write_text(text)
    path = tmp_path / "sys/fs/cgroup" / file
    path.parent.mkdir(parents=True)
    path.write_text(counts)
    assert limits.oom_kills(str(tmp_path)) == expected
