"""What only root's tests have: other users and small file systems; and umasks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BOB = 65530  # a user without a name
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="has several users, or mounts a file system")


@contextmanager
def umask_is(mode: int) -> Iterator[None]:
    old = os.umask(mode)
    try:
        yield
    finally:
        os.umask(old)


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """As a user instead of root."""
    old = os.geteuid()
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(old)


@contextmanager
def mounted(folder: Path, limit: str) -> Iterator[Path]:
    """A file system in memory with a limit, e.g. `size=1m`."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", limit, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
