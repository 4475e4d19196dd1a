"""Says which defects of one word the unit tests notice.

usage: python -m tests.mutants FILE

FILE: a list of defects in YAML; the head of tests/mutants.yaml has its keys. Each is applied to a copy of the
checkout, alone. The tests nearest to its module run first: its test file, its folder, the folders around it,
all unit tests. A test that passes when it is run again with the defect has not noticed it. What only mypy or
lint finds does not count.

Exit code 1: the text of a defect is not in its file, or more than once; or a test fails without a defect.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[1]
UNIT = Path("tests/unit")
# Lint, and tests that compare an installation with the checkout, which has the same defect.
LEFT_OUT = [f"--ignore={UNIT / name}" for name in ("test_templates.py", "test_wheel.py", "test_pyz.py")]
NOT_COPIED = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "slurmray-runs", "build", "dist")
MOST_SECONDS = 3600  # of the unit tests on a busy machine


class Defect(NamedTuple):
    """A text of a module, what a defect makes of it, and what a user would see."""

    path: str
    old: str
    new: str
    user: str


class Run(NamedTuple):
    """Tests that run together: where they are, and arguments of pytest."""

    where: str
    options: tuple[str, ...]


def runs(path: str) -> Iterator[Run]:
    """Yield the unit tests of a module, those of its folder, and so on; each only what has not run before."""
    file = UNIT / Path(path).relative_to("slurmray").with_name(f"test_{Path(path).name}")
    done: list[str] = []
    for where in [file, *file.parents]:
        if (ROOT / where).exists():
            yield Run(str(where), ("-n", "0" if where == file else "2", *done))
            done.append(f"--ignore={where}")
        if where == UNIT:
            return


class Copy:
    """A copy of the checkout, in which tests run. folder: is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seconds: dict[Run, float] = {}  # that tests take which pass without a defect
        shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))

    def find_test(self, defect: Defect) -> str:
        """Return the id of a test that notices a defect, or ""."""
        text = (self._folder / defect.path).read_text()
        for run in runs(defect.path):
            if run not in self._seconds:
                self._check_without_defect(run)
            self._write(defect.path, text.replace(defect.old, defect.new))
            test = self._find_failure(run, 120 + 4 * self._seconds[run])
            self._write(defect.path, text)
            if test:
                return test
            print(f"    none of {run.where}", flush=True)
        return ""

    def _check_without_defect(self, run: Run) -> None:
        begin = time.monotonic()
        if test := self._run(run, MOST_SECONDS):
            sys.exit(f"{test} fails without a defect. Run it alone, and this again when it passes")
        self._seconds[run] = time.monotonic() - begin
        print(f"    {run.where} passes without a defect ({self._seconds[run]:.0f} s)", flush=True)

    def _find_failure(self, run: Run, limit: float) -> str:
        """Return the id of a test that fails twice, or ""."""
        while (test := self._run(run, limit)) not in ("", run.where):
            if self._run(Run(test, ("-n", "0")), limit):
                break
            print(f"    {test} failed only once", flush=True)
            run = Run(run.where, (*run.options, f"--deselect={test}"))
        return test

    def _write(self, path: str, text: str) -> None:
        (self._folder / path).write_text(text)
        # Python only compares whole seconds and the size.
        shutil.rmtree((self._folder / path).parent / "__pycache__", ignore_errors=True)

    def _run(self, run: Run, limit: float) -> str:
        """Run tests until one fails. Return its id, or "".

        Where they do not end within so many seconds, or cannot be read, return what was run.
        """
        argv = [sys.executable, "-m", "pytest", "-qq", "-x", "--tb=no", "-r", "N", "--cache-clear", run.where]
        process = subprocess.Popen(
            [*argv, *run.options, *LEFT_OUT, "--dist=loadscope"],
            cwd=self._folder,
            env=dict(os.environ, PYTHONPATH=str(self._folder)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return run.where
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return ""
        failed = self._folder / ".pytest_cache/v/cache/lastfailed"
        return next(iter(json.loads(failed.read_text()))) if failed.exists() else run.where


def main(argv: Sequence[str]) -> int:
    """Print for each defect the test that notices it, at last how many are noticed. Return the exit code."""
    if len(argv) != 1:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no test and no copy stays
    defects = [Defect(**entry) for entry in yaml.safe_load(Path(argv[0]).read_text())]
    noticed, applied = 0, 0
    with tempfile.TemporaryDirectory(prefix="slurmray-mutants-") as folder:
        copy = Copy(Path(folder) / "checkout")
        for number, defect in enumerate(defects, 1):
            begin, *ends = (ROOT / defect.path).read_text().split(defect.old)
            line = begin.count("\n") + 1
            print(f"{number} of {len(defects)}: {defect.path}:{line}: {defect.user}", flush=True)
            if len(ends) != 1:
                print(f"  does not apply: the file has the text {len(ends)} times: {defect.old}", flush=True)
                continue
            applied += 1
            test = copy.find_test(defect)
            noticed += bool(test)
            print(f"  noticed: {test}" if test else "  NOT NOTICED", flush=True)
    print(f"{noticed} of {len(defects)} noticed")
    return int(applied < len(defects))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
