"""Rehearsals: separate hosts, no changes to the machine, no leftovers after any kind of end."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster import slurm_conf
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.requirements import read_requirements
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from slurmray.spec.container import DEFAULT_IMAGE
from tests.mcp_client import RawClient

from .jobs import HANG, wait_clean, wait_until

Rehearse = Callable[..., subprocess.Popen[str]]

EVERYTHING = r"""#!/bin/bash
#SBATCH --job-name="a \"quoted\" back\\slash # $(name)"
#SBATCH --nodes=3
#SBATCH --nodelist=gpu-[08-09]
#SBATCH --exclude=bad7,node1
#SBATCH --partition=long,short
#SBATCH --constraint="[rack1*2]&h100"
#SBATCH --gres=gpu:h100:12,nvme:2
#SBATCH --cpus-per-task=28
#SBATCH --mem=2000G
#SBATCH --licenses=matlab:2
#SBATCH --reservation=ours
#SBATCH --account=us
#SBATCH --qos=high
#SBATCH --begin=now+1hour
#SBATCH --dependency=afterok:1234
#SBATCH --switches=1
#SBATCH --hold
#SBATCH --output="out %j.txt"
srun bash -c 'echo $SLURMD_NODENAME $SLURM_GPUS_ON_NODE $SLURM_CPUS_ON_NODE $SLURMRAY_ACCELERATOR'
exit 7
"""


@pytest.fixture
def rehearse(folder: Path) -> Iterator[Rehearse]:
    """Starts `slurmray rehearse` in the test's folder; kills it at the end of a failed test."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "slurmray", "rehearse", *args]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(argv, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        with process:
            process.kill()  # its hosts end with it


def descendants(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child, *descendants(child)}
    return found


