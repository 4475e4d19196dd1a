"""Base class of the stages on one node: starts their programs, and says when the node is done."""

import os

from ..job_errors import JobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Tuple

    from .node_context import NodeContext

    Item = Dict[str, Any]  # of prepare or services in the job spec, `run` as argv


class Stage:
    """A stage on this node. name: as in the message `stage_done`."""

    error_kind = ""  # kind of the JobError where a program cannot be started

    def __init__(self, context: "NodeContext", name: str) -> None:
        self.context = context
        self.name = name
        self.kinds: "Tuple[str, ...]" = (name,)  # of its child processes, whose role is `KIND NAME`
        self.is_done_here = False

    def begin(self) -> None:
        """Start the stage on this node."""
        raise NotImplementedError

    def child_ended(self, kind: str, name: str, code: int) -> None:
        """Handle the end of a child process. kind: one of `kinds`."""
        raise NotImplementedError

    def tick(self) -> None:
        """Act on the time. Called in each turn of the loop while it runs on this node."""

    def end(self) -> None:
        """End what still runs: all nodes are done with the stage."""

    def send_done(self) -> None:
        """Send that this node is done with the stage."""
        self.is_done_here = True
        self.context.send({"type": "stage_done", "stage": self.name})

    def spawn(self, kind: str, name: str, argv: "List[str]", env: "Mapping[str, str]") -> None:
        """Start a child process and write its command to its log. kind: one of `kinds`."""
        role = "%s %s" % (kind, name)
        argv = move_text_to_file(argv, os.path.join(self.context.folder, "run-" + role.replace(" ", "-")))
        output = self.open_output(name)
        try:
            os.write(output, ("%s: %s\n" % (role, " ".join(argv))).encode("utf-8", "backslashreplace"))
        except OSError:  # EAGAIN: a full FIFO, as the run directory is slow; ENOSPC: it is full
            pass
        os.set_blocking(output, True)
        try:
            self.context.children.spawn(role, argv, env, output, output)
        except OSError as error:
            message = "%s: %s: %s. Is it in the image?" % (name, argv[0], error.strerror)
            raise JobError(self.error_kind, message) from error
        finally:
            os.close(output)

    def open_output(self, name: str) -> int:  # noqa: ARG002
        """A new descriptor for the output of a program: of the node's log."""
        return os.dup(2)


def move_text_to_file(argv: "List[str]", path: str, mode: int = 0o600) -> "List[str]":
    """The argv with a text for bash in a file instead, as `ps` shows arguments to everybody.

    A signal to the process group does not end this bash before its running command, as `bash -c` becomes
    its only one.
    """
    if argv[:2] != ["bash", "-c"] or len(argv) != 3:
        return argv
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(os.fsencode("trap exit HUP INT TERM USR1 USR2\n" + argv[2] + "\n"))
    return ["bash", path]
