"""The only module that runs a process (the inner side of a rehearsal apart, a program of its own)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
    stdin: IO[bytes] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its code and output.

    env: None is this process's own environment. text or stdin: its standard input; with neither it is empty.
    timeout: seconds, then subprocess.TimeoutExpired; None waits for ever.
    """
    source: dict[str, Any] = {"stdin": stdin} if stdin else {"input": text or ""}
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=timeout, check=False, **source
    )


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stderr: IO[bytes] | int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command with pipes to talk to it, in a session of its own: Ctrl-C is ours to hand on."""
    return subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
    )
