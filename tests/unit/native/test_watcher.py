"""States of jobs: one request to squeue for all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slurmray.native.on_slurm import FORGOTTEN, Watcher


def states(watcher: Watcher, *jobs: str) -> list[str]:
    for job in jobs:
        watcher.register_job(job)
    watcher.update()
    return [watcher.get_state(job, mode="cache") for job in jobs]


def test_states_of_all_jobs_in_one_request(answers: Callable[..., None], folder: Path) -> None:
    answers("printf '7|RUNNING\\n8_0|COMPLETED\\n8_1|PENDING\\n'")
    watcher = Watcher()
    assert states(watcher, "7", "8_0", "8_1") == ["RUNNING", "COMPLETED", "PENDING"]
    assert [watcher.is_done(job, mode="cache") for job in ("7", "8_0", "8_1")] == [False, True, False]
    assert (folder / "asked").read_text() == "squeue\n"
    answers("""case $* in *8_0*) exit 1;; esac; printf '7|REQUEUE_HOLD\\n8_1|RUNNING\\n'""")
    assert states(watcher, "7", "8_0", "8_1") == ["REQUEUE_HOLD", "COMPLETED", "RUNNING"]
    assert not watcher.is_done("7", mode="cache")


def test_forgotten_jobs(answers: Callable[..., None]) -> None:
    unknown = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    answers(unknown, "echo '7|CANCELLED by 1001'")
    assert states(Watcher(), "7", "8") == ["CANCELLED", FORGOTTEN]
    answers(unknown)
    assert states(Watcher(), "9") == [FORGOTTEN]


def test_a_slurm_that_does_not_answer(answers: Callable[..., None]) -> None:
    answers("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    assert states(Watcher(), "7") == ["UNKNOWN"]