def running(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


@pytest.fixture
def mounts_unchanged() -> Iterator[None]:
    before = Path("/proc/self/mounts").read_text()
    yield
    assert Path("/proc/self/mounts").read_text() == before


def test_hosts_have_names_and_addresses_of_their_own(podman_cluster: SlurmCluster) -> None:
    done = podman_cluster.run(["srun", "-N3", "bash", "-c", "echo $(hostname) $(hostname -I)"])
    assert sorted(done.stdout.splitlines()) == ["node1 10.77.0.2", "node2 10.77.0.3", "node3 10.77.0.4"]


def test_a_job_of_a_user(podman_cluster: SlurmCluster, folder: Path) -> None:
    script = "#!/bin/bash\nid -un; pwd; echo $SLURMRAY_ACCELERATOR; exit 7\n"
    job = podman_cluster.sbatch("", user="alice", folder=folder, text=script)
    assert podman_cluster.wait(job, HANG) == ("FAILED", "7:0")
    log = folder / f"slurm-{job}.out"
    assert log.read_text().split() == ["alice", str(folder), "none"]
    assert log.stat().st_uid == slurm_conf.USERS[0].uid


def test_cluster_meets_every_directive(folder: Path) -> None:
    requirements = read_requirements(EVERYTHING)
    with SlurmCluster(requirements.cluster, Layout(folder, "none")) as cluster:
        cluster.run(["scontrol", "create", "reservation", "ReservationName=ours", "Nodes=ALL", "Users=root",
                 "StartTime=now", "Duration=infinite"])  # fmt: skip
        job = cluster.sbatch("", args=requirements.overrides, text=EVERYTHING)
        cluster.run(["scontrol", "release", str(job)])
        assert cluster.wait(job, HANG) == ("FAILED", "7:0")
        assert (
            'JobName=a "quoted" back\\slash # $(name)'
            in cluster.run(["scontrol", "show", "job", str(job)]).stdout
        )
    lines = sorted((folder / f"out {job}.txt").read_text().splitlines())
    assert lines == [f"{node} 12 28 none" for node in ("gpu-08", "gpu-09", "node2")]


@pytest.mark.full
def test_leftovers_are_listed(podman_cluster: SlurmCluster) -> None:
    leave = "setsid sleep 77 >/dev/null 2>&1 & touch /tmp/ray-x"
    try:
        podman_cluster.run(
            ["srun", "-wnode2", "bash", "-c", "podman create --name forgotten " + DEFAULT_IMAGE]
        )
        podman_cluster.run(["srun", "-wnode2", "bash", "-c", leave])
        found = sorted(podman_cluster.leftovers())
    finally:
        remove = "podman rm forgotten; rm /tmp/ray-x; kill $(pidof sleep)"
        podman_cluster.run(["bash", "-c", remove], host="node2")
    assert found[:2] == ["node2: Podman container forgotten (Created)", "node2: file /tmp/ray-x"]
    assert found[2].endswith(": sleep 77")
    assert len(found) == 3
    wait_clean(podman_cluster)


def can_connect_to_node2(cluster: SlurmCluster) -> bool:
    """Return whether the login host can connect to slurmd on node2."""
    return cluster.run(["timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/node2/6818"]).returncode == 0


def wait_until_node2_is_idle(cluster: SlurmCluster) -> None:
    sinfo = ["sinfo", "-hNo", "%N %T"]
    wait_until(lambda: "node2 idle" in cluster.run(sinfo).stdout, lambda: cluster.run(sinfo).stdout)


@pytest.mark.full
def test_disconnected_host(docker_cluster: SlurmCluster) -> None:
    assert can_connect_to_node2(docker_cluster)
    docker_cluster.disconnect("node2")
    try:
        assert not can_connect_to_node2(docker_cluster)
    finally:
        docker_cluster.reconnect("node2")
        wait_until(lambda: can_connect_to_node2(docker_cluster), lambda: "node2 cannot be reached")
        wait_until_node2_is_idle(docker_cluster)


@pytest.mark.full
def test_a_power_failure(docker_cluster: SlurmCluster) -> None:
    leave = f"touch /tmp/kept; docker run --detach --name lost {DEFAULT_IMAGE} sleep 77"
    docker_cluster.run(["bash", "-c", leave], host="node2")
    docker_cluster.power_off("node2")
    try:
        assert not can_connect_to_node2(docker_cluster)
    finally:
        docker_cluster.power_on("node2")
        wait_until_node2_is_idle(docker_cluster)
        found = docker_cluster.leftovers()
        docker_cluster.run(["bash", "-c", "docker rm --force lost; rm /tmp/kept"], host="node2")
    assert [line.split(" (")[0] for line in found] == [
        "node2: Docker container lost",
        "node2: file /tmp/kept",
    ]
    wait_clean(docker_cluster)


def test_machine_is_not_changed(folder: Path, podman_layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("old")
    missing = tmp_path / "missing"
    layout = dataclasses.replace(podman_layout, folder=folder, copy_on_write=[tmp_path], missing=[missing])
    change = f"echo new >{tmp_path}/data; touch {missing}/x /usr/x /etc/x /var/x {slurm_conf.IMAGES}/x"
    with SlurmCluster(ClusterConfig(), layout) as cluster:
        cluster.run(["bash", "-c", change], host="node1")
        seen = cluster.run(["bash", "-c", f"cat {tmp_path}/data"], host="node2")
        assert seen.stdout == "new\n"
        assert cluster.run(["touch", "/usr/x"]).returncode != 0
        assert cluster.run(["touch", f"{slurm_conf.IMAGES}/x"]).returncode != 0
    assert (tmp_path / "data").read_text() == "old"
    assert not any(path.exists() for path in (missing, Path("/usr/x"), Path("/etc/x"), Path("/var/x")))


@pytest.mark.usefixtures("mounts_unchanged")
@pytest.mark.full
def test_a_rehearsal_returns_the_exit_code(rehearse: Rehearse) -> None:
    gpus = ["--set", "slurm.gpus_per_node=8"]
    trainer = ["sh", "-c", "echo $NNODES nodes; exit 7"]
    process = rehearse("--nodes", "2", *gpus, "--build-image", "--", *trainer)
    out, err = process.communicate(timeout=HANG)
    assert process.returncode == 7, err
    assert "\n2 nodes\n" in out
    assert "no leftovers on any host" in err.splitlines()[-1]


def test_without_root(folder: Path, archive: Path) -> None:
    cache = folder / "home/.cache/slurmray"
    cache.mkdir(parents=True)
    shutil.copy(archive, cache)

    def as_user(*args: str) -> subprocess.CompletedProcess[str]:
        here = [sys.base_prefix, sysconfig.get_path("purelib"), str(Path(__file__).parents[2])]
        argv = ["unshare", "--mount", "--propagation", "private", str(Path(__file__).with_name("as_user.sh"))]
        argv += [str(folder), *here, "-m", "slurmray", "rehearse", "--nodes", "2", *args]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)

    done = as_user("--set", "slurm.gpus_per_node=8", "--build-image", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7, done.stderr
    assert "no leftovers on any host" in done.stderr.splitlines()[-1]
    assert next((folder / "home").glob("slurm-*.out")).stat().st_uid == 54321


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.full) for n in (signal.SIGTERM, signal.SIGKILL))],
)
@pytest.mark.usefixtures("mounts_unchanged")
def test_an_interrupted_rehearsal_leaves_nothing(folder: Path, rehearse: Rehearse, number: int) -> None:
    def log() -> str:
        return "".join(path.read_text() for path in folder.glob("slurm-*.out"))

    process = rehearse("--nodes", "2", "--build-image", "--", "sleep", "600")
    wait_until(lambda: "trainer: sleep" in log() or process.poll() is not None, log)
    assert process.poll() is None, process.communicate(timeout=HANG)
    started = descendants(process.pid)
    assert len(started) > 10
    process.send_signal(number)
    _, err = process.communicate(timeout=HANG)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    if number != signal.SIGKILL:
        assert "CANCELLED, exit code 130, no leftovers on any host" in err.splitlines()[-1]
    wait_until(lambda: not running(started), lambda: f"{running(started)} are still running")


