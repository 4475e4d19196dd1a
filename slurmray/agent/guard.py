"""The parent of the container process on a node without a container: does for it what a container does.

Role `guard`, with the argument NODE. It forwards its input to the container process, and when that has ended,
whatever the cause, kills what is left of it. When this process ends first, so does the input of the container
process, which then ends everything.
"""

import os
import signal
import subprocess
import sys
import threading

from . import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, List

AGENT = os.path.dirname(os.path.abspath(__file__))


def forward_input(sink: "IO[bytes]") -> None:
    """Copy standard input to its end."""
    try:
        with sink:
            for data in iter(lambda: os.read(0, 65536), b""):
                sink.write(data)
                sink.flush()
    except BrokenPipeError:
        pass


def main(argv: "List[str]") -> int:
    """Run the container process to its end; its exit code. argv: NODE."""
    for number in (signal.SIGTERM, signal.SIGINT):  # they are for the node agent
        signal.signal(number, lambda *_: None)
    process_tree.lock_folder(os.path.dirname(AGENT))
    process_tree.adopt_orphans()
    process = subprocess.Popen([sys.executable, "-I", AGENT, "container", *argv], stdin=subprocess.PIPE)
    assert process.stdin  # noqa: S101 - it is a pipe
    threading.Thread(target=forward_input, args=[process.stdin], daemon=True).start()
    code = process.wait()
    process_tree.kill_descendants()
    os._exit(code % 256)  # the thread may hold a lock that a usual end would wait for
