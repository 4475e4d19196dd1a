"""Writes that fail: of the job's log and run directory, and of a job's name that is not UTF-8."""

from __future__ import annotations

import dataclasses
import errno
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig

from . import bare
from .jobs import HANG, Jobs, wait_clean, wait_until

# Prints a number ten times a second, also about SIGUSR1, and at the end a line without a newline.
TRAINER = """
trap 'echo signal' USR1
trap '' TERM
for ((n = 1; ; n++)); do
    echo "step $n"
    echo "$n" >"$1/step"
    sleep 0.1
    [[ ! -e $1/go ]] || break
done
printf 'no newline'
exit 3
"""


@pytest.fixture(scope="module")
def cluster(none_layout: Layout) -> Iterator[SlurmCluster]:
    """Hosts without containers, and with the Python of the tests, for the file server."""
    python = [Path(path) for path in (sys.prefix, sys.base_prefix) if path != "/usr"]
    layout = dataclasses.replace(none_layout, copy_on_write=[*none_layout.copy_on_write, *python])
    with SlurmCluster(ClusterConfig(), layout) as cluster:
        yield cluster


@pytest.fixture
def refusal(cluster: SlurmCluster, folder: Path, share: Path) -> Iterator[Path]:
    """A file that makes node1's file system of `folder` refuse writes; it has the errno."""
    beside = share / "file-server"
    beside.mkdir()
    for name in ("refusing_fs.py", "root_squash_fs.py"):
        shutil.copy(Path(__file__).with_name(name), beside)
    file = beside / "errno"
    argv = [sys.executable, str(beside / "refusing_fs.py"), str(folder), str(file)]
    server = subprocess.Popen(cluster.argv(argv, None, "node1"))
    try:
        is_mounted = ["mountpoint", str(folder)]
        wait_until(lambda: not cluster.run(is_mounted, host="node1").returncode, lambda: "not mounted", 20)
        yield file
    finally:
        file.unlink(missing_ok=True)
        cluster.run(["umount", "--lazy", str(folder)], host="node1")
        server.terminate()
        server.wait(20)
        shutil.rmtree(beside)


def submit(jobs: Jobs, beside: Path, *args: str) -> int:
    spec = {
        "slurm": {"nodes": 1, "cpus_per_task": 2, "mem": "1G"},
        "setup": bare.setup(),
        "container": {"runtime": "none"},
        "ray": {"metrics": True},
        "watch": {"interval": 5},
        "stop": {"grace": 1000},
    }
    run = ["bash", "-c", TRAINER, "bash", str(beside)]
    number = jobs.submit(yaml.safe_dump(spec), run, ["--nodelist=node1", *args])
    jobs.wait_for(number, "\nstep 1\n")
    return number


def wait_for_steps(jobs: Jobs, number: int, beside: Path, count: int) -> None:
    """Wait until the trainer has printed so many more numbers."""
    file = beside / "step"
    first = int(file.read_text() or 0)
    wait_until(
        lambda: int(file.read_text() or 0) >= first + count,
        lambda: f"the trainer has stopped: {jobs.cluster.job(number)}\n{jobs.log(number)}",
        120,
    )


def test_a_log_and_a_run_directory_that_refuse_writes(
    cluster: SlurmCluster, folder: Path, refusal: Path
) -> None:
    """Neither the trainer nor the controller loses a line, and the job goes on."""
    jobs, beside = Jobs(cluster, folder), refusal.parent
    number = submit(jobs, beside)
    node_log = folder / f"slurmray-runs/{number}-0/logs/node1.log"
    # Then `ray start` has written its last line: it ends if it cannot.
    wait_until(lambda: "block forever" in node_log.read_text(), node_log.read_text, 60)
    for code in (errno.ESTALE, errno.EDQUOT):
        refusal.write_text(str(code))
        before = jobs.log(number)
        assert cluster.run(["scancel", "--signal=USR1", str(number)]).returncode == 0
        wait_for_steps(jobs, number, beside, 60)
        assert jobs.log(number) == before, "nothing was refused"
        refusal.unlink()
        wait_for_steps(jobs, number, beside, 10)
    (beside / "go").touch()
    assert cluster.wait(number, HANG) == ("FAILED", "3:0")
    log = jobs.log(number)
    last = int((beside / "step").read_text())
    assert re.findall("step ([0-9]+)\n", log) == [str(step) for step in range(1, last + 1)]
    assert (log.count("\nsignal\n"), log.count("] signal USR1: passed on to the trainer\n")) == (2, 2)
    assert "\nno newline\n[slurmray " in log, log
    assert log.splitlines()[-1].endswith("] done: trainer exited with 3"), log
    run = folder / f"slurmray-runs/{number}-0"
    assert '"event": "end"' in (run / "events.jsonl").read_text()
    refused = "] error in the thread for the run directory: OSError: Stale file handle\n"
    assert log.count(refused) == 1, "said once"


@pytest.mark.attack("a job's name that is not UTF-8")
def test_a_name_that_is_not_utf_8(cluster: SlurmCluster, folder: Path, share: Path) -> None:
    """Heartbeats, samples, metrics and `slurmray cancel --now` work as ever."""
    beside = share / "beside"
    beside.mkdir()
    jobs = Jobs(cluster, folder)
    number = submit(jobs, beside, "--job-name=job\udce9")
    run = folder / f"slurmray-runs/{number}-0"
    metrics = run / "metrics/slurmray.prom"
    wait_until(metrics.exists, lambda: jobs.log(number))
    assert 'name="job?",node="node1"} ' in metrics.read_text()
    before = (run / "heartbeat").read_text()
    wait_until(lambda: (run / "heartbeat").read_text() != before, lambda: jobs.log(number), 20)
    cluster.run(["scancel", str(number)])
    jobs.wait_for(number, "] stop: scancel")
    (run / "cancel-now").write_text("now\n")
    begin = time.monotonic()
    assert cluster.wait(number, HANG)[0] == "CANCELLED"
    assert time.monotonic() - begin < 60, "Slurm ended it"
    log = jobs.log(number)
    assert "] stop: the grace period ends, by slurmray cancel --now\n" in log, log
    assert "error in the thread" not in log
    wait_clean(cluster)
    shutil.rmtree(beside)
