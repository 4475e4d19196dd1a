"""Which nodes of the allocation take part in the next start of Ray and trainer, and which ones are set aside.

Without I/O. docs/guides/requeue.md describes it to users.
"""

import re

from .. import nodes
from .host_list import and_names
from .outcome import failure_of
from .protocol import STARTED, WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    from ..wire.settings import Job, Settings
    from .decisions import Controller
    from .outcome import Outcome
    from .state import Node

# Kinds of failures before the trainer has started that another node may not have.
OF_NODES = ("preflight", "image", "bring_up", "probe", "node_lost")
TOO_FEW = "too few spare nodes are left"  # the end of the last line of a job


class Roster:
    """The nodes of an allocation, over all starts in it. job: of the first start."""

    def __init__(self, settings: "Settings", job: "Job") -> None:
        self._settings = settings
        self._wanted = [group["nodes"] for group in settings["groups"]]  # of each group
        # Less than that is possible only without groups.
        self._possible = [self._wanted, *([int(number)] for number in settings.get("fewer_nodes", {}))]
        healthy = [*job["nodes"], *job["spares"]]
        counts = job["spares_of_groups"]
        self._group_of = {
            node: nodes.group_number(settings, rank, counts) for rank, node in enumerate(healthy)
        }
        self._choose(healthy, self._wanted)
        self.allocated = len(healthy)  # nodes
        self._last: "Tuple[Tuple[str, str], float]" = (("", ""), 0.0)  # see _find_cause; and when that was
        self._has_begun = False  # Slurm has started a task in this allocation
        self._is_restart = False  # the next start counts as a restart
        self._without_process: "List[str]" = []  # hosts that are up: better than none
        self.bad: "List[str]" = []  # nodes that were lost or failed, over all starts
        self.failed: "List[str]" = []  # nodes to blame for the end of the last start
        self.restarts = 0  # of a trainer that had started
        self.refusal = ""  # why a start that the job spec asks for is impossible

    def restart(self, controller: "Controller", outcome: "Outcome", now: float) -> bool:
        """Whether Ray and trainer are started again, on what `nodes` and `spares` have from now on.

        The outcome names it where spare nodes are all that is missing. now: seconds for which the job has run
        at the end of the start before.
        """
        state, limits, cause = controller.state, self._settings["restart"], _find_cause(controller, outcome)
        blamed, unhealthy = _list_unhealthy(controller)
        # slurmctld has ended again, or calls the nodes busy. The start before shows that it is no mistake.
        is_by_srun = self._has_begun and _has_srun_failed(controller, blamed)
        self._has_begun = self._has_begun or bool(state.count(STARTED))
        blamed = [] if is_by_srun else blamed
        failed = dict.fromkeys([*blamed, *unhealthy])
        self.bad += [node for node in failed if node not in self.bad]
        left_out = [node.name for node in controller.nodes.values() if node.is_left_out]
        is_by_trainer = outcome.source == "trainer"
        self.failed = [] if is_by_trainer else [node for node in failed if node not in left_out]
        if controller.requests.is_end_requested or not (is_by_srun or self._is_wanted(controller, outcome)):
            return False
        healthy = [node for node in self._healthy if node not in blamed and node not in unhealthy]
        self._is_restart = is_restart = state.has_trained or is_by_srun
        if not is_restart and len(healthy) == len(self._healthy):
            return False  # no other node can help
        self._without_process += _list_without_process(controller)
        if self._find_lack(healthy, self._wanted):
            healthy += [node for node in self._without_process if node not in healthy]
        sizes = [sizes for sizes in self._possible if not self._find_lack(healthy, sizes)]
        last, then = self._last
        if not sizes:
            self.refusal = self._find_lack(healthy, self._wanted)
            outcome.text += "; " + TOO_FEW
        elif is_restart and self.restarts == limits["max"]:
            self.refusal = "restart.max is %d" % limits["max"]
        elif is_restart and cause == last and now - then < limits["window"]:
            times = now - then, limits["window"]
            self.refusal = "the same has happened %d s after the last restart; restart.window is %d s" % times
        else:
            self._choose(healthy, max(sizes))
            self._without_process = [node for node in self._without_process if node not in healthy]
            if is_restart:
                self.restarts += 1
                self._last = (cause, now)
            return True
        return False

    def _is_wanted(self, controller: "Controller", outcome: "Outcome") -> bool:
        """Whether the job spec asks for another start after this end."""
        if not controller.state.has_trained:
            has_others = self.allocated > sum(self._wanted) or len(self._possible) > 1
            return has_others and outcome.kind in OF_NODES
        if outcome.source == "trainer":
            return outcome.code in self._settings["restart"]["exit_codes"]
        if outcome.kind == "stalled":
            return self._settings["watch"]["action"] == "restart"
        is_lost = outcome.kind == "node_lost" and failure_of(controller.state) is not None
        return is_lost and self._settings["on_node_loss"] == "restart"

    def _choose(self, healthy: "List[str]", sizes: "List[int]") -> None:
        """Set the nodes of the next start. sizes: how many of each group."""
        self._healthy = healthy
        groups = list(zip(self._split(healthy), sizes))
        self.nodes = [node for members, size in groups for node in members[:size]]  # the head node first
        self.spares = [node for members, size in groups for node in members[size:]]  # wait for one to fail
        self.spares_of_groups = [len(members) - size for members, size in groups]

    def _split(self, healthy: "List[str]") -> "List[List[str]]":
        """The nodes of each group."""
        numbers = range(len(self._wanted))
        return [[node for node in healthy if self._group_of[node] == number] for number in numbers]

    def _find_lack(self, healthy: "List[str]", sizes: "List[int]") -> str:
        """What is missing for a start, in words; "" if nothing is. sizes: its nodes of each group."""
        for group, members, size in zip(self._settings["groups"], self._split(healthy), sizes):
            if len(members) < size:
                place = " in group " + group["name"] if group["name"] else ""
                return "%d of %d nodes are left%s" % (len(members), size, place)
        return ""

    def describe(self, controller: "Controller", outcome: "Outcome", before: "List[str]") -> str:
        """Why there is another start, and on which nodes. before: the nodes of the one that failed."""
        gone = [node for node in before if node not in self.nodes]
        new = [node for node in self.nodes if node not in before]
        where = "on the same nodes"
        if len(self.nodes) != len(before):
            parts = [word + and_names(names) for word, names in (("without ", gone), ("with ", new)) if names]
            where = "on %d of %d nodes, %s" % (len(self.nodes), sum(self._wanted), ", ".join(parts))
        elif new:
            verb = "takes" if len(new) == 1 else "take"
            where = "%s %s the place of %s" % (and_names(new), verb, and_names(gone))
        counts = self.restarts, self._settings["restart"]["max"]
        label = "restart %d of %d" % counts if self._is_restart else "start again"
        own = outcome.text.rpartition(": ")[2]  # no node is to blame
        reason = failure_of(controller.state) or ("the " + own if outcome.source == "trainer" else own)
        return "%s: %s; %s" % (label, reason, where)


