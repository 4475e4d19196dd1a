"""The interface of the node agent for checks, runtimes and clean-up."""

import os

from .. import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Set

    from ..commands import Result
    from ..wire.settings import Group, Job, Settings


class NodeApi:
    """One node of the job. Its methods are called in a second thread; the main thread sends heartbeats."""

    name: str
    is_head: bool
    settings: "Settings"
    job: "Job"
    group: "Group"  # of this node
    cpus: int  # of the job on this node
    env: "Dict[str, str]"  # after `setup`; for everything started on the node
    folder: str  # the job's folder on the node; "" until it is made
    container_name: str
    log_path: str
    has_head_started: bool  # whether Ray runs on the head node
    doing: str  # sent with heartbeats: what takes long at the moment; "" if nothing does

    @property
    def inside(self) -> str:
        """The part of the folder that containers see, mounted at the path of `folder`."""
        return self.folder + "/inside"

    def service_log_path(self, service: str) -> str:
        """The path of a service's log."""
        name = paths.service_log(service, self.name) + ".log"
        return os.path.join(os.path.dirname(self.log_path), name)

    def phase(self, phase: str, text: str) -> None:
        """Log progress."""

    def finding(self, kind: str, check: str, found: str, wanted: str, fix: str) -> None:
        """Record a finding. kind: config, preflight or image, which end the job; or warn."""

    def soft_finding(self, check: str, found: str, wanted: str, fix: str) -> None:
        """Record a finding that is a warning with `preflight: warn`, and none with `preflight: none`."""

    def require_no_findings(self) -> None:
        """Raise errors.Unfit if a finding ends the job."""

    def run(
        self, argv: "List[str]", timeout: float = 20.0, env: "Optional[Dict[str, str]]" = None
    ) -> "Result":
        """Run a short command. Its standard error also goes to the node's log. Raises errors.Stopped.

        timeout: seconds. During clean-up a command is not interrupted when the job ends.
        """
        raise NotImplementedError

    def run_long(self, argv: "List[str]", doing: str, env: "Optional[Dict[str, str]]" = None) -> "Result":
        """Run a command without a timeout. Raises errors.Stopped.

        doing: see the field. Output and standard error go to the node's log and, as one text, to `out`.
        """
        raise NotImplementedError

    def environment_after(self, commands: str, field: str) -> "Dict[str, str]":
        """Run commands (bash) of a field of the job spec on this host, and return their environment.

        JobError where they fail. Raises errors.Stopped.
        """
        raise NotImplementedError

    def ended_jobs(self, jobs: "Set[str]") -> "Set[str]":
        """Those of these jobs that have ended, by the controller; none if it does not know."""
        raise NotImplementedError

    def story_command(self, function: str, *args: str) -> "List[str]":
        """The command that runs a bash function of the script's story."""
        raise NotImplementedError

    def host_path(self, text: str) -> str:
        """Make a path of the job spec absolute: see paths.host_path."""
        raise NotImplementedError

    def log(self, text: str) -> None:
        """Write to the node's log."""

    def wait(self, seconds: float) -> None:
        """Sleep, unless the job ends. Raises errors.Stopped."""
