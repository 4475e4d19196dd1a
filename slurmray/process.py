"""Runs processes. Only this module does, except for programs that run inside a rehearsal."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
    stdin: IO[bytes] | None = None,
    folder: str | Path | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its exit code and output.

    env: None is this process's environment. text or stdin: its standard input, empty without either. folder:
    where it runs. timeout: seconds until subprocess.TimeoutExpired; None: no limit.
    """
    source: dict[str, Any] = {"stdin": stdin} if stdin else {"input": text or ""}
    return subprocess.run(
        argv, env=env, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False, **source
    )


def run_bytes(
    argv: Sequence[str], *, data: bytes, timeout: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The same for a command whose input and output may be no text. data: its standard input."""
    return subprocess.run(argv, input=data, capture_output=True, timeout=timeout, check=False)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stderr: IO[bytes] | int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command with pipes for stdin and stdout, in a new session, where Ctrl-C does not reach it."""
    return subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
    )
