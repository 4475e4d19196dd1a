"""Parent of the container process on nodes without containers: cleans up after it, as a container would.

Role `guard`, with the argument NODE. It forks the container process, forwards its own input to it, and kills
its remaining descendants after its end. If the guard ends first, the input of the container process ends,
which then ends everything itself.
"""

import os
import signal
import sys

from .. import background_io, signals
from . import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def forward_input(pipe: int) -> None:
    """Copy standard input to a pipe until it ends."""
    try:
        with open(pipe, "wb") as sink:
            for data in iter(lambda: os.read(0, 65536), b""):
                sink.write(data)
                sink.flush()
    except BrokenPipeError:
        pass


def main(argv: "List[str]") -> int:
    """Run the container process and return its exit code. argv: NODE."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the node agent handles signals
    signals.catch(lambda _: None)
    process_tree.lock_folder(os.path.dirname(os.path.abspath(sys.argv[0])))
    process_tree.adopt_orphans()
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(sink)
        os.dup2(source, 0)
        os.close(source)
        from . import container_process

        return container_process.run_container_process(argv, is_guarded=True)
    os.close(source)
    background_io.start("messages", lambda: forward_input(sink))
    status = os.waitpid(pid, 0)[1]
    process_tree.kill_descendants()
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    os._exit(code)  # without waiting for a lock that the thread may hold
