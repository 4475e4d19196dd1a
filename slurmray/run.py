"""The only module that runs a process (the inner side of a rehearsal apart, which is a program of its own)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import IO


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its code and output.

    env: None is this process's own environment. text: its standard input; None is an empty one.
    timeout: seconds, then subprocess.TimeoutExpired; None waits for ever.
    """
    return subprocess.run(
        argv, env=env, input=text or "", capture_output=True, text=True, timeout=timeout, check=False
    )


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stderr: IO[bytes] | int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, so that Ctrl-C is ours to hand on, with pipes to talk to it."""
    return subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
    )
