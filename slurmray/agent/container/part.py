"""What the container process does beside its messages, in parts; some are for some jobs only."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple


class Part:
    """A part of the container process. Each has those of these methods that it needs."""

    roles: "Tuple[str, ...]" = ()  # of its child processes; of `KIND NAME` the kind
    is_open = True  # whether stages may begin, and this node may join Ray

    @property
    def is_busy(self) -> bool:
        """Whether tick() is to be called about once a second."""
        return False

    def holds(self, kind: str) -> bool:  # noqa: ARG002
        """Whether messages of a kind wait for the part."""
        return False

    def on_start_ray(self) -> None:
        """Do what is to be done while Ray starts; also on a spare node, and on one for services alone."""

    def begin(self) -> None:
        """Begin what may begin now: after the start of Ray, with open GPUs, and once the cluster is ready."""

    def may_train(self) -> bool:
        """Whether the trainer may start."""
        return True

    def child_ended(self, role: str, code: int) -> None:
        """Handle the end of a child process. code: 128 + n for signal n. Raises Unfit, or a JobError."""

    def send_signal(self, name: str) -> bool:  # noqa: ARG002
        """Send a signal, e.g. TERM, to what is to end in the grace period. Return whether something is."""
        return False

    def tick(self) -> None:
        """Act on the time. Called in each turn of the loop. Raises Unfit, or a JobError."""

    def end(self) -> None:
        """End in order what is still running, before everything else is killed."""
