"""Writing what was rendered without losing work: a seal in its header tells whether it was edited since."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping
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
    """Write a script or a task; UsageError without `force` where the file there is not ours or was edited."""
    write_files({path: text}, None if force else _refuse_to_lose)


def write_files(files: Mapping[Path, str], refuse: Callable[[Path], None] | None) -> None:
    """Write all of them or, with a UsageError, none: each is the old one or the new one, never a part.

    What begins with #! becomes executable. A link is followed. refuse: asked about each that is there.
    """
    made: list[tuple[Path, Path]] = []
    try:
        for path, text in files.items():
            _refuse_place(path)
            if refuse and path.exists():
                refuse(path)
            target = path.resolve()
            made.append((_beside(target, text.encode()), target))
        for new, target in made:
            new.replace(target)
    except OSError as error:
        raise UsageError(f"{path}: can't be written: {error.strerror}; choose another place") from None
    finally:
        for new, _ in made:
            new.unlink(missing_ok=True)


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


def _beside(target: Path, content: bytes) -> Path:
    """Write what is to take a file's place into a new file of the same folder, and return that."""
    descriptor, name = tempfile.mkstemp(prefix=".slurmray-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, _mode(target, content))
            file.write(content)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)
