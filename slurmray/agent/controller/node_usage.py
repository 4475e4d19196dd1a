"""What the nodes use, by their latest samples."""

from .part import Decider, Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from ..wire import messages

FIRST_WAIT = 5.0  # seconds from the first sample to the first file: heartbeats of all nodes


class Usage(Part):
    """Keeps each node's latest sample, and writes them."""

    def __init__(self, controller: Decider) -> None:
        super().__init__(controller)
        self._uses: "Dict[str, messages.Use]" = {}
        self._times: "Dict[str, float]" = {}  # of these
        self._idle_since: "Dict[str, float]" = {}  # nodes with an idle GPU
        self._due = float("inf")

    def on_sample(self, node: str, use: "messages.Use", now: float) -> None:
        if not self._uses:
            self._due = now + FIRST_WAIT
        self._uses[node], self._times[node] = use, now
        if use.get("lowest") == 0:
            self._idle_since.setdefault(node, now)
        else:
            self._idle_since.pop(node, None)

    def on_node_left_out(self, node: str) -> None:
        for table in (self._uses, self._times, self._idle_since):
            table.pop(node, None)

    def tick(self, now: float) -> None:
        """Write the samples, an interval after the last time."""
        if now >= self._due:
            self._due = now + self.settings["watch"]["interval"]
            self.actions.write_usage(self.as_dict(now))

    def as_dict(self, now: float) -> "Dict[str, Dict[str, Any]]":
        """{node: its sample, with `age` in seconds and, if a GPU is idle, `idle`: for how many seconds}."""
        rows: "Dict[str, Dict[str, Any]]" = {}
        for node, use in self._uses.items():
            row = rows[node] = dict(use)
            row["age"] = round(now - self._times[node])
            if node in self._idle_since:
                row["idle"] = round(now - self._idle_since[node])
        return rows
