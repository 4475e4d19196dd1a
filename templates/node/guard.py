"""The first process of a node without a container: does for node.py what a container does.

Hands its input on to node.py, and when that has ended, of whatever cause, kills what is left of it. When this
process ends first, so does the input of node.py, which then ends everything.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import below


def hand_on(sink):
    """Copies the standard input to its end."""
    with contextlib.suppress(BrokenPipeError), sink:
        for data in iter(lambda: os.read(0, 65536), b""):
            sink.write(data)
            sink.flush()


def main():
    """See the text of the module. The exit code is that of node.py."""
    for number in (signal.SIGTERM, signal.SIGINT):  # they are for the task of the node
        signal.signal(number, lambda *_: None)
    folder = os.path.dirname(os.path.abspath(__file__))
    below.hold(folder)
    below.adopt()
    words = [sys.executable, os.path.join(folder, "node.py"), *sys.argv[1:]]
    node = subprocess.Popen(words, stdin=subprocess.PIPE)
    threading.Thread(target=hand_on, args=[node.stdin], daemon=True).start()
    code = node.wait()
    below.kill()
    os._exit(code % 256)  # the thread may hold a lock that a usual end would wait for


if __name__ == "__main__":
    main()
