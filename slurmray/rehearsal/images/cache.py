"""What a rehearsal builds once and keeps: whole or not there at all, whoever else builds at the same time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from slurmray import process
from slurmray.errors import RehearsalError

# Where packages put their programs; the caller's own path may lack sbin, or begin with somebody's wrapper.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"

# Root in a mount namespace of its own, and for an ordinary user in a user namespace as `podman unshare`
# maps it: root inside is the user, everything else comes from /etc/subuid and /etc/subgid.
_PRIVATE = ["unshare", "--mount", "--propagation", "private"]
_MAPPED = ["--user", "--map-root-user", "--map-auto"]

_PROGRESS_EVERY = 5.0  # seconds


def as_root(*extra: str) -> list[str]:
    """Words before a command that needs root's rights over files; `extra` are options of unshare(1)."""
    return [*_PRIVATE, *([] if os.geteuid() == 0 else _MAPPED), *extra, "--"]


def contained(*extra: str) -> list[str]:
    """The same, and all that the command starts ends with it."""
    return as_root("--pid", "--fork", "--kill-child=KILL", "--mount-proc", *extra)


def key(*inputs: object) -> str:
    """Twelve hex digits that change when any of `inputs` (JSON types) changes."""
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]


def call(argv: Sequence[str], failure: str, env: Mapping[str, str] | None = None) -> None:
    """Run to the end, or to this process's own, whatever ends that.

    RehearsalError where it fails: `failure`, then the first complaint of the program.
    """
    done = process.run(["setpriv", "--pdeathsig", "KILL", *argv], env={**os.environ, **(env or {})})
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines()
        errors = [line for line in lines if line.startswith(("E:", "ERROR", "Error"))] or lines[-1:]
        raise RehearsalError(": ".join([failure, *errors[:1]]))


def once(cache: Path, name: str, build: Callable[[Path], object], say: Callable[[str], None]) -> Path:
    """`cache/name`, made by `build(path)` if it is not there yet; `say` hears now and then how much there is.

    Two callers at once build it once. What an interrupted build left is removed, at the latest by the next.
    """
    final = cache / name
    if final.exists():
        return final
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            return final
        scratch = cache / f".{name}.new"
        _remove(scratch)
        scratch.mkdir()
        try:
            with _progress(scratch, say):
                build(scratch / name)
            (scratch / name).rename(final)
        finally:
            _remove(scratch)
    return final


@contextmanager
def _progress(scratch: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Tell now and then how much has been written below `scratch`."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(_PROGRESS_EVERY):
            say(f"  {_size(scratch) // 1_000_000} MB so far")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _size(folder: Path) -> int:
    """Return the bytes in a folder that others are writing to, as far as this user may see."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):  # it has gone
                total += Path(place, name).lstat().st_size
    return total


def _remove(path: Path) -> None:
    """Remove a tree, also one whose files belong to a user's subordinate ids."""
    if path.exists():
        call([*as_root(), "rm", "-rf", "--one-file-system", str(path)], f"cannot remove {path}")