@pytest.mark.parametrize(
    "end", ["cancelled", *(pytest.param(end, marks=pytest.mark.full) for end in ("end of input", "SIGKILL"))]
)
@pytest.mark.usefixtures("mounts_unchanged")
def test_a_rehearsal_of_mcp_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    def log() -> str:
        return "".join(path.read_text() for path in folder.glob("slurm-*.out"))

    monkeypatch.chdir(folder)
    server = RawClient()
    try:
        spec = "slurm: {nodes: 1}\nrun: [sleep, '600']\n"
        server.call(1, "rehearse", text=spec, build_image=True)
        wait_until(lambda: "trainer: sleep" in log(), log)
        started = descendants(server.process.pid)
        assert len(started) > 10
        if end == "cancelled":
            server.send("notifications/cancelled", {"requestId": 1})
            server.call(2, "check", text="[]")
            assert server.answer(2)["structuredContent"]["mistakes"], "it goes on with other calls"
        elif end == "end of input":
            assert "Connection closed" in server.close()
            assert not running(started), "it waits for the end"
            assert "] stop: scancel" in log()
        else:
            server.process.kill()
        wait_until(lambda: not running(started), lambda: f"{running(started)} are still running")
    finally:
        server.process.kill()
        server.close()


def test_a_kept_cluster(rehearse: Rehearse) -> None:
    none = rehearse("--shell", "--", "true")
    assert "no kept cluster is running" in none.communicate(timeout=HANG)[1], (
        "shut down your kept cluster before this test"
    )
    kept = rehearse("--nodes", "2", "--build-image", "--keep", "--", "true")
    try:
        _, err = kept.communicate(timeout=HANG)
        assert kept.returncode == 0, err
        inside = rehearse("--shell", "--", "bash", "-c", "srun -N2 hostname; exit 5")
        out, err = inside.communicate(timeout=HANG)
        assert sorted(out.split()) == ["node1", "node2"], err
        assert inside.returncode == 5
        second = rehearse("--nodes", "1")
        assert "slurmray rehearse --down" in second.communicate(timeout=HANG)[1]
        assert second.returncode == 73
    finally:
        end = rehearse("--down")
        end.communicate(timeout=HANG)
    assert end.returncode == 0
    gone = rehearse("--shell")
    assert "--keep" in gone.communicate(timeout=HANG)[1]
    assert gone.returncode == 73


def test_script_that_slurmray_did_not_render_or_sbatch_rejects(folder: Path, rehearse: Rehearse) -> None:
    (folder / "other.sh").write_text("#!/bin/bash\necho hello\n")
    other = rehearse("other.sh")
    assert "slurmray did not render this script" in other.communicate(timeout=HANG)[1]
    assert other.returncode == 73
    never = rehearse("--nodes", "1", "--set", "slurm.begin=nonsense", "--build-image")
    assert "Invalid --begin specification" in never.communicate(timeout=HANG)[1]
    assert never.returncode == 73
