"""Runs commands to their end or a deadline, and collects their output.

The end of a command is that of its process, not that of its output, which a daemon of it may hold open.
"""

import os
import select
import signal
import subprocess
import time

from . import inherited, job_log, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Callable, Dict, Iterable, List, Mapping, Optional, Set

TIMEOUT = 124  # exit code of a command that was ended because it was late, as of timeout(1)
READ_SIZE = 65536
PAUSE = 0.1  # seconds between two looks whether it has ended
TERM_WAIT = 5.0  # seconds between SIGTERM and SIGKILL
REST = 1 << 20  # bytes of output read at most after its end: what a pipe may hold
OUTPUT_KEPT = 1 << 16  # bytes of the output of a long command
LOCK_PAUSE = 1.0  # seconds between two looks whether it waits for a lock
LOCK_PATIENCE = 10.0  # seconds of waiting for a lock, after which `on_long_wait` is called
LOCK_WAIT = 900.0  # seconds of it that do not count: Podman holds a lock for 5 s per GB that it unpacks
# Kills the process group whose id it has read, if no other line follows. It is outside the task's process
# tree, which Slurm kills at once after scancel; without cgroups not a Podman that is between two processes.
GUARD = 'read -r group && { read -r _ || kill -s KILL -- "-$group"; }'
# A command names its process group to the guard, its standard input, before it begins: this process may be
# killed at any time.
NAMED = 'trap "" PIPE; echo $$ >&0; trap - PIPE; exec "$@" </dev/null'


class Result:
    """The result of a command.

    code: exit code; TIMEOUT where it was late, 127 where the program does not exist. out, err: its output.
    why: the last line of err, or a description of the failure.
    """

    __slots__ = ("code", "err", "out", "why")

    def __init__(self, code: int, out: str = "", err: str = "", why: str = "") -> None:
        self.code = code
        self.out = out
        self.err = err
        self.why = why


def run(
    argv: "List[str]",
    env: "Mapping[str, str]",
    timeout: "Optional[float]",
    is_interrupted: "Callable[[], bool]" = lambda: False,
    is_logged: bool = True,
    is_hopeless: "Callable[[bytearray], bool]" = lambda _: False,
    on_lock: "Optional[Callable[[], None]]" = None,
) -> Result:
    """Run a command, in a session of its own.

    timeout: seconds; None for a long command, whose output and standard error are one text, `out`, and go
    to the log while it runs. is_interrupted: whether it is to be ended; is_hopeless: the same, by its
    output so far. is_logged: whether the standard error of a short one goes to the log.
    """
    is_long = timeout is None
    guard = _start_guard() if is_long else None
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", NAMED, "sh", *argv] if is_long else argv,
            stdin=guard or subprocess.DEVNULL, stdout=subprocess.PIPE, env=env, start_new_session=True,
            stderr=subprocess.STDOUT if is_long else subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        why = "cannot execute %s: %s" % (argv[0], error.strerror)
        if paths.is_missing(error, argv[0], env.get("PATH", "")):
            why = "%s: not found" % argv[0]
        return Result(127, "", why, why)
    due = float("inf") if timeout is None else time.monotonic() + timeout
    assert process.stdout
    out, err = bytearray(), bytearray()
    streams = {process.stdout.fileno(): _copy_to(out) if is_long else out.extend}
    if process.stderr:
        streams[process.stderr.fileno()] = _copy_to(err) if is_logged else err.extend
    is_late = collect(process, streams, due, lambda: is_interrupted() or is_hopeless(out), on_lock)
    if guard:
        _dismiss(guard, process)
    for stream in filter(None, (process.stdout, process.stderr, guard)):
        stream.close()
    output, errors_text = (data.decode("utf-8", "surrogateescape") for data in (out, err))
    name = " ".join(argv[:2])
    if is_late:
        return Result(TIMEOUT, output, errors_text, "%s does not answer" % name)
    lines = (output if is_long else errors_text).rstrip().splitlines()
    why = lines[-1] if lines else "%s exited with %d" % (name, process.returncode)
    return Result(process.returncode, output, errors_text, why)


def _start_guard() -> "IO[bytes]":
    """Start GUARD; return its standard input, which ends with this process."""
    argv = ["setsid", "--fork", "/bin/sh", "-c", GUARD]
    null = subprocess.DEVNULL
    starter = subprocess.Popen(argv, bufsize=0, stdin=subprocess.PIPE, stdout=null, stderr=null)
    assert starter.stdin
    starter.wait()
    return starter.stdin


def _dismiss(guard: "IO[bytes]", process: "subprocess.Popen[bytes]") -> None:
    """Leave what a command has started alone, unless a signal ended it: Slurm may have missed the rest."""
    try:
        if process.returncode is None or process.returncode < 0:
            os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        guard.write(b"ended\n")
    except BrokenPipeError:
        pass  # somebody killed it


