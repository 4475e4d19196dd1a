"""Cache of images and root filesystems. An entry is built once, and is complete as soon as it exists."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from slurmray import local_commands
from slurmray.errors import RehearsalError

# A private mount namespace. Ordinary users also get a user namespace, mapped like that of `podman unshare`:
# root inside is the user, all other ids are from /etc/subuid and /etc/subgid.
_PRIVATE = ["unshare", "--mount", "--propagation", "private"]
_MAPPED = ["--user", "--map-root-user", "--map-auto"]

_PROGRESS_EVERY = 5.0  # seconds


def as_root(*extra: str) -> list[str]:
    """Return a prefix that runs a command with root's rights on files. extra: options of unshare(1)."""
    return [*_PRIVATE, *([] if os.geteuid() == 0 else _MAPPED), *extra, "--"]


def isolated(*extra: str) -> list[str]:
    """Return the prefix of `as_root` with a PID namespace: all child processes end with the command."""
    return as_root("--pid", "--fork", "--kill-child=KILL", "--mount-proc", *extra)


def key(*inputs: object) -> str:
    """Return a cache key for `inputs` (JSON types): twelve hex digits."""
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]


def call(argv: Sequence[str], failure: str, env: Mapping[str, str] | None = None) -> None:
    """Run a command, which is killed if this process dies.

    RehearsalError if it fails, with `failure` and the program's first error message.
    """
    result = local_commands.run(["setpriv", "--pdeathsig", "KILL", *argv], env={**os.environ, **(env or {})})
    if result.returncode != 0:
        lines = (result.stderr + result.stdout).strip().splitlines()
        errors = [line for line in lines if line.startswith(("E:", "ERROR", "Error"))] or lines[-1:]
        raise RehearsalError(": ".join([failure, *errors[:1]]))


def build_once(cache: Path, name: str, build: Callable[[Path], object], log: Callable[[str], None]) -> Path:
    """Return `cache/name`; `build(path)` creates it if it does not exist. `log` gets progress lines.

    Concurrent callers build it once. The next build removes files of an interrupted one.
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
            with _progress(scratch, log):
                build(scratch / name)
            (scratch / name).rename(final)
        finally:
            _remove(scratch)
    return final


@contextmanager
def _progress(scratch: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Log every few seconds how much has been written below `scratch`."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(_PROGRESS_EVERY):
            log(f"  {_size(scratch) // 1_000_000} MB so far")

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _size(folder: Path) -> int:
    """Return the size in bytes of the readable files in a folder, while others write to it."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):  # removed meanwhile
                total += Path(place, name).lstat().st_size
    return total


def _remove(path: Path) -> None:
    """Remove a tree, even if its files belong to the user's subordinate ids."""
    if path.exists():
        call([*as_root(), "rm", "-rf", "--one-file-system", str(path)], f"cannot remove {path}")
