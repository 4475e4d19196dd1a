"""The job's log and its events: an event is a line of events.jsonl and, for most, a line of the log."""

import errno
import json
import os
import stat
import time

from . import background_io, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

VERSION = 1
TABLE_WIDTHS = (16, 17)  # minimum width of the first two columns
FLUSH_SECONDS = 60.0  # for the last writes, as a file system may stall
REFUSED_SECONDS = 2.0  # for those that a file system refuses: Slurm may be about to kill the batch script
KEPT = 8 << 20  # bytes of lines that wait to be written

# Event -> its log line; others have none. docs/reference/events.md has all events and their fields.
LINES: "Dict[str, str]" = {
    "start": "start: job {job} on {nodes_text}, head node {head}, logs in {run_dir}/logs",
    "attempt": "attempt {attempt} of this job; at most {chances} more after lost nodes or preemption",
    "grace": "stop.grace is {seconds} s here: the cluster's KillWait is {kill_wait} s",
    "phase": "{phase}: {text}",
    "attach": "attach: {command}",
    "trainer": "trainer: {command}",
    "node_loss": "node loss: {node}: {text}; the job continues without it",
    "replacement": "spare node {node} joins Ray in place of {lost}",
    "set_aside": "set aside: {node}: {text}",
    "unplaceable": "unplaceable: {text}. {fix}",
    "stall": "stalled: {text}; see {folder}",
    "failure": "{text}; the trainer has {seconds} s to end",
    "restart": "{text}",
    "stop": "stop: scancel, preemption, the time limit or a lost node ends the job",
    "stop_now": "stop: the grace period ends, by slurmray cancel --now",
    "time_limit": "time limit or preemption near: the trainer gets {signal}, and has {seconds} s",
    "requeue": "requeue: {reason}; attempt {attempt} follows",
    "end": "{text}",
}


class JobLog:
    """Writes log and events in a thread. started: time.time() when the batch script began."""

    def __init__(self, started: float) -> None:
        self.started = started
        self.observer: "Optional[Callable[[str, Dict[str, Any]], None]]" = None  # gets each event
        self._path = ""
        self._early = ""  # events from before there is a run directory
        self._start = ""  # the event, for a file that somebody has removed
        # Two queues: a log that is refused for ever, e.g. a removed one on NFS, keeps no event back.
        self._lines = background_io.CallQueue("the job's log")
        self._events = background_io.CallQueue("events.jsonl")
        self._added = self._written = self._lost = 0  # bytes of lines
        self._due = float("inf")  # until when a refused write is tried again

    def open(self, run_dir: str) -> None:
        """Write events to the run directory from now on, including those recorded so far."""
        self._path = os.path.join(run_dir, "events.jsonl")
        self._record(self._early)

    def event(self, name: str, **fields: "Any") -> None:
        """Record an event and write its log line."""
        if name in LINES:
            self.write(LINES[name].format(**fields))
        text = event_line(name, fields)
        self._record(text)
        if name == "start":
            self._start = text
        if self.observer:
            self.observer(name, fields)

    def _record(self, text: str) -> None:
        path, start = self._path, self._start
        if path:
            self._events.submit(lambda: self._persist(lambda: append(path, text, start)))
        else:
            self._early += text

    def write(self, text: str) -> None:
        """Write a line to the log, with the time; `text` may have several."""
        self.write_raw(log_line(self.started, text))

    def write_raw(self, text: str) -> None:
        """Write lines to the log as they are."""
        self.copy(text.encode("utf-8", "surrogateescape"), True)

    def copy(self, data: bytes, begins_line: bool) -> None:
        """Write another program's output to the log. begins_line: whether its last part ended a line."""
        if self._added - self._written > KEPT:
            self._lost += len(data)
            return
        self._added += len(data)
        self._lines.submit(lambda: self._write(data, begins_line))

    def _write(self, data: bytes, begins_line: bool) -> None:
        rest = bytearray(data)

        def write() -> None:
            while rest:
                if begins_line and len(rest) == len(data) and not ends_line(2):
                    os.write(2, b"\n")
                del rest[: os.write(2, rest)]

        self._persist(write)
        self._written += len(data)
        if self._lost:
            lost, self._lost = self._lost, 0
            self.write("%d bytes of messages are lost: the log could not be written" % lost)

    def _persist(self, write: "Callable[[], None]") -> None:
        """Try again while a file system refuses, as copy_output.py does for the trainer."""
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno in background_io.FINAL or time.monotonic() > self._due:
                    raise
            time.sleep(background_io.PAUSE)

    def write_table(self, rows: "List[List[str]]") -> None:
        """Write the table of findings; the first row is its header."""
        widths = [max(TABLE_WIDTHS[column], *(len(row[column]) for row in rows)) for column in range(2)]
        lines = [
            printable(" ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]) + " ", " | ".join(row[2:])]))
            for row in rows
        ]
        self.write_raw("".join(line + "\n" for line in lines))

    def finish(self) -> None:
        """Wait until everything is written."""
        now = time.monotonic()
        self._due = now + REFUSED_SECONDS
        self._events.finish(FLUSH_SECONDS)
        self._lines.finish(max(0.0, now + FLUSH_SECONDS - time.monotonic()))


def event_line(name: str, fields: "Dict[str, Any]") -> str:
    """A line of events.jsonl."""
    return json.dumps(dict({"v": VERSION, "time": round(time.time(), 3), "event": name}, **fields)) + "\n"


def log_line(started: float, text: str) -> str:
    """A line of the job's log. started: time.time() when the batch script began."""
    return "[slurmray %5.1f s] %s\n" % (time.time() - started, printable(text))


def append(path: str, text: str, first: str = "") -> None:
    """Append lines to a file in one write, so that those of several processes do not mix.

    first: what comes before them in an empty file.
    """
    descriptor = paths.own_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        text = text if os.fstat(descriptor).st_size else first + text
        data = text.encode("utf-8", "surrogateescape")
        if data and not ends_line(descriptor):
            data = b"\n" + data
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(descriptor)


def ends_line(descriptor: int) -> bool:
    """Whether the last line of a file that is open for writing is complete: a trainer's may have no newline.

    True where that is not known.
    """
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return True
        with open("/proc/self/fd/%d" % descriptor, "rb", 0) as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:  # e.g. an empty file
        return True


def write_stderr(data: bytes) -> None:
    """Write all data to standard error. A full disk is no error."""
    try:
        background_io.write_all(2, data)
    except OSError:
        pass


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return "%d %s" % (number, noun if number == 1 else noun + "s")


def describe(error: Exception) -> "Tuple[str, str]":
    """(kind, message) of an unexpected error. Writes the traceback to the log, if it can be written."""
    import traceback

    try:
        # Not through sys.stderr: what that cannot write would be the exit code 120 of Python.
        background_io.write_all(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    except OSError as full:
        error = full
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = " (%s)" % error.filename if error.filename else ""
        return "preflight", "cannot write%s: %s. Free space, or set run_dir" % (where, error.strerror)
    return "internal", "%s: %s" % (type(error).__name__, error)


def why_full(folder: str) -> str:
    """Why nothing can be written to a folder: a full disk or quota; "" if something can."""
    path = os.path.join(folder, ".slurmray-" + os.urandom(8).hex())
    try:
        with open(path, "xb", 0) as file:
            try:
                background_io.write_all(file.fileno(), b"\0" * 8192)
            finally:
                os.unlink(path)
    except OSError as error:
        return "cannot write to %s: %s. Free space, or set run_dir" % (folder, error.strerror)
    return ""


def printable(text: str) -> str:
    """The text with blanks for control characters, which would act on a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