def run_slurm(
    argv: "List[str]",
    timeout: float,
    is_logged: bool = False,
    is_interrupted: "Callable[[], bool]" = lambda: False,
) -> Result:
    """Run a command of Slurm without the options that variables give it: see run.

    It prints times as seconds since 1970, whatever the time zone.
    """
    env = dict(inherited.drop_command_options(os.environ), SLURM_TIME_FORMAT="%s")
    return run(argv, env, timeout, is_interrupted, is_logged)


def active_jobs(jobs: "Iterable[str]", run: "Callable[[List[str]], Result]") -> "Optional[Set[str]]":
    """Jobs that may use a node, by one request to slurmctld; None if it does not answer.

    run: runs a command of Slurm, on a node or by the controller for nodes without these commands.
    """
    ids = sorted(jobs, key=int)
    argv = ["squeue", "--all", "--noheader", "--jobs=" + ",".join(ids), "--format=%A %t"]
    result = run(argv)
    if result.code == 0:
        lines: "List[List[str]]" = [line.split() for line in result.out.splitlines()]
        # PD: requeued, so its last attempt has ended.
        return {line[0] for line in lines if line and line[1:] != ["PD"]}
    if "Invalid job id specified" not in result.err:
        return None
    if len(ids) == 1:
        return set()
    # squeue does not name the invalid id, and some versions fail because of one of several. So ask for each.
    active: "Set[str]" = set()
    for job in ids[:20]:
        answer = active_jobs([job], run)
        if answer is None:
            return None
        active |= answer
    return active | set(ids[20:])


def read_commit(folder: str) -> str:
    """The commit of a git work tree; "" where there is none. folder: absolute."""
    result = run(["git", "-C", folder, "rev-parse", "HEAD"], os.environ, 20)
    return "" if result.code == TIMEOUT else result.out.strip()


def collect(
    process: "subprocess.Popen[bytes]",
    streams: "Dict[int, Callable[[bytes], None]]",
    due: float,
    is_interrupted: "Callable[[], bool]",
    on_lock: "Optional[Callable[[], None]]" = None,
) -> bool:
    """Pass the output of a process on until it has ended; return whether it was ended because it was late.

    It leads a session, which gets SIGTERM, on which a runtime cleans up, and SIGKILL when it is late or
    interrupted. streams: descriptor -> function for its data. due: time.monotonic(). on_lock: if given, time
    in which it waits for a lock of a file does not count; called while that takes long.
    """
    signals = [signal.SIGTERM, signal.SIGKILL]
    is_late, wait_until, rest = False, 0.0, REST
    locks = _LockWatch(process.pid, on_lock)
    while True:
        has_ended = process.poll() is not None  # before reading: then all that it wrote is there
        now = time.monotonic()
        due += 0 if has_ended else locks.look(now)
        if not has_ended and (now > due or is_interrupted()) and now > wait_until:
            if not signals:
                return True  # not even SIGKILL ends it: it waits for a device
            is_late, wait_until = now > due, now + TERM_WAIT
            try:
                os.killpg(process.pid, signals.pop(0))
            except ProcessLookupError:
                pass
        ready = select.select(list(streams), [], [], 0 if has_ended else PAUSE)[0] if streams else []
        if not (streams or has_ended):
            try:
                process.wait(PAUSE)
            except subprocess.TimeoutExpired:
                pass
        for descriptor in ready:
            data = os.read(descriptor, READ_SIZE)
            if data:
                streams[descriptor](data)
            else:
                del streams[descriptor]
            rest -= len(data) if has_ended else 0
        if has_ended and not (ready and rest > 0):
            return is_late


class _LockWatch:
    """Measures how long a command waits for locks. session: its id. on_long_wait: called while it is long."""

    def __init__(self, session: int, on_long_wait: "Optional[Callable[[], None]]") -> None:
        self._session = session
        self._on_long_wait = on_long_wait
        self._looked = time.monotonic()
        self._waited = 0.0

    def look(self, now: float) -> float:
        """Seconds since the last look, if it waits for a lock. now: time.monotonic()."""
        passed = now - self._looked
        if not self._on_long_wait or passed < LOCK_PAUSE or self._waited > LOCK_WAIT:
            return 0.0
        self._looked = now
        if not _waits_for_lock(self._session):
            return 0.0
        self._waited += passed
        if self._waited > LOCK_PATIENCE:
            self._on_long_wait()
        return passed


def _waits_for_lock(session: int) -> bool:
    """Whether a process of a session waits for a lock of a file."""
    try:
        with open("/proc/locks") as file:  # "1: -> POSIX ADVISORY WRITE PID ..." is one that waits
            waiting = [line.split()[5] for line in file if "->" in line]
    except OSError:
        return False
    for pid in waiting:
        try:
            if os.getsid(int(pid)) == session:
                return True
        except OSError:
            pass  # it has ended
    return False


def _copy_to(kept: bytearray) -> "Callable[[bytes], None]":
    """A function that writes output to the log and adds it to `kept`, which loses what is long ago."""

    def copy(data: bytes) -> None:
        job_log.write_stderr(data)
        kept.extend(data)
        del kept[:-OUTPUT_KEPT]

    return copy
