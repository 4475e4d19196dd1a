"""The table of findings of the preflight checks in the job's log."""

import re

from .host_list import host_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ..job_log import JobLog

# Parts that differ between nodes that have found the same: the address and port from which a connection was
# made, a port, a time, a pid, the id of a request. Sizes, versions and UUIDs of GPUs count.
BY_CHANCE = re.compile(
    r"""
    \S{1,60}:\d+(?=->)
    | (\b\d{1,3}(?:\.\d{1,3}){3}|\]):\d+
    | \bport\ \d+
    | (?:\b\d{4}[-/]\d\d[-/]\d\d[T ]|\b)\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\ ?[+-]\d\d:?\d\d)?
    | \b\d+\.\d+m?s\b
    | \bpid[ =:]*\d+ | \[\d+\](?=:)
    | \brequest[-_ ]?id["']?[=: ]+["']?[\w-]+
    """,
    re.VERBOSE | re.IGNORECASE,
)
HEADER = ["node", "check", "found", "wanted", "fix"]
NODE = "\0"  # in a row: the node's own name


def normalize(found: str) -> str:
    """What is equal in the texts of nodes that have found the same."""
    return BY_CHANCE.sub(r"\1*", found)


class Findings:
    """Collects findings. Those that differ by chance only, or in the node's name in the fix, are one row."""

    def __init__(self, log: "JobLog") -> None:
        self._log = log
        self._rows: "Dict[Tuple[str, ...], Tuple[List[str], List[str]]]" = {}  # what is equal -> row, nodes

    def add(self, node: str, kind: str, row: "List[str]") -> None:
        """Add a finding. row: check, found, wanted, fix."""
        check, found, wanted, fix = row
        self._log.event("finding", node=node, kind=kind, check=check, found=found, wanted=wanted, fix=fix)
        fix = re.sub(r"(?<![\w-])%s(?![\w-])" % re.escape(node), NODE, fix)
        key = (check, normalize(found), wanted, fix)
        _, nodes = self._rows.setdefault(key, ([check, found, wanted, fix], []))
        if node not in nodes:
            nodes.append(node)

    def show(self) -> None:
        """Write the table of findings that have not been shown yet."""
        if not self._rows:
            return
        self._log.write("findings:")
        rows = [HEADER]
        for row, names in self._rows.values():
            nodes = host_list(names)
            rows.append([nodes, *(cell.replace(NODE, nodes) for cell in row)])
        self._log.write_table(rows)
        self._rows = {}