def _has_srun_failed(controller: "Controller", blamed: "List[str]") -> bool:
    """Whether an srun has ended before any task of its nodes. blamed: as of _list_unhealthy."""
    failure = failure_of(controller.state)
    has_started = any(controller.nodes[node].progress != WAITING for node in blamed or controller.nodes)
    return not has_started and (not failure or failure.kind == "ray")


def _find_cause(controller: "Controller", outcome: "Outcome") -> "Tuple[str, str]":
    """Kind and description of what has ended a start: the same for other nodes, numbers and ids.

    But the loss of one host says nothing about the next one.
    """
    failure = failure_of(controller.state)
    if not failure:
        return outcome.kind, outcome.text
    if failure.kind == "node_lost":
        return failure.kind, " ".join(failure.nodes)
    words = re.split(r"[\s,:;]+", failure.text.partition(". ")[0])  # then comes what to do about it
    named = [word for word in words if not (word in controller.nodes or re.search("[0-9]", word))]
    return failure.kind, " ".join(named)


def _list_unhealthy(controller: "Controller") -> "Tuple[List[str], List[str]]":
    """The nodes that the failure of this start blames, and those that cannot take part again."""
    failure = failure_of(controller.state)
    late = [node for node, _ in controller.gate.not_ready]
    blamed = late or controller.state.blamed or (failure.nodes if failure else [])
    unhealthy = [node.name for node in controller.nodes.values() if node.is_left_out or not _is_up(node)]
    return blamed, unhealthy


def _list_without_process(controller: "Controller") -> "List[str]":
    """The nodes on which only container or Ray ended while the trainer ran."""
    failures, nodes = [failure_of(controller.state), *controller.state.later], controller.nodes
    if not controller.state.has_trained:
        return []
    ended = [node for failure in failures if failure and failure.kind == "ray" for node in failure.nodes]
    left_out = [node.name for node in nodes.values() if node.is_left_out]
    return [name for name in dict.fromkeys([*ended, *left_out]) if _is_up(nodes[name])]


def _is_up(node: "Node") -> bool:
    """Whether nothing is known against the host of a node."""
    return not (node.is_lost or node.has_finding)
