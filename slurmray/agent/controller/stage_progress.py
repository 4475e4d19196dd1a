"""The stages of a start: which nodes are done with each, and the log lines about that."""

from .host_list import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Set, Tuple

    from ..job_log import JobLog
    from ..wire.settings import Settings

BURN_IN = "burn-in"  # a stage
PROGRESS_INTERVAL = 60.0  # seconds between two log lines about a stage without progress
CHANGES_INTERVAL = 5.0  # seconds between two with progress


class StageProgress:
    """Counts the nodes that are done with the stages of a start. nodes: those that take part."""

    def __init__(self, log: "JobLog", settings: "Settings", nodes: "List[str]") -> None:
        self._log = log
        self._nodes = nodes
        self.names = list_stages(settings)
        self._begun: "Dict[str, float]" = {}
        self._done: "Dict[str, Set[str]]" = {}
        self._logged: "Dict[str, Tuple[float, int]]" = {}  # when, and how many nodes were done

    def begin(self, now: float) -> None:
        """Note that the nodes can begin with their next stages."""
        for stage in self.names:
            self._begun.setdefault(stage, now)

    def done(self, stage: str, node: str, now: float) -> bool:
        """Note that a node is done with a stage, and return whether all are."""
        self._done.setdefault(stage, set()).add(node)
        self.log(now)
        return len(self._done[stage]) == len(self._nodes)

    def log(self, now: float) -> None:
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
        self._log.event("phase", phase=stage.replace("-with-ray", ""), text=text)


def list_stages(settings: "Settings") -> "List[str]":
    """Names of the stages that a job has."""
    stages = [BURN_IN] if settings["checks"]["burn_in"] else []
    if any(not item["needs_ray"] for item in settings["prepare"]):
        stages.append("prepare")
    if any(not item["needs_ray"] for item in settings["services"]):
        stages.append("services")
    if any(item["needs_ray"] for item in settings["prepare"]):
        stages.append("prepare-with-ray")
    if any(item["needs_ray"] for item in settings["services"]):
        stages.append("services-with-ray")
    return stages
