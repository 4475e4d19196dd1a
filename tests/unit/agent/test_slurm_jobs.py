"""Which jobs count as active, by squeue's answers."""

from __future__ import annotations

import pytest

from slurmray.agent.command_runner import Result, active_jobs

INVALID = Result(1, "", "slurm_load_jobs error: Invalid job id specified")


def squeue(known: dict[str, str]) -> object:
    """A squeue that knows these jobs, with their states, and fails for the others, as Slurm 22.05 does."""

    def run(argv: list[str]) -> Result:
        ids = next(option for option in argv if option.startswith("--jobs=")).partition("=")[2].split(",")
        if not all(job in known for job in ids):
            return INVALID
        return Result(0, "".join(f"{job} {known[job]}\n" for job in ids))

    return run


@pytest.mark.parametrize(
    ("asked", "known", "expected"),
    [
        (["8", "9"], {"8": "R", "9": "PD"}, {"8"}),
        (["8", "9"], {"9": "CG"}, {"9"}),
        (["8"], {}, set()),
        # Only 20 are asked for one by one. The others may run, so nothing of theirs is removed.
        ([str(job) for job in range(1, 24)], {"2": "R"}, {"2", "21", "22", "23"}),
    ],
)
def test_jobs_that_may_use_the_node(asked: list[str], known: dict[str, str], expected: set[str]) -> None:
    assert active_jobs(asked, squeue(known)) == expected  # type: ignore[arg-type]


def test_without_an_answer_nothing_is_known() -> None:
    down = Result(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    assert active_jobs(["8", "9"], lambda *_: down) is None
