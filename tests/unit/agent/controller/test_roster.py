"""Which nodes take part in the next start in the same allocation, with simulated nodes."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.agent.controller.failure import Failure
from slurmray.agent.controller.roster import Roster

from ..containers import group
from ..simulation import Cluster


def with_spares(spares: int = 1, nodes: int = 3, **settings: Any) -> tuple[Cluster, Roster]:
    cluster = Cluster(nodes=nodes, spares=spares, **settings)
    return cluster, Roster(cluster.controller.settings, cluster.controller.job)


def restarts(cluster: Cluster, roster: Roster, now: float = 0.0) -> bool:
    return roster.restart(cluster.controller, cluster.end(), now)


def numbers(nodes: list[str]) -> str:
    return "".join(node[-1] for node in nodes)


def next_nodes(cluster: Cluster, roster: Roster, seconds: float = 60, text: str = "") -> str:
    """The numbers of the nodes of the next start, in order; "" without one.

    The job ends within the time, and its last line begins with the text.
    """
    end = cluster.end(seconds)
    assert end.text.startswith(text)
    return numbers(roster.nodes) if roster.restart(cluster.controller, end, 0) else ""


def training(spares: int = 1, **settings: Any) -> tuple[Cluster, Roster]:
    cluster, roster = with_spares(spares, **settings)
    cluster.train()
    return cluster, roster


def kill(cluster: Cluster, node: str, message: str = "the raylet was killed") -> None:
    cluster.receive(node, "failed", kind="ray", message=message)


TOO_FEW = "; too few spare nodes are left"
NO_WAY = {"check": "connection", "found": "cannot reach the head node", "fix": "open ports"}


def describe(cluster: Cluster, roster: Roster) -> str:
    return roster.describe(cluster.controller, cluster.outcome(0), cluster.job["nodes"])


@pytest.mark.parametrize(
    ("on_node_loss", "fewer", "spares", "lost", "nodes", "left", "text"),
    [
        ("fail", [], 1, "3", "", "4", ""),
        ("restart", [], 0, "3", "", "", TOO_FEW),
        ("restart", [], 1, "23", "", "4", TOO_FEW),
        ("restart", [], 1, "34", "", "4", TOO_FEW),
        ("restart", [2], 0, "3", "12", "", "; on 2 of 3 nodes, without node3"),
        ("restart", [1, 2], 0, "3", "12", "", "; on 2 of 3 nodes, without node3"),
        # The placement does not fit two nodes.
        ("restart", [1], 0, "3", "1", "2", "; on 1 of 3 nodes, without node2 and node3"),
        ("restart", [1, 2], 0, "23", "1", "", "; on 1 of 3 nodes, without node2 and node3"),
        ("restart", [2], 1, "34", "12", "", "; on 2 of 3 nodes, without node3"),
        ("restart", [2], 1, "23", "14", "", "; on 2 of 3 nodes, without node2 and node3, with node4"),
        ("restart", [2], 1, "3", "124", "", "; node4 takes the place of node3"),
        ("restart", [2], 0, "23", "", "", TOO_FEW),
    ],
)
def test_the_nodes_after_a_loss(
    on_node_loss: str, fewer: list[int], spares: int, lost: str, nodes: str, left: str, text: str
) -> None:
    settings = {str(number): {"ray.nodes": number} for number in fewer}
    cluster, roster = training(spares, on_node_loss=on_node_loss, fewer_nodes=settings)
    cluster.lost = {f"node{number}" for number in lost}
    outcome = cluster.end(60)
    assert roster.restart(cluster.controller, outcome, 0) == bool(nodes)
    assert numbers(roster.nodes) == (nodes or "123")
    assert numbers(roster.spares) == left
    assert roster.restarts == bool(nodes)
    assert not nodes or describe(cluster, roster).startswith("restart 1 of 3: node")
    assert not nodes or roster.failed == [f"node{number}" for number in lost if number in "123"]
    assert (describe(cluster, roster) if nodes else outcome.text).endswith(text)
    assert outcome.text.endswith(TOO_FEW) == (text == TOO_FEW)


@pytest.mark.parametrize(
    ("unfit", "nodes", "left", "counts", "refusal"),
    [
        ("3", "125", "46", [1, 1], ""),
        ("1", "423", "56", [0, 2], ""),
        ("126", "435", "", [0, 0], ""),
        ("14", "", "456", [1, 2], "0 of 1 nodes are left in group cpu"),
    ],
)
def test_groups(unfit: str, nodes: str, left: str, counts: list[int], refusal: str) -> None:
    """Nodes 1 and 4 are in the first group, the others in the second one."""
    groups = [group(1, 0, "cpu", spares=1), group(2, 0, "gpu", spares=2)]
    cluster, roster = with_spares(3, groups=groups, job={"spares_of_groups": [1, 2]})
    find(cluster, *(f"node{number}" for number in unfit))
    assert next_nodes(cluster, roster, 20) == nodes
    assert (numbers(roster.spares), roster.spares_of_groups, roster.refusal) == (left, counts, refusal)


def find(cluster: Cluster, *unfit: str) -> None:
    """Findings of these nodes, and none of the others."""
    cluster.receive_from_all("started", step="0")
    for node in cluster.nodes:
        if node in unfit:
            cluster.report(node)
            cluster.receive(node, "unfit")
        else:
            cluster.pass_checks(node)


def test_a_finding_before_the_first_start_on_fewer_nodes() -> None:
    cluster, roster = with_spares(0, on_node_loss="restart", fewer_nodes={"2": {}})
    find(cluster, "node1")
    assert next_nodes(cluster, roster, 20) == "23"
    assert roster.restarts == 0


def again(roster: Roster, code: int, now: float, **settings: Any) -> bool:
    """Whether the trainer starts again after its exit code, on the same nodes. now: seconds."""
    cluster = Cluster(nodes=3, **settings).train()
    cluster.exit(code, *cluster.nodes)
    is_again = roster.restart(cluster.controller, cluster.end(10), now)
    assert numbers(roster.nodes) == "123"
    return is_again


def test_exit_codes_that_request_a_restart() -> None:
    _, roster = with_spares(0, restart={"max": 2, "exit_codes": [85, 86], "window": 600})
    assert again(roster, 85, 1000)
    assert roster.failed == []
    assert again(roster, 86, 1010), "not the same"
    assert not again(roster, 85, 1020)
    assert roster.refusal == "restart.max is 2"
    assert not again(roster, 1, 1020)


def test_nodes_that_were_lost_long_before_the_trainer_asks_for_a_restart() -> None:
    cluster, roster = training(
        1, on_node_loss="continue", restart={"max": 2, "exit_codes": [85], "window": 9}
    )
    kill(cluster, "node2")
    cluster.lost = {"node3"}
    assert not cluster.wait(60)
    cluster.exit(85)
    cluster.receive("node4", "healthy")
    assert next_nodes(cluster, roster, 10) == "142", "on node2 only a process had ended"
    assert (roster.bad, roster.failed) == (["node2", "node3"], [])


def test_two_findings() -> None:
    cluster, roster = with_spares(2)
    find(cluster, "node2", "node3", "node5")
    assert not next_nodes(cluster, roster, 20)
    assert roster.failed == ["node2", "node3"], "node5 was set aside"


def test_the_same_failure_again() -> None:
    _, roster = with_spares(0, restart={"max": 9, "exit_codes": [85], "window": 600})
    assert again(roster, 85, 1000)
    assert again(roster, 85, 1600)
    assert not again(roster, 85, 2199)
    assert roster.refusal == "the same has happened 599 s after the last restart; restart.window is 600 s"


@pytest.mark.parametrize(("node", "nodes"), [("node1", "231"), ("node2", "132")])
def test_a_process_that_ended_where_no_other_node_is_left(node: str, nodes: str) -> None:
    cluster, roster = training(0, on_node_loss="restart")
    kill(cluster, node)
    assert next_nodes(cluster, roster, 20) == nodes
    assert roster.failed == [node]
    text = f"restart 1 of 3: {node}: the raylet was killed; on the same nodes"
    assert describe(cluster, roster) == text


def test_a_node_without_a_process_is_better_than_none() -> None:
    """Where a host that took its place is lost; it is tried once."""
    cluster, roster = training(on_node_loss="restart")
    kill(cluster, "node2")
    assert next_nodes(cluster, roster, 20) == "134"
    for lost, follows in (("node4", True), ("node2", False)):
        cluster, _ = training(0, nodes=4, on_node_loss="restart")
        cluster.lost = {lost}
        assert next_nodes(cluster, roster) == ("132" if follows else "")


def test_a_node_that_slurm_has_marked_down_is_not_used_again() -> None:
    cluster, roster = training(0, on_node_loss="restart")
    cluster.controller.on_srun_error("srun: error: Node failure on node2", cluster.nodes)
    assert not next_nodes(cluster, roster)
    assert roster.refusal == "2 of 3 nodes are left"


def test_the_trainer_may_end_before_it_starts_again() -> None:
    cluster, roster = training(on_node_loss="restart")
    kill(cluster, "node3")
    assert not cluster.wait(4)
    assert cluster.sent[-1] == {"type": "stop_before_restart", "seconds": 5}
    assert cluster.events("failure") == [
        {"nodes": ["node3"], "text": "node3: the raylet was killed", "seconds": 5}
    ]
    cluster.receive("node4", "gone")  # a spare node ends as asked
    assert not cluster.wait(1)
    cluster.exit(143)
    assert next_nodes(cluster, roster, 1) == "124"


def test_a_trainer_that_does_not_end_before_it_starts_again() -> None:
    cluster, roster = training(on_node_loss="restart")
    kill(cluster, "node3")
    assert next_nodes(cluster, roster, 12)


@pytest.mark.parametrize(("node", "nodes"), [("node2", "134"), ("node3", "124")])
def test_a_finding_before_ray_starts(node: str, nodes: str) -> None:
    cluster, roster = with_spares()
    find(cluster, node)
    assert next_nodes(cluster, roster, 20) == nodes
    assert (roster.failed, roster.restarts) == ([node], 0), "no trainer had started"


@pytest.mark.parametrize(
    ("reports", "nodes", "failed"),
    [
        # node that reports, worker of the connection
        ([("node3", "node3"), ("node1", "node3")], "124", "node3"),
        ([("node1", "node3")], "124", "node3"),
        ([("node3", "node3")], "124", "node3"),
        ([("node2", "node2"), ("node3", "node3")], "234", "node1"),
        ([("node1", "node2"), ("node1", "node3")], "234", "node1"),
    ],
)
def test_the_node_without_a_connection(reports: list[tuple[str, str]], nodes: str, failed: str) -> None:
    """One of two ends of a connection is set aside: the one without connections with the others."""
    cluster, roster = with_spares()
    cluster.check()
    for reporter, worker in reports:
        other = worker if reporter == "node1" else "the head node"
        cluster.report(reporter, **{**NO_WAY, "found": f"cannot reach {other}"}, worker=worker)
    assert next_nodes(cluster, roster, 20) == nodes
    assert roster.failed == [failed]


def test_connections_are_not_the_only_finding() -> None:
    """The head node is to blame for two connections, and node3 for its GPUs."""
    cluster, roster = with_spares(2)
    cluster.check()
    for node in ("node2", "node3"):
        cluster.report(node, **NO_WAY, worker=node)
    cluster.report("node3", check="GPUs in the container")
    assert cluster.wait(20)
    assert str(cluster.controller.state.failure).startswith("node2: connection: cannot reach the head node")
    text = "failed (65 preflight): node1: connection of node[2-3]: cannot reach the head node; open ports"
    assert next_nodes(cluster, roster, 1, text) == "245"


def test_the_only_worker_without_a_connection() -> None:
    """Either node may be the reason: another worker is tried."""
    cluster, roster = with_spares(1, nodes=2)
    cluster.check()
    cluster.report("node1", **{**NO_WAY, "found": "cannot reach node2"}, worker="node2")
    text = "failed (65 preflight): node2: connection: node1 cannot reach node2; open ports"
    assert next_nodes(cluster, roster, 20, text) == "13"


def test_half_of_the_workers_without_a_connection() -> None:
    cluster, roster = with_spares(2, nodes=5)
    cluster.check()
    for node in ("node2", "node3"):
        cluster.report(node, **NO_WAY, worker=node)
    assert next_nodes(cluster, roster, 20) == "14567"


def test_a_late_finding_about_a_connection() -> None:
    cluster, roster = with_spares(2)
    cluster.check()
    cluster.receive("node2", "failed", kind="bring_up", message="ray start exited with 1")
    cluster.controller.begin_end()
    cluster.report("node3", **NO_WAY, worker="node3")
    assert cluster.controller.nodes["node3"].has_finding
    assert restarts(cluster, roster)
    assert numbers(roster.nodes) == "145"


def test_the_head_node_has_other_versions() -> None:
    """Each worker names its own, and is unfit for this start."""
    cluster, roster = with_spares()
    cluster.check()
    for node in ("node2", "node3"):
        cluster.report(node, check="versions", found="Ray 2.60.0", fix="one image", worker=node)
        cluster.receive(node, "unfit")
    text = "failed (65 preflight): node1: versions of node[2-3]: Ray 2.60.0; one image"
    assert next_nodes(cluster, roster, 20, text) == "234"


def test_a_spare_node_that_fails_ends_nothing() -> None:
    cluster, _ = with_spares()
    cluster.receive_from_all("started", step="0")
    cluster.pass_checks(*cluster.nodes[:3])
    assert cluster.types() == [], "the spare node is still being checked"
    cluster.report("node4")
    assert not cluster.wait(2)
    assert cluster.types() == ["start_ray"]
    assert [event["node"] for event in cluster.events("set_aside")] == ["node4"]
    assert not cluster.controller.state.failure


def replacements(cluster: Cluster) -> list[str]:
    return ["{node} for {lost}".format(**event) for event in cluster.events("replacement")]


def test_a_spare_node_joins_the_running_ray() -> None:
    cluster, _ = training(3, on_node_loss="continue")
    kill(cluster, "node4", "the container process was killed")
    assert not cluster.wait(2)
    assert "replace" not in cluster.types()
    for lost, spare in (("node2", "node5"), ("node3", "node6"), ("node6", "")):
        cluster.sent.clear()
        kill(cluster, lost)
        assert not cluster.wait(2)
        message = {"type": "replace", "node": spare, "lost": lost, "address": "10.0.0.1:6379"}
        assert cluster.sent == ([message] if spare else [])
    assert replacements(cluster) == ["node5 for node2", "node6 for node3"]


def test_an_end_for_which_no_node_is_to_blame() -> None:
    cluster, roster = with_spares()
    cluster.check()
    cluster.controller.losses.on_step_over(cluster.nodes, cluster.now)
    assert cluster.outcome(1).kind == "bring_up"
    assert not restarts(cluster, roster)


def test_a_job_that_is_being_cancelled() -> None:
    cluster, roster = training(on_node_loss="restart")
    cluster.lost = {"node3"}
    cluster.wait(60)
    cluster.controller.requests.is_stopping = True
    assert not restarts(cluster, roster)


def test_another_head_node() -> None:
    cluster, roster = training(on_node_loss="restart")
    kill(cluster, "node1", "the container process was killed")
    assert next_nodes(cluster, roster) == "234"


def test_a_replacement_that_fails_is_replaced() -> None:
    """It has no usable address, or a finding about its GPUs."""
    cluster, _ = training(3, on_node_loss="continue")
    kill(cluster, "node2")
    cluster.receive("node4", "failed", kind="preflight", message="network.interface: no interface ib0")
    cluster.report("node5")
    cluster.receive("node5", "unfit")
    assert not cluster.wait(60)
    assert replacements(cluster) == ["node4 for node2", "node5 for node4", "node6 for node5"]


@pytest.mark.parametrize("kind", ["prepare", "service", "bring_up"])
def test_a_replacement_that_cannot_be_prepared_is_replaced(kind: str) -> None:
    """Once it is prepared, the end of its service ends the job like that of other nodes."""
    item = {"name": "data", "where": "all", "needs_ray": False}
    cluster, _ = training(2, on_node_loss="continue", prepare=[item], services=[item])
    cluster.sent.clear()
    kill(cluster, "node2")
    cluster.receive("node4", "stage_done", stage="services")
    cluster.receive("node4", "failed", kind=kind, message="data exited with 1", log="service-data@node4")
    assert not cluster.wait(2)
    assert replacements(cluster) == ["node4 for node2", "node5 for node4"]
    assert not cluster.wait(2)
    for stage in ("prepare", "services"):
        cluster.receive("node5", "stage_done", stage=stage)
    cluster.receive("node5", "prepared", name="data@node5")
    assert cluster.types() == ["replace", "replace"]
    assert cluster.done == ["data@node5"]
    cluster.receive("node5", "failed", kind="service", message="data exited with 1", log="")
    assert cluster.wait(2)
    assert cluster.outcome(1).kind == "service"


@pytest.mark.parametrize(("spares", "nodes"), [(1, "134"), (0, "")])
def test_a_node_without_one_of_its_gpus_is_not_used_again(spares: int, nodes: str) -> None:
    cluster, roster = training(spares, on_node_loss="restart")
    cluster.exit(1, *cluster.nodes)
    cluster.receive("node2", "gpus", lost=LOST_GPU)
    assert next_nodes(cluster, roster) == nodes
    assert roster.failed == ["node2"]


@pytest.mark.parametrize(("node", "nodes"), [("node2", "134"), ("node4", "123")])
def test_slurm_cannot_start_a_task(node: str, nodes: str) -> None:
    """srun ends the step, also if the node is a spare one."""
    cluster, roster = with_spares(1)
    line = f"srun: error: Task launch for StepId=9.0 failed on node {node}: Communication connection failure"
    cluster.controller.on_srun_error(line, cluster.nodes)
    assert next_nodes(cluster, roster) == nodes
    assert describe(cluster, roster).startswith(f"start again: {node}: Slurm could not start its task")


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ("node3: task 2: Killed", ["node1", "node2", "node4"]),
        ("node[2-3]: tasks 1-2: Segmentation fault (core dumped)", ["node1", "node4", "node5"]),
        ("node[2,5]: tasks 1,4: Out Of Memory", ["node1", "node3", "node4"]),
    ],
)
def test_tasks_that_are_killed_before_they_begin(line: str, nodes: list[str]) -> None:
    """They have sent no heartbeat that could stop to come."""
    cluster, roster = with_spares(2)
    cluster.nodes, all_nodes = nodes, cluster.nodes
    cluster.receive_from_all("started", step="0")
    cluster.controller.on_srun_error("srun: error: " + line, all_nodes)
    assert next_nodes(cluster, roster, 10) == numbers(nodes)
    assert roster.restarts == 0
    assert "killed before the node agent could begin" in cluster.outcome(0).text


@pytest.mark.parametrize(
    "line",
    [
        "node2: task 1: Exited with exit code 1",
        "node1: task 0: Killed",
        "node9: task 9-99: Killed",
        "x: task -: y",
    ],
)
def test_lines_of_srun_that_change_nothing(line: str) -> None:
    """A task that exits has sent its reason; the heartbeats of one that has begun tell."""
    cluster, _ = with_spares()
    cluster.receive("node1", "started", step="0")
    cluster.controller.on_srun_error("srun: error: " + line, cluster.nodes)
    assert not cluster.wait(20)


def test_slurm_kills_the_tasks_before_the_batch_script() -> None:
    cluster, _ = with_spares()
    cluster.receive("node1", "started", step="0")
    cluster.controller.on_srun_error("srun: error: node[2-4]: tasks 1-3: Killed", cluster.nodes)
    assert not cluster.wait(2)
    cluster.controller.requests.is_stopping = True
    cluster.receive("node1", "gone")
    assert cluster.wait(5)
    assert cluster.outcome(0).source == "slurm"


def test_a_command_that_fails_on_all_nodes_is_no_reason_to_try_fewer() -> None:
    cluster, roster = with_spares(0, on_node_loss="restart", fewer_nodes={"1": {}, "2": {}})
    cluster.receive_from_all("started", step="0")
    cluster.receive_from_all("failed", kind="preflight", message="setup exited with 1")
    assert not next_nodes(cluster, roster)
    assert roster.bad == cluster.nodes


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_a_container_gets_sigterm(node: str) -> None:
    cluster, roster = training(0, on_node_loss="restart")
    cluster.receive(node, "signalled")
    if node == "node2":
        cluster.receive("node2", "gone")
    cluster.exit(143)
    assert next_nodes(cluster, roster, 20)
    assert describe(cluster, roster).startswith(f"restart 1 of 3: {node}: container ")


def test_a_node_whose_container_ended_is_there_when_the_trainer_asks_for_a_restart() -> None:
    cluster, roster = training(
        0, on_node_loss="continue", restart={"max": 2, "exit_codes": [85], "window": 600}
    )
    kill(cluster, "node2", "the container process was killed")
    cluster.receive("node2", "gone")
    assert not cluster.wait(5)
    cluster.exit(85, *cluster.nodes)
    assert next_nodes(cluster, roster, 1) == "132"


@pytest.mark.parametrize("moment", ["before", "while ending"])
def test_a_raylet_ended_because_the_host_did(moment: str) -> None:
    """Slurm marks the node down only then."""
    cluster, roster = training(0, on_node_loss="restart", fewer_nodes={"2": {}})
    kill(cluster, "node2")
    if moment == "while ending":
        assert cluster.wait(20)
        cluster.controller.begin_end()
    cluster.controller.on_srun_error("srun: error: Node failure on node2", cluster.nodes)
    assert next_nodes(cluster, roster) == "13"


def test_the_batch_host_is_cut_off_after_it_was_set_aside() -> None:
    job = {"batch_host": "node1"}
    cluster = Cluster(nodes=2, head="node2", spares=1, job=job, on_node_loss="continue").train()
    cluster.lost, cluster.answering = set(cluster.nodes), set()
    assert cluster.end(60).text.startswith("failed (71 node lost): node1: no heartbeat from any other node")


def test_a_node_that_fails_after_the_trainer_s_success() -> None:
    cluster, roster = training(on_node_loss="restart")
    cluster.exit(0)
    cluster.receive("node3", "failed", kind="ray", message="ray start exited with 1")
    assert cluster.end(1).text == "done: trainer exited with 0"
    assert not restarts(cluster, roster)


LIMITS = {"max": 9, "window": 600, "exit_codes": [85], "grace": 5}
KILLED = "the container process was killed (exit code 137, SIGKILL)"
STOPPED = "the container process does not answer for 25 s. Has somebody stopped it?"
LOST_GPU = "lost GPU-3f1a: nvidia-smi: no longer lists it"


def lose(roster: Roster, node: str, kind: str, text: str, now: float) -> bool:
    """Whether there is another start after the failure of a node while the trainer ran."""
    cluster = Cluster(nodes=3, on_node_loss="restart", restart=LIMITS).train()
    cluster.controller._fail(Failure([node], kind, text))
    return roster.restart(cluster.controller, cluster.end(20), now)


@pytest.mark.parametrize(
    ("kind", "first", "second", "is_same"),
    [
        ("ray", "ray start exited with 1. The node's log has", "ray start exited with 137. The log", True),
        ("ray", KILLED, KILLED, True),
        ("ray", STOPPED, KILLED, False),
        ("ray", "no way to node1, node2", "no way to node3", True),
    ],
)
@pytest.mark.parametrize("other", ["node2", "node3"])
def test_the_same_on_another_node(kind: str, first: str, second: str, is_same: bool, other: str) -> None:
    """restart.window is about what has happened, not about the place or the numbers in it."""
    _, roster = with_spares(3, on_node_loss="restart", restart=LIMITS)
    assert lose(roster, "node2", kind, first, 1000)
    assert lose(roster, other, kind, second, 1500) != is_same
    text = "the same has happened 500 s after the last restart; restart.window is 600 s"
    assert roster.refusal == (text if is_same else "")


@pytest.mark.parametrize("text", [LOST_GPU, "no heartbeat for 25 s. Has it lost power or its network?"])
def test_the_loss_of_another_host_is_not_the_same(text: str) -> None:
    _, roster = with_spares(3, on_node_loss="restart", restart=LIMITS)
    assert lose(roster, "node2", "node_lost", text, 1000)
    assert lose(roster, "node3", "node_lost", text, 1010)
    assert not lose(roster, "node3", "node_lost", text, 1020)


def test_the_same_text_of_another_kind() -> None:
    _, roster = with_spares(3, on_node_loss="restart", restart=LIMITS)
    assert lose(roster, "node2", "ray", "gone", 1000)
    assert lose(roster, "node3", "node_lost", "gone", 1010)


def test_a_stall_of_nodes_with_other_names() -> None:
    """Names without a number, too."""
    watch = {"interval": 30, "stall": 600, "action": "restart", "progress": ""}
    roster = None
    for nodes, follows in (("alpha", True), ("node2, node3", False)):
        cluster = Cluster(nodes=3, head="alpha", restart=LIMITS, watch=watch).train()
        cluster.controller._fail(Failure([], "stalled", f"no output for 10 min; GPUs of {nodes}: idle"))
        assert cluster.wait(20)
        roster = roster or Roster(cluster.controller.settings, cluster.controller.job)
        assert restarts(cluster, roster) == follows


def fail_to_start(roster: Roster, now: float, *lines: str, count: int = 0) -> bool:
    """Whether another start follows one of which Slurm has started `count` tasks, on the first nodes."""
    cluster = Cluster(nodes=3, on_node_loss="restart", restart=LIMITS)
    for node in cluster.nodes[:count]:
        cluster.receive(node, "started", step="0")
    for line in lines:
        cluster.controller.on_srun_error(line, cluster.nodes)
    cluster.controller.losses.on_step_over(cluster.nodes, 0)
    return roster.restart(cluster.controller, cluster.outcome(1), now)


def test_srun_cannot_start_the_step_of_a_restart() -> None:
    """Slurmctld is gone again, or calls the nodes busy. It counts as a restart, and happens once."""
    _, roster = with_spares(0, on_node_loss="restart", restart=LIMITS)
    assert lose(roster, "node2", "ray", KILLED, 1000)
    before = roster.nodes
    assert fail_to_start(roster, 1010)
    assert (roster.nodes, roster.restarts, roster.failed) == (before, 2, [])
    cluster = Cluster(nodes=3)
    text = roster.describe(cluster.controller, cluster.outcome(1), before)
    expected = "restart 2 of 9: the step ended unexpectedly; srun exited with 1; on the same nodes"
    assert text == expected
    assert not fail_to_start(roster, 1020)
    assert roster.refusal.startswith("the same has happened 10 s after")
    assert roster.bad == ["node2"]


def test_srun_cannot_start_the_step_of_the_last_restart() -> None:
    _, roster = with_spares(0, on_node_loss="restart", restart={**LIMITS, "max": 1})
    assert lose(roster, "node2", "ray", KILLED, 1000)
    assert not fail_to_start(roster, 1010)
    assert roster.refusal == "restart.max is 1"


def test_srun_cannot_start_the_first_step() -> None:
    """It may be a mistake in the job spec."""
    _, roster = with_spares(1, on_node_loss="restart", restart=LIMITS)
    assert not fail_to_start(roster, 0)
    assert not fail_to_start(roster, 10)


def test_tasks_that_end_before_they_are_checked_are_no_failure_of_srun() -> None:
    _, roster = with_spares(0, on_node_loss="restart", restart=LIMITS)
    assert lose(roster, "node2", "ray", KILLED, 1000)
    assert not fail_to_start(roster, 1010, count=1)


def test_srun_cannot_start_a_task_of_a_restart_on_a_node() -> None:
    """It names the node, and another one takes its place, without counting."""
    _, roster = with_spares(1, on_node_loss="restart", restart=LIMITS)
    assert lose(roster, "node2", "ray", KILLED, 1000)
    assert numbers(roster.nodes) == "134"
    line = "srun: error: Task launch for StepId=9.1 failed on node node3: Communication connection failure"
    assert fail_to_start(roster, 1010, line)
    assert (roster.nodes, roster.restarts) == (["node1", "node4", "node2"], 1)


def test_srun_cannot_start_the_step_of_a_group() -> None:
    """In a heterogeneous job each group has an srun. None of its nodes is to blame."""
    groups = [group(1, 0, "cpu"), group(2, 0, "gpu")]
    _, roster = with_spares(0, groups=groups, on_node_loss="restart", restart=LIMITS)
    assert lose(roster, "node2", "ray", KILLED, 1000)
    cluster = Cluster(nodes=3, groups=groups, on_node_loss="restart", restart=LIMITS)
    cluster.receive("node1", "started", step="0")
    cluster.pass_checks("node1")
    cluster.controller.losses.on_step_over(["node2", "node3"], cluster.now)
    assert cluster.wait(20)
    assert restarts(cluster, roster, 1010)
    assert (sorted(roster.nodes), roster.restarts) == (["node1", "node2", "node3"], 2)
    assert roster.bad == ["node2"]


def two_losses(*losses: tuple[str, str], **settings: Any) -> tuple[Cluster, Roster]:
    """A trainer that runs until the losses of nodes, which come at once."""
    cluster, roster = training(2, on_node_loss="restart", restart={**LIMITS, "grace": 30}, **settings)
    for node, message in losses:
        kill(cluster, node, message)
    cluster.controller.tick(cluster.now)
    return cluster, roster


def failures(cluster: Cluster) -> list[tuple[list[str], int]]:
    return [(event["nodes"], event["seconds"]) for event in cluster.events("failure")]


@pytest.mark.parametrize("seconds", [0, 10])
def test_a_second_loss_while_the_trainer_ends(seconds: int) -> None:
    cluster, roster = two_losses(("node2", KILLED))
    assert not cluster.wait(seconds)
    cluster.receive("node2", "failed", kind="ray", message="its Ray, too")
    kill(cluster, "node3", STOPPED)
    cluster.controller.tick(cluster.now)
    assert failures(cluster) == [(["node2"], 30), (["node3"], 30 - seconds)]
    assert f"node3: {STOPPED}; the trainer has {30 - seconds} s to end" in cluster.log.lines
    assert not [line for line in cluster.log.lines if "its Ray, too" in line]
    cluster.exit(1)
    assert next_nodes(cluster, roster, 5) == "145"
    assert (roster.failed, roster.bad) == (["node2", "node3"], ["node2", "node3"])


def test_two_losses_at_once() -> None:
    cluster, roster = two_losses(("node2", KILLED), ("node3", KILLED))
    assert failures(cluster) == [(["node2"], 30), (["node3"], 30)]
    assert next_nodes(cluster, roster) == "145"


def test_many_losses_with_one_reason_are_one_line() -> None:
    cluster = Cluster(nodes=9, spares=0, on_node_loss="restart", restart={**LIMITS, "grace": 30}).train()
    for node in cluster.nodes[1:]:
        kill(cluster, node, KILLED)
    kill(cluster, "node9", STOPPED)
    cluster.controller.tick(cluster.now)
    assert failures(cluster) == [(["node2"], 30), (cluster.nodes[2:], 30)]
    roster = Roster(cluster.controller.settings, cluster.controller.job)
    assert sorted(next_nodes(cluster, roster)) == [*"123456789"], "only their processes have ended"


def test_the_head_node_is_lost_while_the_trainer_ends() -> None:
    """Nothing is left to wait for."""
    cluster, roster = two_losses(("node2", KILLED))
    kill(cluster, "node1", KILLED)
    assert next_nodes(cluster, roster, 1) == "345"
    assert f"node1: {KILLED}" in cluster.log.lines


def test_a_second_loss_after_scancel() -> None:
    cluster, roster = two_losses(("node2", KILLED))
    cluster.controller.requests.is_stopping = True
    kill(cluster, "node3", KILLED)
    assert not cluster.wait(1)
    assert f"node3: {KILLED}" in cluster.log.lines
    assert len(failures(cluster)) == 1
    assert not restarts(cluster, roster)


def test_srun_loses_a_second_node_while_the_trainer_ends() -> None:
    cluster, roster = two_losses(("node2", KILLED))
    line = "srun: error: Aborting, io error and missing step on node 2"
    cluster.controller.on_srun_error(line, cluster.nodes)
    cluster.controller.tick(cluster.now)
    text = "its host closed the connection to srun. Has it rebooted?"
    assert f"node3: {text}; the trainer has 30 s to end" in cluster.log.lines
    cluster.controller.losses.on_step_over(cluster.nodes, cluster.now)
    assert next_nodes(cluster, roster, 1) == "145"


def test_srun_ends_all_tasks_because_of_one_node() -> None:
    """The others, and the spare ones, are not to blame."""
    cluster, roster = training(2, on_node_loss="restart")
    line = "srun: error: Aborting, io error and missing step on node 1"
    cluster.controller.on_srun_error(line, cluster.nodes)
    for node in ("node1", "node3", "node5"):
        cluster.receive(node, "tether_lost")
    cluster.controller.losses.on_step_over(cluster.nodes, cluster.now)
    assert next_nodes(cluster, roster, 60) == "134"
    assert roster.failed == ["node2"]
    assert cluster.events("set_aside") == []


def test_two_nodes_without_one_of_their_gpus() -> None:
    cluster, roster = training(2, on_node_loss="restart")
    cluster.exit(1, *cluster.nodes)
    for node in ("node2", "node3"):
        cluster.receive(node, "gpus", lost=LOST_GPU)
    assert next_nodes(cluster, roster, 1) == "145"
    assert f"node3: {LOST_GPU}" in cluster.log.lines


def test_a_second_loss_where_the_first_one_ends_the_job() -> None:
    cluster = Cluster(nodes=3).train()
    for node in ("node2", "node3"):
        kill(cluster, node, KILLED)
    assert cluster.wait(1)
    assert f"node3: {KILLED}" in cluster.log.lines
    assert cluster.end().text.startswith(f"failed (71 node lost): node2: {KILLED}")


def test_a_node_is_lost_while_others_still_check() -> None:
    """After a finding of another one."""
    cluster, roster = with_spares(2)
    cluster.receive_from_all("started", step="0")
    cluster.report("node2")
    cluster.controller.on_srun_error("srun: error: Node failure on node3", cluster.nodes)
    assert not cluster.wait(1)
    assert "node3: Slurm has marked it down. Has it lost power or its network?" in cluster.log.lines
    assert next_nodes(cluster, roster) == "145"
