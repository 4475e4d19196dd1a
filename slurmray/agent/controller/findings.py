"""The table of findings of the preflight checks in the job's log."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ..job_log import JobLog

HEADER = ["node", "check", "found", "wanted", "fix"]


class Findings:
    """Collects findings. Equal ones of several nodes are one row, with the nodes in the order of `nodes`."""

    def __init__(self, log: "JobLog", nodes: "List[str]") -> None:
        self._log = log
        self._order = {name: number for number, name in enumerate(nodes)}
        self._rows: "Dict[Tuple[str, ...], List[str]]" = {}  # finding -> nodes

    def add(self, node: str, kind: str, row: "List[str]") -> None:
        """Add a finding. row: check, found, wanted, fix."""
        check, found, wanted, fix = row
        self._log.event("finding", node=node, kind=kind, check=check, found=found, wanted=wanted, fix=fix)
        nodes = self._rows.setdefault(tuple(row), [])
        if node not in nodes:
            nodes.append(node)

    def show(self) -> None:
        """Write the table of findings that have not been shown yet."""
        if not self._rows:
            return
        self._log.write("findings:")
        for nodes in self._rows.values():
            nodes.sort(key=lambda name: self._order.get(name, 0))
        self._log.write_table([HEADER, *([",".join(nodes), *row] for row, nodes in self._rows.items())])
        self._rows = {}
