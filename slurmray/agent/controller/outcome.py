"""The outcome of a job, from its state alone: exit code, source and last line of the log."""

import signal

from .. import job_errors
from ..nodes import may_be_lost
from .failure import Failure
from .protocol import CHECKED, STARTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..wire.settings import Settings
    from .state import JobState

STOPPED_BY_SLURM = 143  # exit code after scancel if the trainer has none: 128 + SIGTERM


class Outcome:
    """The end of a job. source: "trainer", "slurmray" or "slurm" (scancel, preemption, time limit)."""

    def __init__(self, code: int, source: str, text: str, kind: str = "", node: str = "") -> None:
        self.code = code
        self.source = source
        self.text = text
        self.kind = kind
        self.node = node

    @classmethod
    def failed(cls, kind: str, node: str, text: str) -> "Outcome":
        """The outcome of a failed job. kind: as in job_errors.EXIT_CODES."""
        code = job_errors.EXIT_CODES[kind]
        label = "failed (%d %s): " % (code, kind.replace("_", " "))
        return cls(code, "slurmray", label + text, kind, node)

    @classmethod
    def stopped(cls) -> "Outcome":
        """The outcome of a job that Slurm ended."""
        return cls(STOPPED_BY_SLURM, "slurm", "stopped by Slurm: scancel, preemption or the time limit")


def failure_of(state: "JobState") -> "Optional[Failure]":
    """The failure of a job whose step is over; None without one."""
    is_signalled = state.nodes[state.head].is_signalled
    if state.failure or not is_signalled or state.trainer_code == 0 or state.requests.is_end_requested:
        return state.failure
    return Failure([state.head], "ray", "container got SIGTERM, but not from Slurm")


def outcome_of(state: "JobState", settings: "Settings", srun_code: int) -> Outcome:
    """The end of a job whose step is over. srun_code: exit code of srun; negative for a signal."""
    failure, code, requests = failure_of(state), state.trainer_code, state.requests
    lost = "node_lost" if state.has_trained else "bring_up"
    kind = failure.kind if failure else ""
    if (
        code is not None
        and kind not in ("ray", "node_lost", "stalled")
        and (not requests.is_time_up or code == 0)
    ):
        return Outcome(code, "trainer", "done: trainer exited with %d%s" % (code, signal_text(code)))
    if requests.is_time_up and not requests.is_stopping:
        ended = "the trainer had not started, or ended without an exit code"
        if code is not None:
            ended = "the trainer was stopped and exited with %d" % code
        return Outcome.failed("time_limit", "", "time limit or preemption near: " + ended)
    is_lost = failure is not None and kind == "node_lost" and failure.ends_job
    if requests.is_end_requested and not (is_lost and not may_be_lost(settings)):
        return Outcome.stopped()
    if not failure:
        return _without_failure(state, settings, srun_code, lost)
    text = str(failure)
    if code is not None and kind in ("ray", "node_lost", "prepare", "service", "stalled"):
        text += "; the trainer exited with %d" % code
    return Outcome.failed(lost if kind == "ray" else kind, failure.node, text)


def _without_failure(state: "JobState", settings: "Settings", srun_code: int, kind: str) -> Outcome:
    """The end of a job without exit code and failure. kind: that of a step that ended unexpectedly."""
    if settings["only_checks"] and state.have_all(CHECKED):
        return Outcome(0, "slurmray", "done: the nodes are checked")
    if not state.count(STARTED) and settings["container"]["runtimes"] == ["pyxis"]:
        text = "pyxis started no container, its errors are above. Correct container.image or its mounts"
        return Outcome.failed("image", "", text)
    code = srun_code if srun_code >= 0 else 128 - srun_code
    text = "the step ended unexpectedly; srun exited with %d%s" % (code, signal_text(code))
    return Outcome.failed(kind, state.head, "%s: %s" % (state.head, text))


def signal_text(code: int) -> str:
    """` (128 + signal KILL)` for 137; "" where no signal is meant."""
    try:
        return " (128 + signal %s)" % signal.Signals(code - 128).name[3:] if code > 128 else ""
    except ValueError:
        return ""
