"""Fixtures of a folder for jobs, and of a Slurm that only answers requests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ..programs import install

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for functions of these modules
    return tmp_path


@pytest.fixture
def answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a squeue and a sacct that run these shell commands."""

    def answer(squeue: str, sacct: str = "exit 1") -> None:
        for name, text in {"squeue": squeue, "sacct": sacct}.items():
            install(folder, **{name: f"echo {name} >>asked\n{text}"})

    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return answer
