"""Runs commands on this host: to their end, in the foreground, or with pipes."""

from __future__ import annotations

import signal
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
    where it runs. timeout: seconds until subprocess.TimeoutExpired; None: no limit. Bytes that are not UTF-8
    are surrogates, as in file names.
    """
    source: dict[str, Any] = {"stdin": stdin} if stdin else {"input": text or ""}
    return subprocess.run(
        argv,
        env=env,
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=timeout,
        check=False,
        **source,
    )


def run_in_foreground(argv: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a command with this process's terminal or streams; return its exit code, 128 + n for signal n.

    The terminal sends Ctrl-C and Ctrl-\\ to both: they are the command's to handle. A signal that ends this
    process otherwise is passed on.
    """
    command: list[subprocess.Popen[bytes]] = []

    def handle(number: int, _frame: object) -> None:
        if command and number not in (signal.SIGINT, signal.SIGQUIT):
            command[0].send_signal(number)

    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as of nohup, for the command too
            signal.signal(number, handle)
    command.append(subprocess.Popen(argv, env=env))
    code = command[0].wait()
    return code if code >= 0 else 128 - code


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
