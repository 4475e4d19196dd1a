"""Another attempt of the job, and the nodes that it leaves out, with simulated nodes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from slurmray.agent import command_runner
from slurmray.agent.controller.requeue import choose_excluded, find_reason, is_requested, requeue_if_wanted

from ..containers import group
from ..simulation import Cluster

KIND = "64 1000000 gpu:h100:8(S:0-1) (null)"
SINFO = "\n".join(f"node{number} {state} {KIND}" for number, state in enumerate(["alloc", "mix", "idle"], 1))
RECORD = {"Partition": "gpu", "ReqNodeList": "(null)", "ExcNodeList": "(null)"}


def reason(cluster: Cluster, excluded: list[str]) -> str:
    return find_reason(cluster.controller, cluster.end(), excluded)


def lose_node2(nodes: int = 2, **settings: Any) -> Cluster:
    """A job that has lost a node while it trained."""
    cluster = Cluster(nodes, **settings).train()
    cluster.lost.add("node2")
    cluster.wait(40)
    return cluster


@pytest.mark.parametrize(("chances", "follows"), [(0, False), (1, True)])
def test_a_lost_node(chances: int, follows: bool) -> None:
    cluster = lose_node2(3, requeue={"max": 2, "exit_code": 0}, job={"chances": chances})
    assert bool(reason(cluster, [])) == follows


@pytest.mark.parametrize("excluded", [[], ["node2"]])
def test_a_finding(excluded: list[str]) -> None:
    """On the same nodes it would come again."""
    cluster = Cluster(job={"chances": 1}).start()
    cluster.report("node2")
    cluster.wait(20)
    assert bool(reason(cluster, excluded)) == bool(excluded)


@pytest.mark.parametrize("at_limit", [False, True])
@pytest.mark.parametrize(("code", "follows"), [(75, True), (1, False), (0, False)])
def test_a_request_of_the_trainer(code: int, follows: bool, at_limit: bool) -> None:
    cluster = Cluster(requeue={"max": 0, "exit_code": 75}).train()
    cluster.controller.requests.is_time_up = at_limit
    cluster.exit(code, *cluster.nodes)
    assert cluster.wait(1)
    assert bool(reason(cluster, [])) == follows
    assert is_requested(cluster.controller) == follows


def test_no_request_after_scancel() -> None:
    cluster = Cluster(requeue={"max": 2, "exit_code": 75}, job={"chances": 2}).train()
    cluster.controller.requests.is_stopping = True
    cluster.exit(75)
    cluster.wait(1)
    assert not reason(cluster, [])


@pytest.mark.parametrize(
    ("shown", "record", "before", "wanted", "is_excluded"),
    [
        (SINFO, RECORD, [], 2, True),
        (SINFO, RECORD, [], 3, False),
        (SINFO, RECORD, ["node3"], 2, False),
        (SINFO, RECORD, ["node3"], 1, True),
        (SINFO.replace("idle", "down*"), RECORD, [], 2, False),
        (
            SINFO.replace(f"node3 idle {KIND}", "node3 idle 64 1000000 gpu:a100:8 (null)"),
            RECORD,
            [],
            2,
            False,
        ),
        (SINFO, {**RECORD, "ReqNodeList": "node[1-2]"}, [], 2, False),
        ("", RECORD, [], 1, False),
        ("node3\n\nidle", RECORD, [], 1, False),
    ],
)
def test_nodes_that_the_next_attempt_leaves_out(
    shown: str, record: dict[str, str], before: list[str], wanted: int, is_excluded: Any
) -> None:
    assert choose_excluded(shown, record, before, ["node2"], wanted) == (["node2"] if is_excluded else [])


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """What the controller asks Slurm's commands."""
    asked: list[list[str]] = []

    def run_slurm(argv: list[str], _seconds: float) -> command_runner.Result:
        asked.append(argv)
        answers = {"sinfo": SINFO, "show": "\n".join(argv[-1].split(","))}
        return command_runner.Result(0, answers.get(argv[0], answers.get(argv[1], "")), "", "")

    monkeypatch.setattr(command_runner, "run_slurm", run_slurm)
    before = signal.getsignal(signal.SIGTERM)
    yield asked
    signal.signal(signal.SIGTERM, before)


