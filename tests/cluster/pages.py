"""Pages of docs/ whose commands are run as they are."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from slurmray import local_commands

from .jobs import HANG, wait_until

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Where a person would wait.
_NOT_YET = re.compile("the job is PENDING|no events in|cluster not ready")


def run_page(page: Path) -> None:
    """Write the files of a page, run its commands, and compare their output, in the current folder.

    A file's block begins with its path in a comment, after `#!` in bash. A `text` block is what the command
    before it prints.
    """
    printed = ""
    for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind in ("python", "yaml", "bash"):
            comments = (line for line in text.splitlines() if line.startswith("# "))
            path = Path(next(comments).removeprefix("# ")).expanduser()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif kind == "text":
            assert _is_shown(printed, text), printed
        for line in text.splitlines() if kind == "sh" else ():
            printed = _run(line)


def _is_shown(printed: str, text: str) -> bool:
    """Whether a page shows an output. In a page, a line `...` stands for any lines."""
    lines = re.escape(_without_ids(text)).split("\\\n")
    pattern = "".join(r"(?:.*\n)*" if line.endswith(r"\ \.\.\.") else line + r"\n" for line in lines[:-1])
    return bool(re.fullmatch(pattern, _without_ids(printed)))


def _without_ids(text: str) -> str:
    return re.sub(r"\bjob \d+", "job N", text)


def _run(line: str) -> str:
    """Run a line of a page; return its standard output."""
    command, _, comment = line.partition(" #")
    name, *arguments = shlex.split(command)
    assert name == "slurmray", "the page needs no other command"
    done: list[subprocess.CompletedProcess[str]] = []

    def is_done() -> bool:
        done[:] = [local_commands.run([sys.executable, "-m", "slurmray", *arguments], timeout=HANG)]
        return not _NOT_YET.search(done[0].stderr)

    wait_until(is_done, lambda: str(done))
    assert done[0].returncode == int(comment.partition("exit code ")[2] or 0), (line, done)
    return done[0].stdout
