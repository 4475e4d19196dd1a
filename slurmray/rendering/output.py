"""Writes scripts and tasks, but never over edits: a seal, the hash in their header, shows edits."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from slurmray.errors import UsageError
from slurmray.files import read

HEADER = "# Rendered by slurmray"
SEAL = re.compile(r"^# slurmray-sha256: ([0-9a-f]{64})\n", re.MULTILINE)


def seal(text: str) -> str:
    """Return the text with a seal after the header line: the SHA-256 of the text without that line."""
    match = re.search(rf"^{HEADER}.*\n", text, re.MULTILINE)
    if not match:
        raise ValueError(f"no line begins with {HEADER!r}")
    return f"{text[: match.end()]}# slurmray-sha256: {sha256(text)}\n{text[match.end() :]}"


def write_scripts(texts: Mapping[Path, str], force: bool) -> None:
    """Write scripts or tasks, for their owner alone: any value or command of a job spec may be a secret.

    UsageError without `force` if a file exists and is foreign or was edited.
    """
    write_files(texts, None if force else _refuse_overwriting, max_mode=0o700)


def find_place(folder: Path, name: str) -> Path:
    """Return the real path of what another program may write in a folder. UsageError.

    It must be in the folder or below it. No name on its path may begin with a dot, but for those that lead
    to the current folder.
    """
    place, here = Path(os.path.realpath(folder / name)), Path.cwd()
    names = (place.relative_to(here) if place.is_relative_to(here) else place).parts
    if not place.is_relative_to(folder) or any(part.startswith(".") for part in names):
        raise UsageError(f"{place}: is not below {folder}, or a name in it begins with a dot")
    return place


def write_files(
    files: Mapping[Path, str], refuse: Callable[[Path], None] | None, *, max_mode: int = 0o777
) -> None:
    """Write all files or, with a UsageError, none. Each is replaced atomically; symbolic links are followed.

    Texts that begin with #! become executable. refuse: called with each existing path; may raise UsageError.
    max_mode: what others may do with them, also where a file that others can read is replaced.
    """
    made: list[tuple[Path, Path]] = []
    try:
        for path, text in files.items():
            _check_place(path)
            if refuse and path.exists():
                refuse(path)
            target = path.resolve()
            made.append((_write_temporary(target, text.encode(), max_mode), target))
        for new, target in made:
            new.replace(target)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another place") from None
    finally:
        for new, _ in made:
            new.unlink(missing_ok=True)


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it")
    if path.is_symlink() and not path.exists():
        raise UsageError(f"{path}: is a link to {path.readlink()}, which does not exist; remove the link")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is not a regular file; use `-o -` for standard output")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it with mkdir -p {path.parent}")


def sha256(text: str) -> str:
    """Return the hash of a text, as in headers."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def is_sealed(text: str) -> bool:
    """Return whether a text has a seal and was not edited since."""
    match = SEAL.search(text)
    return match is not None and sha256(SEAL.sub("", text, count=1)) == match[1]


def _refuse_overwriting(path: Path) -> None:
    text = read(path).decode(errors="replace")
    if not SEAL.search(text):
        raise UsageError(f"{path}: was not written by slurmray; choose another name with -o, or use --force")
    if not is_sealed(text):
        raise UsageError(f"{path}: was edited since slurmray wrote it; choose another name, or use --force")


def _choose_mode(target: Path, content: bytes) -> int:
    """The mode of the file that is replaced, else that of a new program or text by the umask."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    os.umask(mask := os.umask(0o077))
    return (0o777 if content.startswith(b"#!") else 0o666) & ~mask


def _write_temporary(target: Path, content: bytes, max_mode: int) -> Path:
    """Write the content to a new file in the folder of `target`; return its path."""
    descriptor, name = tempfile.mkstemp(prefix=".slurmray-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, _choose_mode(target, content) & max_mode)
            file.write(content)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)
