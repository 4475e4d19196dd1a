"""Another attempt of the job, and the nodes that it leaves out, with simulated nodes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from slurmray.agent import command_runner
from slurmray.agent.controller.requeue import choose_excluded, find_reason, is_requested, requeue_if_wanted

from ..simulation import Cluster

KIND = "64 1000000 gpu:h100:8(S:0-1) (null)"
SINFO = "\n".join(f"node{number} {state} {KIND}" for number, state in enumerate(["alloc", "mix", "idle"], 1))
RECORD = "   Partition=gpu AllocNode:Sid=login:1\n   ReqNodeList=(null) ExcNodeList=(null)\n"


def reason(cluster: Cluster, excluded: list[str]) -> str:
    outcome, state = cluster.end(), cluster.controller.state
    return find_reason(state, cluster.controller.settings, cluster.controller.job, outcome, excluded)


@pytest.mark.parametrize(("chances", "follows"), [(0, False), (1, True)])
def test_a_lost_node(chances: int, follows: bool) -> None:
    cluster = Cluster(requeue={"max": 2, "exit_code": 0})
    cluster.job["chances"] = chances
    cluster.train()
    cluster.lost.add("node2")
    cluster.wait(40)
    assert bool(reason(cluster, [])) == follows


@pytest.mark.parametrize("excluded", [[], ["node2"]])
def test_a_finding(excluded: list[str]) -> None:
    """On the same nodes it would come again."""
    cluster = Cluster()
    cluster.job["chances"] = 1
    cluster.receive_from_all("started", step="0")
    row = {"check": "GPUs", "found": "7", "wanted": "8", "fix": "none"}
    cluster.receive("node2", "finding", kind="preflight", **row)
    cluster.wait(20)
    assert bool(reason(cluster, excluded)) == bool(excluded)


@pytest.mark.parametrize("at_limit", [False, True])
@pytest.mark.parametrize(("code", "follows"), [(75, True), (1, False), (0, False)])
def test_a_request_of_the_trainer(code: int, follows: bool, at_limit: bool) -> None:
    cluster = Cluster(requeue={"max": 0, "exit_code": 75})
    cluster.train()
    cluster.controller.requests.is_time_up = at_limit
    cluster.receive("node1", "exit", code=code)
    cluster.receive_from_all("healthy")
    assert cluster.wait(1)
    assert bool(reason(cluster, [])) == follows
    assert is_requested(cluster.controller.state, cluster.controller.settings) == follows


def test_no_request_after_scancel() -> None:
    cluster = Cluster(requeue={"max": 2, "exit_code": 75})
    cluster.job["chances"] = 2
    cluster.train()
    cluster.controller.requests.is_stopping = True
    cluster.receive("node1", "exit", code=75)
    cluster.wait(1)
    assert not reason(cluster, [])


@pytest.mark.parametrize(
    ("shown", "record", "wanted", "is_excluded"),
    [
        (SINFO, RECORD, 2, True),
        (SINFO, RECORD, 3, False),
        (SINFO.replace("idle", "down*"), RECORD, 2, False),
        (SINFO.replace(f"node3 idle {KIND}", "node3 idle 64 1000000 gpu:a100:8 (null)"), RECORD, 2, False),
        (SINFO, RECORD.replace("ReqNodeList=(null)", "ReqNodeList=node[1-2]"), 2, False),
        ("", RECORD, 1, False),
        ("node3\n\nidle", RECORD, 1, False),
    ],
)
def test_nodes_that_the_next_attempt_leaves_out(
    shown: str, record: str, wanted: int, is_excluded: Any
) -> None:
    assert choose_excluded(shown, record, ["node2"], wanted) == (["node2"] if is_excluded else [])


@pytest.fixture
def sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
@pytest.mark.parametrize(
    ("groups", "before", "asked"),
    [
        ([{}], "(null)", [["requeue", "9"], ["update", "JobId=9", "ExcNodeList=node2"]]),
        ([{}], "node7", [["requeue", "9"], ["update", "JobId=9", "ExcNodeList=node7,node2"]]),
        ([{}, {}], "(null)", [["requeue", "9"]]),  # node2 may be of another component
    ],
)
def test_requests_to_slurm(
    groups: list[Any], before: str, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []

    def run_slurm(argv: list[str], _seconds: float) -> command_runner.Result:
        requests.append(argv)
        return command_runner.Result(0, SINFO if argv[0] == "sinfo" else "", "", "")

    monkeypatch.setattr(command_runner, "run_slurm", run_slurm)
    cluster = Cluster(nodes=2, groups=groups)
    cluster.job["chances"] = 1
    cluster.train()
    cluster.lost.add("node2")
    cluster.wait(40)
    outcome, controller = cluster.end(), cluster.controller
    record = RECORD.replace("ExcNodeList=(null)", "ExcNodeList=" + before)
    requeue_if_wanted(
        controller.state, controller.settings, controller.job, outcome, record, ["node2"], cluster.log
    )
    assert [argv[1:] for argv in requests if argv[0] == "scontrol"] == asked
