"""What the nodes use, by their latest samples."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from ..wire import messages

FIRST_WAIT = 5.0  # seconds from the first sample to the first file: heartbeats of all nodes


class Usage:
    """Keeps each node's latest sample. interval: seconds between two of them."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._uses: "Dict[str, messages.Use]" = {}
        self._times: "Dict[str, float]" = {}  # of these
        self._idle_since: "Dict[str, float]" = {}  # nodes with an idle GPU
        self._due = float("inf")

    def record(self, node: str, use: "messages.Use", now: float) -> None:
        """Note a sample of a node."""
        if not self._uses:
            self._due = now + FIRST_WAIT
        self._uses[node], self._times[node] = use, now
        if use.get("lowest") == 0:
            self._idle_since.setdefault(node, now)
        else:
            self._idle_since.pop(node, None)

    def forget(self, node: str) -> None:
        """Leave out a node that the job has lost."""
        for table in (self._uses, self._times, self._idle_since):
            table.pop(node, None)

    def is_due(self, now: float) -> bool:
        """Whether to write them now. After True, the next time is an interval later."""
        if now < self._due:
            return False
        self._due = now + self._interval
        return True

    def as_dict(self, now: float) -> "Dict[str, Dict[str, Any]]":
        """{node: its sample, with `age` in seconds and, if a GPU is idle, `idle`: for how many seconds}."""
        rows: "Dict[str, Dict[str, Any]]" = {}
        for node, use in self._uses.items():
            row = rows[node] = dict(use)
            row["age"] = round(now - self._times[node])
            if node in self._idle_since:
                row["idle"] = round(now - self._idle_since[node])
        return rows
