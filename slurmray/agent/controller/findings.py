"""What preflight checks found, as one table in the job's log."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ..report import Report

HEADER = ["node", "check", "found", "wanted", "fix"]


class Findings:
    """Collects findings and shows those that have not been shown yet; equal ones of several nodes are one
    row, its nodes in the order of `nodes`.
    """

    def __init__(self, report: "Report", nodes: "List[str]") -> None:
        self._report = report
        self._order = {name: number for number, name in enumerate(nodes)}
        self._rows: "Dict[Tuple[str, ...], List[str]]" = {}  # finding -> nodes

    def add(self, node: str, kind: str, row: "List[str]") -> None:
        """Note a finding: check, found, wanted, fix."""
        check, found, wanted, fix = row
        self._report.event("finding", node=node, kind=kind, check=check, found=found, wanted=wanted, fix=fix)
        nodes = self._rows.setdefault(tuple(row), [])
        if node not in nodes:
            nodes.append(node)

    def show(self) -> None:
        """Write the table."""
        if not self._rows:
            return
        self._report.log("findings:")
        for nodes in self._rows.values():
            nodes.sort(key=lambda name: self._order.get(name, 0))
        self._report.table([HEADER, *([",".join(nodes), *row] for row, nodes in self._rows.items())])
        self._rows = {}
