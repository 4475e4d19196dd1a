"""What a job inherits from where it was submitted."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import pytest

from slurmray.agent import inherited

from .users import umask_is

SET = """
import resource, sys
from slurmray.agent import inherited
kind = getattr(resource, sys.argv[1])
hard = resource.getrlimit(kind)[1]
resource.setrlimit(kind, (int(sys.argv[2]), hard))
inherited.raise_soft_limits()
found = resource.getrlimit(kind)
"""


def run(program: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True, check=False)


@pytest.mark.attack("a soft limit of the submit host", inputs=1)
@pytest.mark.parametrize(
    ("kind", "soft"),
    [
        ("RLIMIT_AS", 4 << 30),
        ("RLIMIT_CPU", 3600),
        ("RLIMIT_DATA", 2 << 30),
        ("RLIMIT_FSIZE", 1 << 20),
        ("RLIMIT_MEMLOCK", 8192),
        ("RLIMIT_NPROC", 4096),
        ("RLIMIT_RSS", 1 << 30),
    ],
)
def test_soft_limits_are_raised(kind: str, soft: int) -> None:
    done = run(SET + "assert found == (hard, hard), found", kind, str(soft))
    assert done.stderr == ""


def test_open_files() -> None:
    done = run(SET + "assert found == (min(hard, 65535), hard), found", "RLIMIT_NOFILE", "256")
    assert done.stderr == ""


def test_limits_of_stack_and_core_files_stay() -> None:
    for kind in ("RLIMIT_STACK", "RLIMIT_CORE"):
        assert run(SET + "assert found[0] == 1 << 20, found", kind, str(1 << 20)).stderr == ""


def test_the_umask() -> None:
    with umask_is(0o037):
        assert [inherited.umask(), inherited.umask()] == [0o037, 0o037]


def test_the_account_of_a_job_without_variables() -> None:
    user = pwd.getpwuid(os.getuid())
    env = {"USER": "", "SHELL": "/bin/fish"}
    inherited.add_account(env)
    name = user.pw_name
    assert env == {"HOME": user.pw_dir, "USER": name, "LOGNAME": name, "SHELL": "/bin/fish"}


def test_a_user_without_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    env: dict[str, str] = {}
    inherited.add_account(env)
    assert env == {}
