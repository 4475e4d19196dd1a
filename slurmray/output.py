"""Writing what was rendered without losing work: a seal in its header tells whether it was edited since."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from slurmray.errors import UsageError

HEADER = "# Rendered by slurmray"
_SEAL = re.compile(r"^# slurmray-sha256: ([0-9a-f]{64})\n", re.MULTILINE)


def seal(text: str) -> str:
    """Return the script with its own hash (SHA-256 of the text without that line) after the header line."""
    line = re.search(rf"^{HEADER}.*\n", text, re.MULTILINE)
    if not line:
        raise ValueError(f"no line begins with {HEADER!r}")
    return f"{text[: line.end()]}# slurmray-sha256: {_hash(text)}\n{text[line.end() :]}"


def write_script(path: Path, text: str, force: bool) -> None:
    """Write a script or a task in one step: the file is the old one or the new one, never a part.

    What begins with #! becomes executable. A link is followed. UsageError where the place is no good, and
    without `force` where the file there is not slurmray's or was edited.
    """
    try:
        _refuse_place(path)
        if path.exists() and not force:
            _refuse_to_lose(path)
        _replace(path.resolve(), text.encode())
    except OSError as error:
        raise UsageError(
            f"{path}: can't be written: {error.strerror}; choose another place with -o"
        ) from None


def _refuse_place(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it")
    if path.is_symlink() and not path.exists():
        raise UsageError(f"{path}: is a link to {path.readlink()}, which does not exist; remove the link")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is not a regular file; use `-o -` for standard output")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it with mkdir -p {path.parent}")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_to_lose(path: Path) -> None:
    text = path.read_bytes().decode(errors="replace")
    found = _SEAL.search(text)
    if not found:
        raise UsageError(f"{path}: was not written by slurmray; choose another name with -o, or use --force")
    if _hash(_SEAL.sub("", text, count=1)) != found[1]:
        raise UsageError(f"{path}: was edited since slurmray wrote it; choose another name, or use --force")


def _mode(target: Path, content: bytes) -> int:
    """That of the file that is replaced, else what the umask leaves of a program's or a text's."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    os.umask(mask := os.umask(0o077))
    return (0o777 if content.startswith(b"#!") else 0o666) & ~mask


def _replace(target: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".slurmray-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, _mode(target, content))
            file.write(content)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
