"""What `slurmray why` says first about jobs that ended in different ways, and what it must not say."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig

from . import bare
from .faults.test_host_loss import boot_again
from .jobs import HANG, Jobs, path_with_slurm, wait_until
from .test_verbs import slurmray, submit

SLURM = {"nodes": 1, "cpus_per_task": 2, "mem": "1G"}
FALSE = ("memory ran out", "explain CODE", "exclude=NODE", "JOBID")
UNKNOWN = "The cause is not known to slurmray."


@pytest.fixture(scope="module")
def cluster(none_layout: Layout) -> Iterator[SlurmCluster]:
    with SlurmCluster(ClusterConfig(), none_layout) as cluster:
        yield cluster


@pytest.fixture
def jobs(cluster: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("PATH", path_with_slurm(cluster, tmp_path / "commands"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(folder)
    return Jobs(cluster, folder)


def write_spec(jobs: Jobs, name: str, **more: object) -> str:
    spec = {"name": name, "slurm": SLURM, "setup": bare.setup(), "container": {"runtime": "none"}, **more}
    (jobs.folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    return f"{name}.yaml"


def lines_of_why(job: int, *absent: str) -> list[str]:
    """Lines that why prints, with wrapped ones joined. absent: what must not be in them."""
    done = slurmray("why", str(job))
    assert done.returncode == 0, done.stderr
    text = done.stdout.replace("\n  ", "\n> ")
    for each in (*FALSE, *absent):
        assert each not in " ".join(done.stdout.split()), done.stdout
    return text.splitlines()


def test_what_failed_is_shown(jobs: Jobs) -> None:
    """The last lines of trainer, prepare step, service and setup; and what is not known is not guessed."""
    fail = "echo {0} >&2; printf 'a\\033[31mb\\007\\n'; exit 3"
    wait = ["bash", "-c", "sleep 600"]
    step = {"run": fail.format("broken step"), "needs_ray": False}
    numbers = {
        "trainer": submit(write_spec(jobs, "trainer"), "--", "python3", "nosuch.py"),
        "prepare": submit(write_spec(jobs, "prepare", prepare=[{"name": "data", **step}]), "--", *wait),
        "service": submit(write_spec(jobs, "service", services=[{"name": "judge", **step}]), "--", *wait),
        "setup": submit(write_spec(jobs, "setup", setup=fail.format("broken setup")), "--", *wait),
    }
    for number in numbers.values():
        jobs.wait_end(number)
    shown = {name: lines_of_why(number) for name, number in numbers.items()}
    text = {name: "\n".join(lines) for name, lines in shown.items()}
    assert shown["trainer"][0] == f"job {numbers['trainer']}, trainer: FAILED. done: trainer exited with 2"
    assert shown["trainer"][1].startswith("last lines of the job's log:")
    assert "can't open file" in shown["trainer"][2], text["trainer"]
    assert "job spec" not in text["trainer"]
    assert "\ncause: The Python file does not exist where the" in text["trainer"], text["trainer"]
    for name, code in (("prepare", 69), ("service", 70)):
        assert shown[name][0].startswith(f"job {numbers[name]}, {name}: FAILED. failed ({code} {name}): node")
        assert "\n> broken step" in text[name], text[name]
        assert "\n> ab\\x07" in text[name], "escaped"
        assert UNKNOWN in text[name]
    assert shown["setup"][0].startswith(f"job {numbers['setup']}, setup: FAILED. failed (65 preflight): ")
    assert "broken setup" in " ".join(text["setup"].split())
    assert "not known" not in text["setup"], "the last line has it"


def test_who_cancelled_it(jobs: Jobs, cluster: SlurmCluster) -> None:
    deaf = [
        "bash",
        "-c",
        "trap '' TERM; echo 'OSError: [Errno 98] Address already in use'; sleep 600 & wait; wait",
    ]
    ours = submit(write_spec(jobs, "ours"), "--", *deaf)
    theirs = submit(write_spec(jobs, "theirs"), "--", "sleep", "600")
    held = submit(write_spec(jobs, "held"), "--hold", "--", "true")
    jobs.wait_for(ours, "Address already in use")
    jobs.wait_for(theirs, "] trainer: ")
    assert slurmray("cancel", str(ours), str(held), "--now").returncode == 0
    cluster.run(["scancel", str(theirs)])
    for number in (ours, theirs, held):
        assert jobs.wait_end(number).state == "CANCELLED"
    lines = lines_of_why(ours, "137: ", " cause:")
    assert lines[0].startswith(f"job {ours}, ours: CANCELLED by you, with slurmray, at 2"), lines
    assert "earlier, in log: OSError: [Errno 98] Address already in use" in lines
    assert lines_of_why(held)[0].startswith(f"job {held}, held: CANCELLED by you, with slurmray, at 2")
    lines = lines_of_why(theirs, "with slurmray", "cause")
    assert " with scancel, by you or an administrator" in " ".join(lines), lines
    assert json.loads(slurmray("why", str(ours), "--json").stdout)["cancelled"].startswith("by you")


def test_without_a_run_directory(jobs: Jobs, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's last line; after 0:53 there is no log."""
    monkeypatch.setenv("NOT_SET", "here")
    unset = jobs.submit(
        yaml.safe_dump({"slurm": SLURM, "container": {"runtime": "none"}, "env": {"NOT_SET": None}}),
        ["true"],
    )
    gone = submit(
        write_spec(jobs, "gone", prepare=[{"name": "data", "run": "echo no; exit 4"}]), "--", "true"
    )
    no_log = submit(write_spec(jobs, "nolog"), "--set=slurm.output=/dev/null/x.out", "--", "true")
    killed = cluster.sbatch(
        "", "root", ["-n1", "--job-name=killed"], text="#!/bin/sh\nkill -9 $$\n", folder=jobs.folder
    )
    for number in (unset, gone, no_log, killed):
        jobs.wait_end(number)
    shutil.rmtree(jobs.folder / f"slurmray-runs/{gone}-0")
    assert "failed (64 config): env.NOT_SET is not set" in lines_of_why(unset, "no last line", "not known")[0]
    lines = lines_of_why(gone, "no last line")
    assert lines[0].startswith(f"job {gone}, gone: FAILED. failed (69 prepare): node"), lines
    assert "> no" in lines
    lines = lines_of_why(no_log)
    assert lines[1].startswith("0:53: Slurm could not start the batch script"), lines
    assert lines[-1] == "its output file: /dev/null/x.out"
    text = " ".join(slurmray("why", str(killed)).stdout.split())
    assert "0:9: SIGKILL ended the batch script possible cause: It still ran KillWait seconds" in text, text
    assert "JOBID" not in text


