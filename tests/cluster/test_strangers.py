"""Attacks by another user of the same cluster."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster

from .jobs import wait_until

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("click", "jinja2", "markupsafe", "yaml", "pydantic", "pydantic_core", "annotated_types"),
    *("typing_extensions", "typing_inspection"),
)
VERBS = [
    *(
        ["attach"],
        ["attach", "--", "id"],
        ["dashboard", "--port=0"],
        ["status"],
        ["why"],
        ["logs"],
        ["logs", "-f"],
    ),
    *(["logs", "--node=node1"], ["report", "-o", "-"], ["cancel"], ["cancel", "--now"]),
]


@pytest.fixture(scope="session")
def program(share: Path) -> Path:
    """A copy of slurmray with its dependencies, which users of the hosts can run with their Python."""
    folder = share / "program"
    folder.mkdir()
    for name in ("slurmray", "templates", "examples"):
        shutil.copytree(ROOT / name, folder / name)
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin:
            path = Path(spec.origin)
            copy = shutil.copytree if path.name == "__init__.py" else shutil.copy
            copy(
                path.parent if path.name == "__init__.py" else path,
                folder / (name if copy is shutil.copytree else ""),
            )
    return folder


def slurmray(
    cluster: SlurmCluster, program: Path, user: str, folder: Path, *args: str
) -> subprocess.CompletedProcess[str]:
    """Run a command line as a user, on the login host."""
    argv = ["env", f"PYTHONPATH={program}", f"HOME={folder}", "/usr/bin/python3", "-m", "slurmray", *args]
    return cluster.run(argv, user, folder=folder)


@pytest.mark.attack("a verb on another user's job, with a made-up run directory", inputs=len(VERBS) * 2)
def test_nothing_of_another_user_s_job_is_used(
    podman_cluster: SlurmCluster, folder: Path, program: Path
) -> None:
    """bob's job is `sleep`; its name and its run directory say that it is alice's, and what to run."""
    cluster = podman_cluster
    bob, alice = folder / "bob", folder / "alice"
    for home in (bob, alice):
        home.mkdir()
        home.chmod(0o777)
    name = "x\n   UserId=alice(1000) GroupId=alice(1000)"
    done = cluster.run(
        ["sbatch", "--parsable", f"--job-name={name}", f"--comment={name}", "--wrap=echo hi; sleep 600"],
        "bob",
        folder=bob,
    )
    number = int(done.stdout)
    wait_until(lambda: cluster.job(number).get("JobState") == "RUNNING", lambda: str(cluster.job(number)))
    theirs = ["/bin/sh", "-c", f"cp /proc/self/status {bob}/stolen"]
    common = {"v": 1, "time": 1.0}
    events = [
        {
            **common,
            "event": "start",
            "job": str(number),
            "attempt": 0,
            "nodes": ["node1"],
            "nodes_text": "1 node",
        }
        | {"components": [1], "ray_nodes": 1, "head": "node1", "run_dir": "/x\x1b[2J"},
        {**common, "event": "dashboard", "node": "node1", "address": "127.0.0.1", "port": 1},
        {**common, "event": "attach", "argv": theirs, "command": "x", "runtime": "none", "unset": []}
        | {"folder": f"/tmp/ray-{number}-0-0a1b2c"},
    ]
    text = "".join(f"{json.dumps(event)}\n" for event in events)
    for place in (bob, alice):  # alice's own folder, too, for her `--run_dir` by default
        write = f"mkdir -p slurmray-runs/{number}-0/logs; cat >slurmray-runs/{number}-0/events.jsonl"
        assert cluster.run(["sh", "-c", write], "bob", folder=place, text=text).returncode == 0
    try:
        for user in ("alice", "root"):
            for verb in VERBS:
                done = slurmray(cluster, program, user, alice, verb[0], str(number), *verb[1:])
                expected = (2, "", f"job {number} is bob's, not yours\n")
                assert (done.returncode, done.stdout, done.stderr) == expected, verb
        assert not (bob / "stolen").exists()
        assert cluster.job(number)["JobState"] == "RUNNING"
        own = slurmray(cluster, program, "bob", bob, "status", str(number))
        assert own.returncode == 0, own.stderr
        assert "\x1b" not in own.stdout
        for verb in (["attach"], ["dashboard", "--port=0"]):
            done = slurmray(cluster, program, "bob", bob, verb[0], str(number), *verb[1:])
            expected = (64, "", f"job {number}: its script was not rendered by slurmray\n")
            assert (done.returncode, done.stdout, done.stderr) == expected
        assert not (bob / "stolen").exists()
    finally:
        cluster.run(["scancel", str(number)])
        cluster.wait(number, 60)
