"""The node agent as checks, runtimes and clean-up use it: commands, findings, facts about the node."""

import os

from .. import job_errors, job_log, paths, script_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

    from ..command_runner import Result
    from ..wire import messages
    from ..wire.settings import Group, Job
    from .mailbox import Mailbox


class NodeApi:
    """One node of the job. Its methods are called in a second thread; the main thread sends heartbeats.

    text: the script.
    """

    is_head: bool
    job: "Job"
    group: "Group"  # of this node
    cpus: int  # of the job on this node
    memory: int  # MiB that Slurm charges the job for a node, on average; 0: unknown
    container_name: str
    log_path: str
    mail: "Mailbox"

    def __init__(self, text: str) -> None:
        self.text = text
        self.settings = script_parts.read_settings(text)
        self.name = os.environ["SLURMD_NODENAME"]
        self.env = dict(os.environ)  # after `setup`; for everything started on the node
        self.folder = ""  # the job's folder on the node, once it is made
        self.gpus: "List[str]" = []  # UUIDs of the job's NVIDIA GPUs, once they are counted
        self.render_nodes: "List[str]" = []  # names of those of the job's AMD GPUs, e.g. renderD128
        self.doing = ""  # sent with heartbeats: what takes long at the moment
        self.field = ""  # sent with heartbeats: the field of the job spec whose commands run at the moment
        self.is_cleaning_up = False  # commands are not interrupted, although the node is stopped
        self._is_unfit = False

    @property
    def inside(self) -> str:
        """The part of the folder that containers see, mounted at the path of `folder`."""
        return self.folder + "/inside"

    def service_log_path(self, service: str) -> str:
        """The path of a service's log."""
        name = paths.service_log(service, self.name) + ".log"
        return os.path.join(os.path.dirname(self.log_path), name)

    def send(self, message: "messages.ToController") -> None:
        """Send a message to the controller."""
        self.mail.send(message)

    def phase(self, phase: str, text: str) -> None:
        """Log progress."""
        self.send({"type": "phase", "phase": phase, "text": text})

    def finding(self, kind: str, check: str, found: str, wanted: str, fix: str) -> None:
        """Record a finding. kind: config, preflight or image, which end the job; or warn."""
        self._is_unfit = self._is_unfit or kind != "warn"
        self.send(
            {"type": "finding", "kind": kind, "check": check, "found": found, "wanted": wanted, "fix": fix}
        )

    def soft_finding(self, check: str, found: str, wanted: str, fix: str) -> None:
        """Record a finding that is a warning with `preflight: warn`, and none with `preflight: none`."""
        level = self.settings["preflight"]
        if level != "none":
            self.finding("warn" if level == "warn" else "preflight", check, found, wanted, fix)

    def require_no_findings(self) -> None:
        """Raise job_errors.Unfit if a finding ends the job."""
        if self._is_unfit:
            raise job_errors.Unfit
        if self.mail.is_stopped:
            raise job_errors.Stopped

    def run(
        self, argv: "List[str]", timeout: float = 20.0, env: "Optional[Dict[str, str]]" = None
    ) -> "Result":
        """Run a short command. Its standard error also goes to the node's log. Raises job_errors.Stopped.

        timeout: seconds, without those in which it waits for a lock while another Podman unpacks an image.
        During clean-up these count, and it is not interrupted when the job ends.
        """
        return self._run(argv, timeout, env)

    def run_long(
        self,
        argv: "List[str]",
        doing: str,
        env: "Optional[Dict[str, str]]" = None,
        is_hopeless: "Callable[[bytearray], bool]" = lambda _: False,
    ) -> "Result":
        """Run a command without a timeout. Raises job_errors.Stopped.

        doing: see the field. Output and standard error go to the node's log and, as one text, to `out`.
        is_hopeless: whether to end it early, by its output so far. Called several times a second.
        """
        self.doing = doing
        try:
            return self._run(argv, None, env, is_hopeless)
        finally:
            self.doing = ""

    def _run(
        self,
        argv: "List[str]",
        timeout: "Optional[float]",
        env: "Optional[Dict[str, str]]",
        is_hopeless: "Callable[[bytearray], bool]" = lambda _: False,
    ) -> "Result":
        from .. import command_runner

        def on_lock() -> None:
            if not self.doing:
                self.doing = "lock"
                self.phase("image", "%s waits for a lock that another process holds" % " ".join(argv[:2]))

        env = self.env if env is None else env
        before = self.doing
        try:
            done = command_runner.run(
                argv, env, timeout, self.is_interrupted, is_hopeless=is_hopeless,
                on_lock=None if timeout is None or self.is_cleaning_up else on_lock,
            )  # fmt: skip
        finally:
            self.doing = before
        self.require_time()
        return done

    def is_interrupted(self) -> bool:
        """Whether running commands are to be ended."""
        return self.mail.is_stopped and not self.is_cleaning_up

    def require_time(self) -> None:
        """Raise job_errors.Stopped if running commands are to be ended."""
        if self.is_interrupted():
            raise job_errors.Stopped

    def story_command(self, function: str, *args: str) -> "List[str]":
        """The command that runs a bash function of the script's story."""
        return script_parts.story_command(self.text, function, *args)

    def host_path(self, path: str) -> str:
        """Make a path of the job spec absolute: see paths.host_path."""
        return paths.host_path(path, self.env)

    def log(self, text: str) -> None:
        """Write to the node's log."""
        if text:
            begin = "" if job_log.ends_line(2) else "\n"
            job_log.write_stderr((begin + text.rstrip("\n") + "\n").encode("utf-8", "surrogateescape"))

    def wait(self, seconds: float) -> None:
        """Sleep, unless the job ends. Raises job_errors.Stopped."""
        self.mail.wait_until(lambda: False, seconds)
