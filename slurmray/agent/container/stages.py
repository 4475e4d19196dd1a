"""Stages before the trainer: prepare steps, services, and prepare steps that need Ray.

All nodes have the same stages. A node sends `stage_done` when it is done with one; when all nodes have done
so, the controller sends `stage_done` to all. A stage begins when all nodes are done with those before it.
"""

import os
import signal
import sys
import time

from ..errors import JobError
from . import environment, services
from .head import Finished

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Set, Union

    from .node_context import NodeContext
    from .ray.start import RayProcess

    Item = Dict[str, Any]  # of prepare or services in the job spec, `run` as argv

PREPARE, SERVICES, PREPARE_WITH_RAY = "prepare", "services", "prepare-with-ray"
HEARTBEAT_INTERVAL = 5.0  # seconds; these heartbeats extend the controller's timeout for a ready cluster


class Stages:
    """The stages on this node. Stages without work on any node are left out."""

    def __init__(self, context: "NodeContext", ray: "RayProcess") -> None:
        self.context = context
        self.ray = ray
        settings = context.settings
        self._all_services: "List[Item]" = settings["services"]
        self.services = services.Services(self, [each for each in self._all_services if self._is_mine(each)])
        self.work: "Dict[str, Union[PrepareStage, services.Services]]" = {}
        early = [each for each in settings["prepare"] if not each["needs_ray"]]
        late = [each for each in settings["prepare"] if each["needs_ray"]]
        if early:
            self.work[PREPARE] = PrepareStage(self, PREPARE, [each for each in early if self._is_mine(each)])
        if self._all_services:
            self.work[SERVICES] = self.services
        if late:
            mine = [each for each in late if self._is_mine(each)]
            self.work[PREPARE_WITH_RAY] = PrepareStage(self, PREPARE_WITH_RAY, mine)
        self._begun: "List[str]" = []
        self._done_here: "Set[str]" = set()
        self._done: "Set[str]" = set()  # by all nodes
        self._heartbeat_due = 0.0

    def _is_mine(self, item: "Item") -> bool:
        return bool(item["where"] == "all" or self.context.is_head)

    # -- order -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin all stages that may begin now, unless the job is being ended."""
        if self.context.deadline is not None:
            return
        for stage in self.work:
            if stage not in self._begun and self._may_begin(stage):
                self._begun.append(stage)
                self.work[stage].begin()

    def _may_begin(self, stage: str) -> bool:
        if stage == PREPARE:
            return True
        return self._is_done(PREPARE) and (stage == SERVICES or self.context.is_ready)

    def _is_done(self, stage: str) -> bool:
        return stage not in self.work or stage in self._done

    def are_done(self) -> bool:
        """Whether the trainer may start."""
        return self.context.deadline is None and all(self._is_done(stage) for stage in self.work)

    def is_preparing(self) -> bool:
        """Whether a prepare step may run on some node."""
        stages = (PREPARE, PREPARE_WITH_RAY)
        return any(stage in self._begun and not self._is_done(stage) for stage in stages)

    def report_done(self, stage: str) -> None:
        """Send that this node is done with a stage."""
        self._done_here.add(stage)
        self.context.send("stage_done", stage=stage)

    def on_stage_done(self, stage: str) -> None:
        """Handle that all nodes are done with a stage. Raises Finished if the job is being ended."""
        self._done.add(stage)
        if self.context.deadline is not None and not self.is_preparing():
            raise Finished
        self.begin()

    @property
    def doing(self) -> str:
        """The stage in progress on this node; "" for none."""
        return next((stage for stage in self._begun if stage not in self._done_here), "")

    def tick(self) -> None:
        """Send heartbeats with the stage in progress. Called in each turn of the loop."""
        stage, now = self.doing, time.monotonic()
        if stage and now >= self._heartbeat_due:
            self._heartbeat_due = now + HEARTBEAT_INTERVAL
            self.context.send("heartbeat", doing=stage)

    # -- processes ---------------------------------------------------------------------------------------

    def environment(self) -> "Dict[str, str]":
        """Environment of prepare steps and services: Ray's environment and facts()."""
        return dict(self.ray.env, **self.facts())

    def facts(self) -> "Dict[str, str]":
        """Variables about the job and this node; with RAY_ADDRESS once the cluster is ready."""
        return self.context.facts(self.ray.gcs_address if self.context.is_ready else "")

    def gpu_mask(self) -> "Dict[str, str]":
        """The variable that hides the services' GPUs from Ray and the trainer; {} if they have none."""
        if not any(item["gpus"] for item in self._all_services):
            return {}
        return environment.visible_gpus(0, self.context.settings["ray"]["gpus"])

    def spawn(self, role: str, argv: "List[str]", env: "Mapping[str, str]") -> None:
        """Start a child of a stage and write its command to the node's log. role: STAGE NAME."""
        sys.stderr.write("%s: %s\n" % (role, " ".join(argv)))
        sys.stderr.flush()
        try:
            self.context.children.spawn(role, argv, env)
        except OSError as error:
            stage, _, name = role.partition(" ")
            kind = "service" if stage in services.ROLES else "prepare"
            text = "%s: %s: %s. Is it in the image?"
            raise JobError(kind, text % (name, argv[0], error.strerror)) from error

    def send_signal(self, name: str) -> bool:
        """Send a signal to the prepare steps on this node. Return False if none runs on any node."""
        for pid, role in self.context.children.roles.items():
            if role.partition(" ")[0] in (PREPARE, PREPARE_WITH_RAY):
                os.killpg(pid, getattr(signal, "SIG" + name))
        return self.is_preparing()

    def child_ended(self, role: str, code: int) -> None:
        """Handle the end of a child of a stage. role: STAGE NAME."""
        stage, _, name = role.partition(" ")
        if stage in services.ROLES:
            self.services.child_ended(stage, name, code)
        else:
            work = self.work[stage]
            assert isinstance(work, PrepareStage)  # noqa: S101 - services have roles of their own
            work.ended(code)


class PrepareStage:
    """Runs the prepare steps of a stage on this node, one after another. items: this node's steps."""

    def __init__(self, stages: "Stages", stage: str, items: "List[Item]") -> None:
        self.stages = stages
        self.stage = stage
        self.items = list(items)

    def begin(self) -> None:
        """Start the next step that was not done in an earlier attempt."""
        context = self.stages.context
        while self.items and self._done_name(self.items[0]) in context.job["done_before"]:
            name = self.items.pop(0)["name"]
            context.phase("prepare", "%s was done in an earlier attempt" % name)
        if not self.items:
            self.stages.report_done(self.stage)
            return
        item = self.items[0]
        context.phase("prepare", "%s begins" % item["name"])
        self.stages.spawn("%s %s" % (self.stage, item["name"]), item["run"], self.stages.environment())

    def ended(self, code: int) -> None:
        """Handle the end of the running step. No further step starts if the job is being ended."""
        context = self.stages.context
        is_last = context.deadline is not None
        item = self.items[0]
        if code and not is_last:
            text = "prepare step %s exited with %d. The node's log has its output"
            raise JobError("prepare", text % (item["name"], code))
        self.items.pop(0)
        if item["once"] and not code:
            context.send("prepared", name=self._done_name(item))
        if is_last:
            self.items.clear()
        self.begin()

    def _done_name(self, item: "Item") -> str:
        """Name under which a later attempt finds the step in `done_before`: of the job, or of this node."""
        name: str = item["name"]
        return name if item["where"] == "head" else "%s@%s" % (name, self.stages.context.name)
