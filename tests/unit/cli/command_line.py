"""Runs slurmray's command line: in a new process, or in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

import slurmray
from slurmray import cli

ROOT = Path(slurmray.__file__).parent.parent
HEAVY = {"jinja2", "yaml", "pydantic", "ray", "submitit"}


def run(
    *args: str, stdin: str = "", stdout: int | IO[bytes] = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "slurmray", *args],
        check=False,
        input=stdin,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **env},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


def modules_of(code: str, **env: str) -> set[str]:
    """Run Python code and return the names of all modules that are imported then."""
    return set(_run_code(code, **env).stderr.split())


def imported_by(code: str, **env: str) -> tuple[set[str], str]:
    """Run Python code; return the packages of HEAVY that it imports, and its output."""
    done = _run_code(code, **env)
    return HEAVY & set(done.stderr.split()), done.stdout


def _run_code(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python code, which may exit, and print the names of all modules to standard error."""
    code = f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def main(argv: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command line and return its exit code, stdout and stderr."""
    code = cli.main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def echo_record(*lines: str) -> str:
    """Commands of sh that print a record of `scontrol show job`: its first line, for job 7, and others."""
    return "; ".join(f'echo "{line}"' for line in ("JobId=7 JobName=a", *(f"   {line}" for line in lines)))
