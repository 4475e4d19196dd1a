"""What a node's checks, runtimes and clean-up need of its node agent."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..settings import Job, Settings


class Result:
    """The end of a command.

    code: its exit code, 124 after the timeout, 127 where there is no such program. out, err: what it wrote.
    why: the last line of err, else a sentence.
    """

    __slots__ = ("code", "err", "out", "why")

    def __init__(self, code: int, out: str = "", err: str = "", why: str = "") -> None:
        self.code = code
        self.out = out
        self.err = err
        self.why = why


class NodeApi:
    """One node of the job. Called from a worker thread; the main thread keeps sending heartbeats."""

    name: str
    is_head: bool
    settings: "Settings"
    job: "Job"
    env: "Dict[str, str]"  # after `setup`: for everything that is started on the node
    folder: str  # of this attempt on the node; "" until it is made
    container_name: str
    log_path: str
    doing: str  # goes with each heartbeat; not empty: the node is busy with what may take long

    @property
    def inside(self) -> str:
        """What a container sees of the folder, under the folder's own path."""
        return self.folder + "/inside"

    def phase(self, phase: str, text: str) -> None:
        """Report progress to the job's log and events."""

    def finding(self, kind: str, check: str, found: str, wanted: str, fix: str) -> None:
        """Record what a check found. kind: config, preflight, image; or warn, which fails no node."""

    def soft_finding(self, check: str, found: str, wanted: str, fix: str) -> None:
        """Record what `preflight: warn` only warns of, and `preflight: none` ignores."""

    def require_no_findings(self) -> None:
        """Raise errors.Unfit where a check has failed."""

    def run(self, argv: "List[str]", timeout: float = 20.0, env: "Optional[Dict[str, str]]" = None) -> Result:
        """Run a quick command. Its stderr goes to the node's log, too. Raises errors.Stopped.

        timeout: seconds. In the clean-up it runs to its end.
        """
        raise NotImplementedError

    def run_long(self, argv: "List[str]", doing: str, env: "Optional[Dict[str, str]]" = None) -> Result:
        """Run a command without a timeout. Raises errors.Stopped.

        What it writes goes to the node's log; `out` has the end of it, standard error included.
        """
        raise NotImplementedError

    def story(self, function: str, *args: str) -> "List[str]":
        """The command that runs a bash function of the script's story."""
        raise NotImplementedError

    def host_path(self, text: str) -> str:
        """A path of the job spec on this host: `~` is the submitter's home, relative to the submit folder."""
        raise NotImplementedError

    def log(self, text: str) -> None:
        """Write to the node's log."""

    def wait(self, seconds: float) -> None:
        """Sleep. Raises errors.Stopped."""
