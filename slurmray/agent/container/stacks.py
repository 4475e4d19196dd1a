"""The stacks of a stalled trainer's Python processes on one node, and what Ray shows.

Role `stacks`, with the arguments NODE NUMBER PID...: this node, of which stall, and descendants of the
container process. Where RAY_ADDRESS is set, as on the head node, `ray status` follows the stacks. The text
goes to evidence-NUMBER.txt in the job's folder. For each process that does not wait for others, the function
that it is in goes to the controller.

Stacks are from py-spy, which Ray's dashboard brings (ray[default]).
"""

import os
import re
import shutil
import sys

from .. import command_runner, paths
from .node_context import send_to_controller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

MOST = 32  # processes of a node
TIMEOUT = 5.0  # seconds for the stacks of a process
STATUS_TIMEOUT = 10.0
ROWS_SENT = 4  # in a message, which has at most 1,000 bytes
MAX_NAME, MAX_PLACE = 60, 100  # characters
# Processes of Ray itself, workers without a task, and those that Python keeps beside others: their titles and
# commands with Ray 2.60.
OF_RAY = re.compile(
    r"^ray::(IDLE|DashboardAgent|RuntimeEnvAgent|SPILL|RESTORE)|^ray-dashboard|-m ray\.util\.client"
    r"|/ray/(dashboard|autoscaler|_private|core)/|multiprocessing\.(resource_tracker|forkserver) "
    r"|/agent (ray|container|guard|stacks)\b"
)
# Files of Python and PyTorch whose functions wait, or call others.
WAITING = re.compile(
    r"(^|/)(threading|selectors|queue|socket|ssl|subprocess|c10d_logger|_contextlib)\.py$"
    r"|(^|/)(asyncio|concurrent/futures|multiprocessing)/"
)
FRAME = re.compile(r"    (\S+) \((.*):(\d+)\)$", re.MULTILINE)
RAY_FILE = re.compile(r"(^|/)ray/(_private|_raylet|util/client|experimental)")


def main(argv: "List[str]") -> int:
    """Collect the evidence. argv: NODE NUMBER PID..."""
    node, number, *pids = argv
    spy = shutil.which("py-spy") or os.path.join(os.path.dirname(sys.executable), "py-spy")
    parts, rows = [], []
    for pid in [pid for pid in pids if _is_of_trainer(pid)][:MOST]:
        name = _name(pid)
        result = command_runner.run([spy, "dump", "--pid", pid], os.environ, TIMEOUT, is_logged=False)
        error = (result.err.strip() or result.why).partition("\n")[0] + "\n"  # a Rust backtrace follows
        parts.append("== %s, pid %s\n%s" % (name, pid, result.out if result.code == 0 else error))
        place = find_place(result.out)
        if place:
            rows.append([name[:MAX_NAME], place[:MAX_PLACE]])
        if result.code == 127:
            parts[-1] += "Install py-spy in the image for stacks: pip install py-spy\n"
            break
    if "RAY_ADDRESS" in os.environ:
        result = command_runner.run(["ray", "status"], os.environ, STATUS_TIMEOUT, is_logged=False)
        parts.append("== ray status\n" + (result.out or result.why + "\n"))
    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "evidence-%s.txt" % number)
    paths.replace(path, "\n".join(parts).encode("utf-8", "replace"))
    for first in range(0, len(rows) or 1, ROWS_SENT):
        part, is_complete = rows[first : first + ROWS_SENT], first + ROWS_SENT >= len(rows)
        send_to_controller(
            node, {"type": "stacks", "number": int(number), "rows": part, "is_complete": is_complete}
        )
    return 0


def find_place(text: str) -> str:
    """The innermost function of a process that is not just a wait, by py-spy's text: `all_reduce (a.py:1)`.

    "" where it waits for tasks of Ray, or nothing is known. The main thread counts first.
    """
    threads = re.split(r"^Thread ", text, flags=re.MULTILINE)[1:]
    threads.sort(key=lambda thread: '"MainThread"' not in thread.partition("\n")[0])
    for thread in threads:
        for function, path, line in FRAME.findall(thread):
            if RAY_FILE.search(path):
                break  # what is further out has called Ray, and waits for it
            if not WAITING.search(path):
                return "%s (%s:%s)" % (function, os.path.basename(path), line)
    return ""


def _is_of_trainer(pid: str) -> bool:
    try:
        is_python = os.path.basename(os.readlink("/proc/%s/exe" % pid)).startswith("python")
        return is_python and not OF_RAY.search(_command(pid))
    except OSError:  # it has ended, or is another user's
        return False


def _command(pid: str) -> str:
    with open("/proc/%s/cmdline" % pid, "rb") as file:
        return file.read(4096).decode("utf-8", "replace").replace("\0", " ").strip()


def _name(pid: str) -> str:
    """`rank 7`, or the command of a process."""
    try:
        with open("/proc/%s/environ" % pid, "rb") as file:
            for variable in file.read().split(b"\0"):
                if re.match(rb"RANK=\d{1,6}\Z", variable):
                    return "rank " + variable[5:].decode()
        return _command(pid)
    except OSError:
        return "a process that has ended"
