"""The stages of a start: which nodes are done with each, and the log lines about that."""

from . import protocol
from .host_list import names
from .part import Decider, Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Set, Tuple

    from ..wire import messages
    from ..wire.settings import Settings
    from .part import Handler

BURN_IN = "burn-in"  # a stage
PROGRESS_INTERVAL = 60.0  # seconds between two log lines about a stage without progress
CHANGES_INTERVAL = 5.0  # seconds between two with progress


class StageProgress(Part):
    """Counts the nodes that are done with the stages of a start, and lets all begin with the next ones."""

    def __init__(self, controller: Decider) -> None:
        super().__init__(controller)
        self._nodes = self.job["nodes"]  # those that take part
        self._names = list_stages(self.settings)
        self.vetoes: "Dict[str, Callable[[], bool]]" = {}  # stage -> whether its results end this start
        self._joining: "Dict[str, Set[str]]" = {}  # replacement -> stages that it has to do
        self._begun: "Dict[str, float]" = {}
        self._done: "Dict[str, Set[str]]" = {}
        self._logged: "Dict[str, Tuple[float, int]]" = {}  # when, and how many nodes were done

    def handlers(self) -> "Dict[str, Handler]":
        return {"stage_done": self._on_stage_done}

    def _on_stage_done(self, node: str, message: "messages.StageDone", now: float) -> None:
        self.done(message["stage"], node, now)

    def on_progress(self, progress: str, now: float) -> None:
        """The nodes can begin with their first stages, or with those that need Ray."""
        if progress in (protocol.STARTING_RAY, protocol.READY):
            self._begin(now)

    def _begin(self, now: float) -> None:
        for stage in self._names:
            self._begun.setdefault(stage, now)

    def on_replacement(self, node: str) -> None:
        self._joining[node] = set(self._names) - {BURN_IN}

    def is_preparing(self, node: str) -> bool:
        return bool(self._joining.get(node))

    def done(self, stage: str, node: str, now: float) -> None:
        """Note that a node is done with a stage. Once all are, they can go on."""
        if self.state.has_trained:
            self._joining.get(node, set()).discard(stage)
            return
        self._done.setdefault(stage, set()).add(node)
        self.tick(now)
        ends_start = self.vetoes.get(stage, bool)
        if len(self._done[stage]) == len(self._nodes) and not ends_start():
            self.actions.send({"type": "stage_done", "stage": stage})
            self._begin(now)

    def tick(self, now: float) -> None:
        """Log progress every few seconds; without progress once a minute."""
        for stage, done in self._done.items():
            logged, count = self._logged.get(stage, (0.0, 0))
            if count == len(self._nodes):
                continue
            has_changed = len(done) > count and (not count or now - logged >= CHANGES_INTERVAL)
            if has_changed or now - logged >= PROGRESS_INTERVAL or len(done) == len(self._nodes):
                self._log_stage(stage, done, int(now - self._begun.get(stage, now)) // 60)
                self._logged[stage] = now, len(done)

    def _log_stage(self, stage: str, done: "Set[str]", minutes: int) -> None:
        text = "%d/%d nodes" % (len(done), len(self._nodes))
        text += " after %d min" % minutes if minutes else ""
        if len(done) < len(self._nodes):
            text += ", waiting for " + names([node for node in self._nodes if node not in done])
        self.log.event("phase", phase=stage.replace("-with-ray", ""), text=text)


def list_stages(settings: "Settings") -> "List[str]":
    """Names of the stages that a job has."""
    stages = [BURN_IN] if settings["checks"]["burn_in"] else []
    for needs_ray, ending in ((False, ""), (True, "-with-ray")):
        for kind, items in (("prepare", settings["prepare"]), ("services", settings["services"])):
            stages += [kind + ending] * any(item["needs_ray"] == needs_ray for item in items)
    return stages
