"""The package's Python API on this machine, with the login host's Slurm commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

import slurmray
from slurmray.errors import SlurmError
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from slurmray.slurm import slurm_commands
from slurmray.slurm.states import FINAL
from tests.mcp_client import fields, with_client

from .jobs import HANG, Jobs, path_with_slurm, wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guides/python.md").read_text()
ONE = {"nodes": 1, "cpus_per_task": 2, "mem": "1G"}


def python(
    folder: Path, program: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a user's Python program with Slurm's commands in its PATH."""
    own = {name: os.environ[name] for name in ("PATH", "SLURMRAY_CONFIG", "XDG_STATE_HOME")}
    env = {**(os.environ if env is None else env), **own, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", program]
    return subprocess.run(
        argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=HANG
    )


@pytest.fixture
def jobs(podman_cluster: SlurmCluster, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Jobs of root, submitted from the current folder."""
    monkeypatch.setenv("PATH", path_with_slurm(podman_cluster, tmp_path / "commands"))
    monkeypatch.chdir(folder)
    return Jobs(podman_cluster, folder)


def test_examples_of_the_page(jobs: Jobs) -> None:
    (jobs.folder / "train.py").write_text(
        "import os, sys\nprint(os.environ['WANDB_API_KEY'], sys.argv[1:])\n"
    )
    program = "".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    done = python(jobs.folder, program, {**os.environ, "WANDB_API_KEY": "mine"})
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if not line.startswith(" ")]
    assert all(": each node has its own /tmp, where" in line for line in warnings), done.stderr
    status = re.match(r"job ([0-9]+) is (PENDING|CONFIGURING|RUNNING)\nCOMPLETED, exit code 0\n", done.stdout)
    assert status, done.stdout
    assert "\nmine ['--lr', '1e-6']\n" in done.stdout
    assert "\nslurm.gpu_per_node: unknown field, " in done.stdout
    assert {path.name for path in jobs.folder.iterdir()} == {
        "train.py",
        "slurmray-runs",
        f"slurm-{status[1]}.out",
    }
    assert jobs.wait_end(int(status[1])).code == "0:0"
    # In another process and another folder.
    program = f"import slurmray; job = slurmray.Job({status[1]}); print(*job.wait(), job.state(), job.logs())"
    expected = f"COMPLETED 0 0 COMPLETED {jobs.log(int(status[1]))}\n"
    assert python(Path("/"), program).stdout == expected


def test_tools_of_mcp(jobs: Jobs) -> None:
    spec = "name: tools\nslurm: {nodes: 1, cpus_per_task: 2, mem: 1G}\nrun: echo up; sleep 1000\n"

    async def body(client: Client) -> None:
        assert re.match(
            r"Job \d+ to start at ", fields(await client.call_tool("check", {"text": spec}))["slurm"]
        )
        number = fields(await client.call_tool("submit", {"text": spec}))["id"]
        await anyio.to_thread.run_sync(jobs.wait_for, number, "\nup\n")
        status = fields(await client.call_tool("status", {}))
        assert (status["id"], status["name"], status["state"]) == (number, "tools", "RUNNING")
        assert (status["phase"], status["end"]) == ("training", None)
        log = fields(await client.call_tool("logs", {"id": number, "lines": 1000}))
        lines = jobs.log(number).rstrip("\n").split("\n")
        assert (log["id"], log["lines"], log["is_all"]) == (number, lines, True)
        listed = fields(await client.call_tool("list", {}))["result"][0]
        assert (listed["id"], listed["state"], listed["phase"]) == (number, "RUNNING", "training")
        node_log = fields(await client.call_tool("logs", {"id": number, "node": status["nodes"][0]}))
        assert "ray start --block" in "\n".join(node_log["lines"])
        rows = fields(await client.call_tool("doctor", {}))["result"]
        assert not any(row["is_wrong"] for row in rows)
        assert fields(await client.call_tool("why", {"id": number}))["state"] == "RUNNING"
        cancelled = fields(await client.call_tool("cancel", {"id": number}))
        assert cancelled == {"id": number, "task": None, "is_cancelled": True, "states": ["RUNNING"]}
        job = await anyio.to_thread.run_sync(jobs.wait_end, number)
        why = fields(await client.call_tool("why", {"id": number}))
        assert (why["state"], why["text"]) == ("CANCELLED", job.last_line)
        assert why["cancelled"].startswith("by you, with slurmray")

    with_client(body)


@pytest.mark.full
def test_a_job_while_it_runs_and_once_slurm_has_forgotten_it(
    jobs: Jobs, podman_layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = slurmray.submit(slurmray.JobSpec(slurm=ONE, run="echo up; sleep 1000"))
    assert job.state() not in FINAL
    jobs.wait_for(job.id, "\nup\n")
    assert job.state() == "RUNNING"
    assert job.logs().endswith("\nup\n")
    with pytest.raises(TimeoutError, match=rf"job {job.id} has not ended within 0\.1 s"):
        job.wait(timeout=0.1)
    attach = job.attach_argv(["ray", "status"])
    wait_until(
        lambda: " node_" in jobs.cluster.run(attach).stdout, job.logs, 60
    )  # the status has the node after some seconds
    job.cancel()
    assert job.wait(timeout=HANG).state == "CANCELLED"
    job.cancel()
    with pytest.raises(SlurmError, match="the job is CANCELLED; attach while it is RUNNING"):
        job.attach_argv()
    jobs.wait_end(job.id)
    with SlurmCluster(ClusterConfig(nodes=("node1",)), podman_layout) as cluster:  # does not know the job
        monkeypatch.setenv("PATH", path_with_slurm(cluster, tmp_path / "of-another-slurm"))
        assert slurmray.Job(job.id).wait(timeout=HANG).state == "CANCELLED"
        assert slurmray.Job(job.id, folder=jobs.folder).logs() == job.logs()
        with pytest.raises(SlurmError, match="check the number, or run this in the folder"):
            slurmray.Job(job.id, folder="/").state()
        with pytest.raises(SlurmError, match="not known to Slurm"):
            slurmray.Job(job.id).attach_argv()


@pytest.mark.usefixtures("jobs")
def test_a_job_that_has_not_started() -> None:
    job = slurmray.submit(slurmray.JobSpec(slurm=ONE | {"hold": True}))
    assert (job.state(), job.logs()) == ("PENDING", "")
    with pytest.raises(SlurmError, match="the job is PENDING; attach while it is RUNNING"):
        job.attach_argv()
    job.cancel()
    assert job.wait(timeout=HANG).state == "CANCELLED"


@pytest.mark.parametrize(
    ("slurm", "expected"),
    [
        ({"partition": "nope"}, "slurm.partition"),
        ({"gpus_per_node": 99}, "%c %m %G"),
        ({"constraint": "nope"}, "slurm.constraint"),
        ({"gres": "nope:1"}, "slurm.gres"),
        ({"nodelist": "nope"}, "slurm.nodelist"),
        ({"reservation": "nope"}, "reservation is invalid: correct `slurm` in the job spec"),
    ],
)
def test_spec_that_sbatch_rejects(jobs: Jobs, slurm: dict[str, object], expected: str) -> None:
    with pytest.raises(SlurmError) as caught:
        slurmray.submit(slurmray.JobSpec(slurm=slurm))
    assert str(caught.value).startswith("sbatch: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(jobs.folder.iterdir()) == []


@pytest.mark.full
def test_wait_survives_a_restart_of_slurmctld(
    podman_layout: Layout, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    answers: list[str] = []
    with SlurmCluster(ClusterConfig(nodes=("node1",)), podman_layout) as cluster:
        monkeypatch.setenv("PATH", path_with_slurm(cluster, tmp_path / "commands"))
        job = slurmray.submit(slurmray.JobSpec(slurm={"hold": True}))
        call = slurm_commands.call

        def call_and_restart(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
            done = call(argv, **options)
            if argv[0] != "scontrol":  # the request about the owner, which comes first
                return done
            answers.append(done.stdout or done.stderr)
            if len(answers) == 1:
                cluster.run(
                    [
                        "bash",
                        "-c",
                        "kill $(</run/slurmctld.pid) && tail --pid=$(</run/slurmctld.pid) -f /dev/null",
                    ]
                )
            elif len(answers) == 2:
                cluster.run(["slurmctld"])
                wait_until(
                    lambda: cluster.run(["scancel", str(job.id)]).returncode == 0, lambda: "no slurmctld"
                )
            return done

        monkeypatch.setattr(slurm_commands, "call", call_and_restart)
        assert job.wait(timeout=HANG).state == "CANCELLED"
    assert "JobState=PENDING" in answers[0]
    assert "Unable to contact slurm controller" in answers[1]


def test_a_job_of_another_user(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = slurmray.submit(slurmray.JobSpec(slurm=ONE | {"hold": True}))
    with monkeypatch.context() as other:
        other.setenv("PATH", path_with_slurm(jobs.cluster, tmp_path / "of-alice", "alice"))
        assert job.state() == "PENDING"
        message = r"^scancel: .*Access/permission denied: the job is another user's$"
        with pytest.raises(SlurmError, match=message):
            job.cancel()
    job.cancel()
    assert job.wait(timeout=HANG).state == "CANCELLED"


@pytest.mark.full
def test_a_job_that_submits_a_job_whose_trainer_fails(jobs: Jobs) -> None:
    """The outer job has variables with which the inner job's srun would fail."""
    args = ["--ntasks=3", "--cpus-per-task=2", "--mem-per-cpu=50"]
    outer = jobs.cluster.sbatch("", args=args, folder=jobs.folder, text="#!/bin/sh\nenv -0 >environment\n")
    assert jobs.cluster.wait(outer, HANG)[0] == "COMPLETED"
    text = (jobs.folder / "environment").read_text()
    env = dict(pair.split("=", 1) for pair in text.split("\0") if pair)
    assert {"SLURM_JOB_ID", "SLURM_MEM_PER_CPU", "SLURM_NTASKS", "SLURMD_NODENAME"} <= env.keys()
    # With --wait, sbatch exits with the job's exit code, which is not a rejection.
    slurm = ONE | {"wait": True, "error": "errors"}
    spec = {"slurm": slurm, "setup": "env >seen", "run": ["sh", "-c", "echo bad >&2; exit 7"]}
    program = (
        f"import slurmray; job = slurmray.submit(slurmray.JobSpec(**{spec})); print(job.id, *job.wait())"
    )
    done = python(jobs.folder, program + "; print(job.logs())", env)
    assert done.returncode == 0, done.stderr
    assert re.match("[0-9]+ FAILED 7 0\n", done.stdout), done.stdout
    assert "\nbad\n" in done.stdout
    jobs.wait_end(int(done.stdout.split()[0]))
    seen = (jobs.folder / "seen").read_text()
    assert "SLURM_MEM_PER_NODE=1024\n" in seen
    assert "SLURM_MEM_PER_CPU=" not in seen
