"""Errors that end a job, and their exit codes."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

# Kind of error -> the job's exit code. `slurmray explain CODE` describes each.
EXIT_CODES: "Dict[str, int]" = {
    "config": 64,
    "preflight": 65,
    "image": 66,
    "bring_up": 67,
    "probe": 68,
    "prepare": 69,
    "service": 70,
    "node_lost": 71,
    "time_limit": 72,
    "stalled": 74,
    "internal": 79,
}


class JobError(Exception):
    """The job cannot go on. kind: one of EXIT_CODES, or `ray`, which is bring_up before the trainer runs and
    node_lost after. log: name of the log that shows why; "": that of the node.
    """

    def __init__(self, kind: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.log = log


class Unfit(Exception):
    """A check of this node failed. Its findings have been sent; the controller ends the job."""


class Finished(Exception):
    """The container process is done and has sent all its messages."""


class Stopped(Exception):
    """The job is being ended. Raised in functions that wait."""