def lose(cluster: SlurmCluster, jobs: Jobs, name: str, lost: str, **more: object) -> int:
    """Submit a job of two nodes, and power one off when its trainer runs."""
    slurm = {**SLURM, "nodes": 2}
    job = submit(write_spec(jobs, name, slurm=slurm, **more), "--", "bash", "-c", "echo started; sleep 600")
    jobs.wait_for(job, "\nstarted\n")
    cluster.power_off(lost)
    return job


def about_the_loss(job: int) -> list[str]:
    """What why and status print of it, and the page of report, each in one line."""
    shown = [" ".join(slurmray(verb, str(job)).stdout.split()) for verb in ("why", "status")]
    assert slurmray("report", str(job)).returncode == 0
    page = Path(f"slurmray-{job}.html").read_text()
    return [*shown, " ".join(re.sub("<[^>]*>", " ", page).split())]


@pytest.fixture
def hasty(none_layout: Layout) -> Iterator[SlurmCluster]:
    """A cluster whose SlurmdTimeout is below the heartbeat timeout."""
    options = {"SlurmdTimeout": "8", "KillWait": "5"}
    with SlurmCluster(ClusterConfig(options=options), none_layout) as cluster:
        yield cluster


@pytest.fixture
def jobs_of_hasty(hasty: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("PATH", path_with_slurm(hasty, tmp_path / "commands"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(folder)
    return Jobs(hasty, folder)


@pytest.mark.full
@pytest.mark.parametrize(("lost", "other"), [("node2", "node1"), ("node1", "node2")])
def test_slurm_is_the_first_to_notice_a_lost_node(
    hasty: SlurmCluster, jobs_of_hasty: Jobs, lost: str, other: str
) -> None:
    job = lose(hasty, jobs_of_hasty, "lost", lost)
    assert hasty.wait(job, HANG)[0] == "NODE_FAIL"
    if lost == "node2":  # the batch script's host lives
        wait_until(lambda: "] failed (71" in jobs_of_hasty.log(job), lambda: jobs_of_hasty.log(job))
    shown = about_the_loss(job)
    for text in shown:
        assert f"{lost}: Slurm has marked" in text, text
        assert "stopped by Slurm" not in text
        assert "No node was lost" not in text
    for text in shown[:2]:
        assert f"exclude={lost}" in text
        assert f"exclude={other}" not in text
    assert "8 s (SlurmdTimeout), before slurmray acts after 28 s" in " ".join(
        slurmray("doctor").stdout.split()
    )


@pytest.mark.full
def test_while_slurm_waits_for_a_lost_node(jobs: Jobs, cluster: SlurmCluster) -> None:
    job = lose(cluster, jobs, "waits", "node2")
    try:
        wait_until(lambda: "] failed (71" in jobs.log(job), lambda: jobs.log(job))
        assert cluster.job(job)["JobState"] == "COMPLETING"
        text = f"job {job}, waits: FAILED. failed (71 node lost): node2: no heartbeat for 25 s."
        shown = about_the_loss(job)
        assert shown[0].startswith(text)
        for each in shown[:2]:
            assert "exclude=node2" in each
            assert "exclude=node1" not in each
    finally:
        boot_again(cluster, "node2")
    # Removes what the lost job left on node2: all jobs of the other tests may run on node1.
    jobs.wait_end(submit(write_spec(jobs, "next", slurm={**SLURM, "nodes": 2}), "--", "true"))
