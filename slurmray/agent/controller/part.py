"""What the controller consists of: those who decide about one thing each, in parts for some jobs only."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    from ..job_log import JobLog
    from ..wire import messages
    from ..wire.settings import Job, Settings
    from .actions import Actions
    from .failure import Failure
    from .state import JobState

    Handler = Callable[[str, Any, float], None]  # of a node's name, its message and the time


class Decider:
    """Decides about one thing, by what all of them know. Times are seconds."""

    settings: "Settings"
    job: "Job"
    state: "JobState"
    log: "JobLog"
    actions: "Actions"

    def __init__(self, controller: "Decider") -> None:
        self.settings, self.job, self.state = controller.settings, controller.job, controller.state
        self.log, self.actions = controller.log, controller.actions


class Part(Decider):
    """What only some jobs need: _make_parts in decisions.py lists them.

    Each has those of these methods that it needs.
    """

    def handlers(self) -> "Dict[str, Handler]":
        """Kinds of messages that the part handles."""
        return {}

    def on_progress(self, progress: str, now: float) -> None:
        """Note how far the job has come: protocol.JOB."""

    def on_sample(self, node: str, use: "messages.Use", now: float) -> None:
        """Note what a node uses, unless it is a spare node."""

    def on_log_size(self, size: int, now: float) -> None:
        """Note the size of the job's log."""

    def on_progress_file(self, changed: float, now: float) -> None:
        """Note when the progress file was last changed, by its file system's clock; 0: it does not exist."""

    def on_replacement(self, node: str) -> None:
        """Note that a spare node takes a lost one's place, while the trainer runs."""

    def on_node_left_out(self, node: str) -> None:
        """Note that the job continues without a node."""

    def is_preparing(self, node: str) -> bool:  # noqa: ARG002
        """Whether a replacement is not ready for the trainer's actors."""
        return False

    def tick(self, now: float) -> "Optional[Failure]":  # noqa: ARG002
        """Act on the time; return a failure that ends this start. Called at least once a second.

        Not called while the step is being ended.
        """
        return None
