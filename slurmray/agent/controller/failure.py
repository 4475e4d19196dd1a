"""The reason why a job cannot go on."""

from .host_list import and_names, host_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

LOGS_SHOWN = 2  # nodes whose logs are shown


class Failure:
    """The reason why the job cannot go on. nodes: none where no node is the cause.

    log: name of the log in the run directory that shows why, if not the nodes'.
    """

    def __init__(
        self, nodes: "List[str]", kind: str, text: str, log: str = "", *, must_end: bool = False
    ) -> None:
        self.nodes = nodes
        self.kind = kind
        self.text = text
        self._log = log
        self.must_end = must_end  # this start, also where the job may continue without nodes
        self.ends_job = True  # False: Slurm was ending the job already

    @property
    def logs(self) -> "List[str]":
        """Names of the logs that show why."""
        return [self._log] if self._log else self.nodes[:LOGS_SHOWN]

    @property
    def node(self) -> str:
        """The node, or the host list of several."""
        return host_list(self.nodes)

    def __str__(self) -> str:
        return "%s: %s" % (and_names(self.nodes), self.text) if self.nodes else self.text
