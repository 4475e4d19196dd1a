"""Output of bench.boot, with simulated measurements."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import boot
from bench.boot import Measured

BEGIN = (
    "| hosts | way | trainer's first line, s | a task on each node, s | CPU seconds until the first line "
    "| job over, hosts clean, s |\n"
    "|---|---|---|---|---|---|\n"
    "| 2 | one srun, a probe, no checks | 2.0 (1.00) | 3.0 (1.00) | 3.0 (1.00; 75%) | 4.0 (1.00) |\n"
    "| 2 | slurmray | 1.0 (0.50) | 2.4 (0.80) | 1.5 (0.50; 75%) | 6.0 (1.50) |\n"
    "| 3 | one srun, a probe, no checks | 4.0 (1.00) | 5.0 (1.00) | 6.0 (1.00; 75%) | 8.0 (1.00) |\n"
)
FIRST = [
    Measured(2, 3, 4, 0, 3.0),
    Measured(1, 2.4, 6, 0, 1.5),
    Measured(4, 5, 8, 0, 6.0),
]  # what BEGIN shows


class Terminated(SystemExit):
    """The process gets SIGTERM, for example from timeout(1)."""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Measured | BaseException]]:
    """Results of the runs, in order; an exception is raised."""
    results: list[Measured | BaseException] = []
    terminated = signal.getsignal(signal.SIGTERM)

    @contextlib.contextmanager
    def cluster(*_: object) -> Iterator[None]:
        yield

    def measure(*_: object) -> Measured:
        result = results.pop(0)
        if isinstance(result, Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
        if isinstance(result, BaseException):
            raise result
        return result

    for name in ("require", "write_scripts", "wait_idle", "remove_leftovers"):
        monkeypatch.setattr(boot, name, lambda *_, **__: None)
    monkeypatch.setattr("bench.boot.ray_image.archive", lambda *_: Path("archive"))
    monkeypatch.setattr("bench.boot.stores.load", lambda *_: Path("store"))
    monkeypatch.setattr(boot, "SlurmCluster", cluster)
    monkeypatch.setattr(boot, "describe_machine", lambda _: "Slurm 0")
    monkeypatch.setattr(boot, "measure", measure)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    argv = ["boot", "--hosts", "2", "3", "--repeat", "2", "--ways", "bare", "slurmray"]
    monkeypatch.setattr(sys, "argv", argv)
    yield results
    signal.signal(signal.SIGTERM, terminated)


def test_complete_run(runs: list[Measured | BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    runs += [*FIRST, Measured(6, 7, None, 3, 9.0)] * 2
    boot.main()
    assert capsys.readouterr().out == (
        "Slurm 0; medians of 2, ratios to the first way in brackets.\n\n"
        + BEGIN
        + "| 3 | slurmray | 6.0 (1.50) | 7.0 (1.40) | 9.0 (1.50; 75%) | never: 3 containers left |\n"
    )


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit("bare.sh failed"), Terminated("not seen")])
def test_interrupted_run_prints_its_results(
    end: BaseException, runs: list[Measured | BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    runs += [*FIRST, end]
    with pytest.raises((KeyboardInterrupt, SystemExit)) as caught:
        boot.main()
    assert (str(caught.value) == "143") == isinstance(end, Terminated)
    assert capsys.readouterr().out == (
        "Slurm 0; PARTIAL, interrupted after 3 of 8 runs: medians of 2 or fewer, ratios to the first way in "
        "brackets.\n\n" + BEGIN
    )


def test_run_that_is_interrupted_at_once(
    runs: list[Measured | BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    runs.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        boot.main()
    assert capsys.readouterr().out.startswith("Slurm 0; PARTIAL, interrupted after 0 of 8 runs: ")


def test_a_script_of_another_commit_is_the_first_way(
    runs: list[Measured | BaseException],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    script = tmp_path / "old.sh"
    script.write_text("#!/bin/bash\n")
    argv = ["boot", "--hosts", "2", "--repeat", "1", "--ways", "slurmray", "--script", str(script)]
    monkeypatch.setattr(sys, "argv", argv)
    runs += FIRST[:2]
    boot.main()
    assert capsys.readouterr().out.endswith(
        "| 2 | script | 2.0 (1.00) | 3.0 (1.00) | 3.0 (1.00; 75%) | 4.0 (1.00) |\n"
        "| 2 | slurmray | 1.0 (0.50) | 2.4 (0.80) | 1.5 (0.50; 75%) | 6.0 (1.50) |\n"
    )


@pytest.mark.parametrize("arguments", [["--hosts", "2", "3"], ["--hosts", "2", "--script", "missing.sh"]])
def test_wrong_scripts(arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "old.sh").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["boot", "--script", "old.sh", *arguments])
    with pytest.raises(SystemExit, match="2"):
        boot.main()


def test_no_ratio_if_the_first_way_is_never_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    runs = {("verl", 2): [Measured(2, 3, None, 2, 3.0)], ("slurmray", 2): [Measured(1, 2.4, 4, 0, 1.5)]}
    assert boot.table(runs).splitlines()[2:] == [
        "| 2 | the verl script's sequence | 2.0 (1.00) | 3.0 (1.00) | 3.0 (1.00; 75%) "
        "| never: 2 containers left |",
        "| 2 | slurmray | 1.0 (0.50) | 2.4 (0.80) | 1.5 (0.50; 75%) | 4.0 |",
    ]


def test_busy_seconds_exclude_idle_and_iowait() -> None:
    tick = os.sysconf("SC_CLK_TCK")
    stat = f"cpu  {3 * tick} {tick} {2 * tick} {50 * tick} {9 * tick} 0 0 0 0 0\ncpu0 1 1 1"
    assert boot.busy_seconds(stat) == 6