def requeue(cluster: Cluster, allocated: int, bad: list[str], before: str = "(null)") -> None:
    outcome, controller = cluster.end(), cluster.controller
    record = {**RECORD, "ExcNodeList": before}
    requeue_if_wanted(controller, outcome, record, allocated, bad)


@pytest.mark.parametrize(
    ("groups", "before", "excluded"),
    [
        (1, "(null)", "node2"),
        (1, "node7", "node7,node2"),
        (1, "node7,node3", ""),  # two nodes are needed, and one is left
        (2, "(null)", ""),  # node2 may be of another component
    ],
)
def test_requests_to_slurm(groups: int, before: str, excluded: str, requests: list[list[str]]) -> None:
    cluster = lose_node2(groups=[group(1, 0)] * groups, job={"chances": 1})
    requeue(cluster, 2, ["node2"], before)
    update = [["update", "JobId=9", "ExcNodeList=" + excluded]] if excluded else []
    asked = [argv[1:] for argv in requests if argv[0] == "scontrol" and argv[1] != "show"]
    assert asked == [["requeue", "Incomplete", "9"], *update]


def test_a_scancel_while_slurm_is_asked(requests: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = lose_node2(job={"chances": 1})

    def run_slurm(argv: list[str], _seconds: float) -> command_runner.Result:
        requests.append(argv)
        cluster.controller.requests.is_stopping = True
        return command_runner.Result(0, SINFO, "", "")

    monkeypatch.setattr(command_runner, "run_slurm", run_slurm)
    requeue(cluster, 2, ["node2"])
    assert [argv[0] for argv in requests] == ["sinfo"]


def test_the_next_attempt_needs_all_nodes_again(requests: list[list[str]]) -> None:
    """Not only those of the last start."""
    cluster = lose_node2(job={"chances": 1, "restart": 1})
    requeue(cluster, 3, ["node4", "node2"])
    assert ["scontrol", "requeue", "Incomplete", "9"] in requests
    assert not any("update" in argv for argv in requests)


@pytest.mark.parametrize(("bad", "follows"), [(["node2"], True), (["node1", "node2"], False)])
def test_a_finding_of_all_nodes_is_a_mistake(
    bad: list[str], follows: bool, requests: list[list[str]]
) -> None:
    cluster = Cluster(2, job={"chances": 1}).start()
    cluster.report(*bad)
    cluster.wait(20)
    requeue(cluster, 2, bad)
    assert any("requeue" in argv for argv in requests) == follows


@pytest.mark.parametrize(
    ("number", "excluded", "follows"), [(0, [], False), (0, ["node2"], True), (1, [], True)]
)
def test_a_node_fails_before_ray_starts(number: int, excluded: list[str], follows: bool) -> None:
    """In a restart, the nodes were fit in the first start."""
    cluster = Cluster(2, job={"chances": 1, "restart": number}).check()
    cluster.receive("node2", "failed", kind="image", message="no space left on device")
    assert cluster.wait(20)
    assert bool(reason(cluster, excluded)) == follows


@pytest.mark.parametrize("number", [0, 1])
def test_slurm_starts_no_step(number: int) -> None:
    """In a restart: it is slurmctld's failure, not the job's."""
    cluster = Cluster(2, job={"chances": 1, "restart": number})
    cluster.controller.losses.on_step_over(cluster.nodes, 0.0)
    assert bool(reason(cluster, [])) == (number > 0)


def test_the_head_s_container_gets_sigterm() -> None:
    cluster = Cluster(2, job={"chances": 1}).train()
    cluster.receive("node1", "signalled")
    cluster.exit(143)
    assert cluster.wait(20)
    assert reason(cluster, []) == "node1: container got SIGTERM, but not from Slurm"
