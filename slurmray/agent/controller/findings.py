"""The table of findings of the preflight checks in the job's log."""

import re

from .host_list import host_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ..job_log import JobLog

HEADER = ["node", "check", "found", "wanted", "fix"]
NODE = "\0"  # in a row: the node's own name


class Findings:
    """Collects findings. Equal ones of several nodes are one row, also where the fix has the node's name."""

    def __init__(self, log: "JobLog") -> None:
        self._log = log
        self._rows: "Dict[Tuple[str, ...], List[str]]" = {}  # finding -> nodes

    def add(self, node: str, kind: str, row: "List[str]") -> None:
        """Add a finding. row: check, found, wanted, fix."""
        check, found, wanted, fix = row
        self._log.event("finding", node=node, kind=kind, check=check, found=found, wanted=wanted, fix=fix)
        fix = re.sub(r"(?<![\w-])%s(?![\w-])" % re.escape(node), NODE, fix)
        nodes = self._rows.setdefault((check, found, wanted, fix), [])
        if node not in nodes:
            nodes.append(node)

    def show(self) -> None:
        """Write the table of findings that have not been shown yet."""
        if not self._rows:
            return
        self._log.write("findings:")
        rows = [HEADER]
        for row, names in self._rows.items():
            nodes = host_list(names)
            rows.append([nodes, *(cell.replace(NODE, nodes) for cell in row)])
        self._log.write_table(rows)
        self._rows = {}
