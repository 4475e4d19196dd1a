"""The figures of a burn-in: which GPUs and nodes are slower than the others, and a table for the log."""

import statistics

from .failure import Failure
from .part import Decider, Part
from .stage_progress import BURN_IN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Tuple

    from ..wire import messages
    from .findings import Findings
    from .part import Handler
    from .stage_progress import StageProgress

    Finding = Tuple[str, List[str]]  # node; check, found, wanted, fix

LEAST = 0.8  # of the median
CPU = "CPU"  # kind of nodes without GPUs, which other jobs may slow down
MOST_ROWS = 16  # of the table
HEADER = [
    "node",
    "GPUs",
    "products, TFLOP/s",
    "memory, GB/s",
    "in the node, GB/s",
    "with another, GB/s",
    "lowest",
]
FIX = "ask the site to check it; until then, leave the node out: slurm.exclude"
ERROR_FIX = "the node's log has more. If the node causes it, leave it out: slurm.exclude"
OF_ALL = ("meeting of all nodes", "all-reduce of all nodes")  # measurements of container/burn_in.py
# Measurement, unit, and a node's figures of it: one of each GPU, or one.
MEASURES: "Tuple[Tuple[str, str, Callable[[messages.BurnIn], List[float]]], ...]" = (
    ("matrix products", "TFLOP/s", lambda figures: figures["products"]),
    ("memory", "GB/s", lambda figures: figures["copies"]),
    ("all-reduce in the node", "GB/s", lambda figures: [figures["within"]]),
    ("all-reduce with another node", "GB/s", lambda figures: [figures["pairs"]]),
)


class BurnIn(Part):
    """Compares the figures of nodes, and logs them."""

    def __init__(self, controller: Decider, stages: "StageProgress", findings: "Findings") -> None:
        super().__init__(controller)
        self._is_strict = self.settings["preflight"] == "fail"  # whether findings about them end the start
        self._stages = stages
        self._findings = findings
        self._nodes: "Dict[str, messages.BurnIn]" = {}  # their figures
        stages.vetoes[BURN_IN] = self._find_slow_nodes

    def handlers(self) -> "Dict[str, Handler]":
        return {"burn_in": self._on_burn_in}

    def _on_burn_in(self, node: str, message: "messages.BurnIn", now: float) -> None:
        self._nodes[node] = message
        self.log.event(
            "burn_in",
            node=node,
            kind=message["kind"],
            products=message["products"],
            copies=message["copies"],
            within=message["within"],
            pairs=message["pairs"],
            all=message["all"],
        )
        self._stages.done(BURN_IN, node, now)

    def _find_slow_nodes(self) -> bool:
        """Log the figures of all nodes; return whether a finding about them ends this start."""
        if not self._nodes:
            return False
        self.log.write("burn-in, the slowest nodes first:")
        self.log.write_table(self._table())
        # The slowest node counts; it is 0 where it has not been measured.
        speed = min([figures["all"] for figures in self._nodes.values() if figures["all"] > 0], default=0)
        if speed:
            self.log.write("burn-in: all-reduce of all nodes: %.1f GB/s" % speed)
        found = self._find()
        for node, row in found:
            self._findings.add(node, "preflight" if self._is_strict else "warn", row)
            if self._is_strict:
                self.state.note_finding(node)
        self._findings.show()
        if not (found and self._is_strict):
            return False
        nodes = list(dict.fromkeys(node for node, _ in found))
        text = "burn-in: %s: %s; %s" % (found[0][1][0], found[0][1][1], found[0][1][3])
        self.state.fail(Failure(nodes, "preflight", text))
        return True

    def _find(self) -> "List[Finding]":
        """A finding for each figure that is missing, or below LEAST of the median of such GPUs."""
        missing = [
            (node, [check, error, "a result", ERROR_FIX])
            for node, figures in self._nodes.items()
            for check, error in figures["problems"]
        ]
        found = [row for row in missing if row[1][0] not in OF_ALL]
        for node, check, place, unit, figure, median in self._compare():
            if figure < LEAST * median and self._nodes[node]["kind"] != CPU:
                text = "%s%s %s" % (place, _short(figure), unit)
                found.append((node, [check, text, "%s %s, the median" % (_short(median), unit), FIX]))
        return found or missing  # one bad node is enough for an error of OF_ALL, which all nodes have

    def _compare(self) -> "Iterator[Tuple[str, str, str, str, float, float]]":
        """Yield node, measurement, `GPU N: ` or "", unit, figure, and the median of nodes with such GPUs."""
        for kind in sorted({figures["kind"] for figures in self._nodes.values()}):
            alike = [item for item in self._nodes.items() if item[1]["kind"] == kind]
            for check, unit, figures_of in MEASURES:
                measured = [
                    (node, "GPU %d: " % number if len(figures_of(figures)) > 1 else "", figure)
                    for node, figures in alike
                    for number, figure in enumerate(figures_of(figures))
                    if figure > 0
                ]
                median = statistics.median([figure for _, _, figure in measured] or [0])
                for node, place, figure in measured:
                    yield node, check, place, unit, figure, median

    def _table(self) -> "List[List[str]]":
        """The nodes with their figures, the slowest first."""
        lowest = dict.fromkeys(self._nodes, 1.0)  # figure of the node, as a part of the median
        for node, _, _, _, figure, median in self._compare():
            lowest[node] = min(lowest[node], figure / median)
        names = sorted(lowest, key=lambda node: lowest[node])
        rows = [HEADER]
        for node in names[:MOST_ROWS]:
            figures = self._nodes[node]
            gpus = "%d x %s" % (len(figures["products"]), figures["kind"])
            cells = [_range(figures_of(figures)) for _, _, figures_of in MEASURES]
            rows.append([node, gpus, *cells, "%d %% of the median" % (100 * lowest[node])])
        if len(names) > MOST_ROWS:
            rows.append(["%d more nodes" % (len(names) - MOST_ROWS), "", "in burn_in of events.jsonl"])
        return rows


def _range(figures: "List[float]") -> str:
    good = [figure for figure in figures if figure > 0]
    if not good:
        return "-"
    low, high = _short(min(good)), _short(max(good))
    return low if low == high else "%s to %s" % (low, high)


def _short(figure: float) -> str:
    return "%.0f" % figure if figure >= 100 else "%.3g" % figure
