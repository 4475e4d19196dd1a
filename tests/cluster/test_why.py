"""What `slurmray why` says first about jobs that ended in different ways, and what it must not say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig

from . import bare
from .jobs import Jobs, path_with_slurm
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
