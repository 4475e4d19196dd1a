"""What the nodes use, by their latest samples."""

from .part import Decider, Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from ..wire import messages

FIRST_WAIT = 5.0  # seconds from the first sample to the first file: heartbeats of all nodes


class Usage(Part):
    """Keeps each node's latest sample, and writes them."""

    def __init__(self, controller: Decider) -> None:
        super().__init__(controller)
        # Of each node: the sample, its time, and since when a GPU is idle; None: none is.
        self._samples: "Dict[str, Tuple[messages.Use, float, Optional[float]]]" = {}
        self._due = float("inf")

    def on_sample(self, node: str, use: "messages.Use", now: float) -> None:
        if not self._samples:
            self._due = now + FIRST_WAIT
        _, _, idle_since = self._samples.get(node, (use, now, None))
        idle_since = now if idle_since is None else idle_since
        self._samples[node] = use, now, idle_since if use.get("lowest") == 0 else None

    def on_node_left_out(self, node: str) -> None:
        self._samples.pop(node, None)

    def tick(self, now: float) -> None:
        """Write the samples, an interval after the last time."""
        if now >= self._due:
            self._due = now + self.settings["watch"]["interval"]
            self.actions.write_usage(self.as_dict(now))

    def as_dict(self, now: float) -> "Dict[str, Dict[str, Any]]":
        """{node: its sample, with `age` in seconds and, if a GPU is idle, `idle`: for how many seconds}."""
        rows: "Dict[str, Dict[str, Any]]" = {}
        for node, (use, then, idle_since) in self._samples.items():
            rows[node] = dict(use, age=round(now - then))
            if idle_since is not None:
                rows[node]["idle"] = round(now - idle_since)
        return rows
