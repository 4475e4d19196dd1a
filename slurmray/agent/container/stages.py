"""The order of the stages before the trainer: burn-in, prepare steps, services, and what of these needs Ray.

All nodes have the same stages. A node sends `stage_done` when it is done with one; when all nodes have done
so, the controller sends `stage_done` to all. A stage begins when all nodes are done with those before it.
A spare node that takes the place of a lost one does not wait for the others: see joining.py.
"""

import os
import signal
import time

from .. import heartbeat
from ..job_errors import Finished
from .part import Part
from .prepare import PrepareStage
from .services import Services

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Set, Tuple

    from .node_context import NodeContext
    from .stage import Stage

BURN_IN, PREPARE, SERVICES = "burn-in", "prepare", "services"
PREPARE_WITH_RAY, SERVICES_WITH_RAY = "prepare-with-ray", "services-with-ray"
# Stages that come before one, if not only BURN_IN and PREPARE do.
BEFORE: "Dict[str, Tuple[str, ...]]" = {
    BURN_IN: (),
    PREPARE: (BURN_IN,),
    SERVICES_WITH_RAY: (BURN_IN, PREPARE, PREPARE_WITH_RAY),
}
STOP_EACH = 1.0  # seconds between SIGTERM to one service and to the next
STOP_ALL = 2.0  # seconds for all services; the grace period leaves time for them


class Stages(Part):
    """The stages on this node. Stages without work on any node are left out.

    on_done: called when all nodes are done with one.
    """

    def __init__(self, context: "NodeContext", on_done: "Callable[[], None]") -> None:
        self.context = context
        self._on_done = on_done
        settings = context.settings
        self.services = Services(context, SERVICES, needs_ray=False)
        self._late_services = Services(context, SERVICES_WITH_RAY, needs_ray=True)
        self.work: "Dict[str, Stage]" = {}
        early = [item for item in settings["prepare"] if not item["needs_ray"]]
        late = [item for item in settings["prepare"] if item["needs_ray"]]
        if settings["checks"]["burn_in"] and not context.is_replacement:
            from .burn_in_stage import BurnInStage

            self.work[BURN_IN] = BurnInStage(context, BURN_IN)
        if early:
            self.work[PREPARE] = PrepareStage(context, PREPARE, context.own_items(early))
        if any(not item["needs_ray"] for item in settings["services"]):
            self.work[SERVICES] = self.services
        if late:
            self.work[PREPARE_WITH_RAY] = PrepareStage(context, PREPARE_WITH_RAY, context.own_items(late))
        if any(item["needs_ray"] for item in settings["services"]):
            self.work[SERVICES_WITH_RAY] = self._late_services
        self._begun: "List[str]" = []
        self._done: "Set[str]" = set()  # by all nodes
        self.roles = tuple(kind for stage in self.work.values() for kind in stage.kinds)
        self._heartbeat = heartbeat.Timer()

    def handlers(self) -> "Dict[str, Callable[[Any], None]]":
        """By type of message."""
        return {
            "stage_done": lambda message: self.on_stage_done(message["stage"]),
            "service_ended": lambda message: self.services.on_service_ended(message["name"], message["code"]),
        }

    def begin(self) -> None:
        """Begin all stages that may begin now, unless the job is being ended."""
        if self.context.deadline is not None:
            return
        for stage in self.work:
            if stage not in self._begun and self._may_begin(stage):
                self._begun.append(stage)
                self.work[stage].begin()

    def _may_begin(self, stage: str) -> bool:
        before = BEFORE.get(stage, (BURN_IN, PREPARE))
        needs_ray = stage in (BURN_IN, PREPARE_WITH_RAY, SERVICES_WITH_RAY)
        return all(map(self._is_done, before)) and (self.context.is_ready or not needs_ray)

    def _is_done(self, stage: str) -> bool:
        return stage not in self.work or stage in self._done

    def may_train(self) -> bool:
        return self.context.deadline is None and all(self._is_done(stage) for stage in self.work)

    def is_preparing(self) -> bool:
        """Whether a prepare step may run on some node."""
        stages = (PREPARE, PREPARE_WITH_RAY)
        return any(stage in self._begun and not self._is_done(stage) for stage in stages)

    def on_stage_done(self, stage: str) -> None:
        """Handle that all nodes are done with a stage. Raises Finished if the job is being ended."""
        self._done.add(stage)
        if stage in self.work:
            self.work[stage].end()
        if self.context.deadline is not None and not self.is_preparing():
            raise Finished
        self.begin()
        self._on_done()

    def count_own_as_all(self) -> None:
        """Go on with the next stages: those that are done on this node count as done by all."""
        while True:  # a stage without work on this node is done at once
            new = {stage for stage in self._begun if self.work[stage].is_done_here} - self._done
            if not new:
                return
            self._done |= new
            self.begin()

    def may_join_ray(self) -> bool:
        """Whether the stages that do not need Ray are done."""
        return self._is_done(PREPARE) and self._is_done(SERVICES)

    @property
    def doing(self) -> str:
        """The stage in progress on this node; "" for none."""
        return next((stage for stage in self._begun if not self.work[stage].is_done_here), "")

    @property
    def is_busy(self) -> bool:
        return bool(self.doing)

    def tick(self) -> None:
        """Send heartbeats with the stage in progress. Called in each turn of the loop.

        They extend the controller's timeout for a ready cluster.
        """
        stage = self.doing
        if stage:
            self.work[stage].tick()
        if stage and self._heartbeat.is_due(time.monotonic()):
            self.context.send({"type": "heartbeat", "doing": stage})

    def end(self) -> None:
        """Stop services in reverse order with SIGTERM, STOP_EACH apart, in at most STOP_ALL."""
        children = self.context.children
        children.on_end = lambda _role, _code: None
        end = time.monotonic() + STOP_ALL
        for role in [*self._late_services.roles(), *self.services.roles()]:
            due = min(end, time.monotonic() + STOP_EACH)
            children.send_signal(role, "TERM")
            while children.find_pid(role) is not None and time.monotonic() < due:
                time.sleep(0.05)
                children.reap()

    def send_signal(self, name: str) -> bool:
        """Send a signal to the prepare steps on this node. Return False if none runs on any node."""
        for pid, role in self.context.children.roles.items():
            if role.partition(" ")[0] in (PREPARE, PREPARE_WITH_RAY):
                os.killpg(pid, getattr(signal, "SIG" + name))
        return self.is_preparing()

    def child_ended(self, role: str, code: int) -> None:
        """Handle the end of a child process of a stage. role: `KIND NAME`."""
        kind, _, name = role.partition(" ")
        stage = next(stage for stage in self.work.values() if kind in stage.kinds)
        stage.child_ended(kind, name, code)
