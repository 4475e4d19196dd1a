"""Judges: programs that run the trainers' published code, each in a separate virtual environment.

An environment is created on first use, from the package index that pip is configured for, and kept in
`slurmray-judges` of XDG_CACHE_HOME (~/.cache). After that, no network is needed. All environments together
take 20 seconds and 140 MB.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

# OpenRLHF has wheels for CPython 3.10 and 3.11 on x86-64 only, but without compiled code. SkyRL asks for
# Python 3.12, but not in the code that its judge runs.
_ANY_MACHINE = (
    *("--ignore-requires-python", "--only-binary=:all:", "--python-version=3.11"),
    *("--abi=cp311", "--platform=manylinux1_x86_64"),
)


@dataclass(frozen=True)
class Judge:
    """A trainer and the program that runs its code.

    wheel: the trainer, installed without dependencies. needs: the dependencies that the program uses.
    program: a module of this package, run in the environment.
    """

    wheel: str
    needs: tuple[str, ...]
    program: str


JUDGES = {
    "verl": Judge("verl==0.9.1", ("hydra-core==1.3.8", "omegaconf==2.3.1"), "judge_verl"),
    "rlinf": Judge("rlinf==0.3.0", ("omegaconf==2.3.1", "packaging==26.3"), "judge_rlinf"),
    "openrlhf-old": Judge("openrlhf==0.6.4", ("packaging==26.3",), "judge_openrlhf"),
    "openrlhf-new": Judge("openrlhf==0.11.2", ("packaging==26.3",), "judge_openrlhf"),
    "skyrl": Judge("skyrl==0.4.0", ("omegaconf==2.3.1", "pyyaml==6.0.3"), "judge_skyrl"),
    "dstack": Judge(
        "dstack==0.22.5",
        ("pydantic==2.14.3", "pyyaml==6.0.3", "gpuhunt==0.1.34", "apscheduler==3.11.3"),
        "judge_dstack",
    ),
}


def ask(name: str, cases: list[Any]) -> list[dict[str, Any]]:
    """Return the verdict on each case, in order; the judge's program documents the format of both.

    RuntimeError if the environment cannot be created or the judge fails.
    """
    judge = JUDGES[name]
    env = {variable: value for variable, value in os.environ.items() if not variable.startswith("PYTHON")}
    done = subprocess.run(
        [_python(name, judge), "-m", f"tests.judges.{judge.program}"],
        input=json.dumps(cases),
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"the judge {name} failed: {done.stderr}")
    verdicts: list[dict[str, Any]] = json.loads(done.stdout)
    return verdicts


def packages(name: str) -> Path:
    """The folder with the judge's packages, for PYTHONPATH."""
    (folder,) = _python(name, JUDGES[name]).parents[1].glob("lib/python*/site-packages")
    return folder


def _python(name: str, judge: Judge) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slurmray-judges"
    packages = " ".join((sys.version.split()[0], judge.wheel, *judge.needs))
    place = cache / f"{name}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".new-") as temporary:
            new = Path(temporary) / "env"
            _create_environment(new, judge)
            if not place.exists():  # another test run may have been faster
                shutil.move(new, place)
    return place / "bin/python"


def _create_environment(place: Path, judge: Judge) -> None:
    _run("venv", "--without-pip", str(place))
    (packages,) = place.glob("lib/python*/site-packages")
    pip = ("pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(packages))
    _run(*pip, "--no-deps", *_ANY_MACHINE, judge.wheel)
    _run(*pip, *judge.needs)


def _run(*args: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *args], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr}")
