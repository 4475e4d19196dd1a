"""Errors and answers of Slurm's commands."""

from __future__ import annotations

import errno
import os
import shlex
from datetime import datetime
from pathlib import Path

import pytest

from slurmray.errors import SlurmError
from slurmray.slurm import slurm_commands
from slurmray.slurm.host import Host
from slurmray.slurm.slurm_commands import call, failure

from ..programs import install


# Messages of Slurm 22.05.
@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (
            "sbatch: error: invalid partition specified: x\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "sbatch: invalid partition specified: x; Invalid partition name specified: "
            "`sinfo --format=%P` lists values for slurm.partition",
        ),
        (
            "sbatch: error: Batch job submission failed: Job size specification\n",
            "sbatch: Job size specification: correct it",
        ),
        (
            "slurm_load_jobs error: Invalid job id specified\n\n",
            "sbatch: Invalid job id specified: correct it",
        ),
        (
            "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
            "sbatch: error: fetch_config: DNS SRV lookup failed\n"
            "sbatch: error: _establish_config_source: failed to fetch config\n"
            "sbatch: fatal: Could not establish a configuration source\n",
            "sbatch: Could not establish a configuration source: this host is not set up for Slurm: "
            "use a login node",
        ),
        (  # 24.11, for 2 GPUs on a node with one, and for another type than it has
            "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
            "sbatch: Requested node configuration is not available: `sinfo --Node --format='%N %c %m %G'` "
            "lists CPUs, MiB and GPUs (type and number) of each node; ask for what one has",
        ),
        ("", "sbatch: failed without a message: correct it"),
    ],
)
def test_a_failure_is_one_line_with_a_fix(stderr: str, expected: str) -> None:
    assert str(failure(["sbatch", "--parsable"], stderr, "correct it")) == expected


def test_a_command_without_an_answer_times_out() -> None:
    with pytest.raises(SlurmError, match=r"^sleep: no answer within 0\.1 s: try again later$"):
        call(["sleep", "60"], timeout=0.1)


@pytest.mark.parametrize("version", ["21.08", "22.05", "24.11", "26.05"])
def test_squeue(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each Slurm printed; tests/unit/slurm/records has the records of these jobs, too."""
    answer = Path(__file__).parent / f"records/{version}/squeue.txt"
    install(tmp_path, squeue=f"exec /bin/cat {shlex.quote(str(answer))}")
    monkeypatch.setenv("PATH", str(tmp_path))
    states = {name: job.state for name, job in slurm_commands.squeue().items()}
    pending = dict.fromkeys(("2", "4", "5", "6_[0-1]"), "PENDING")
    assert states == {"1": "FAILED", "3": "RUNNING", **pending}


ANSWERS = {
    "12": (12, None),
    "12;c2": (12, "c2"),
    "Submitted batch job 12": (12, None),
    "Submitted batch job 12 on cluster c2": (12, "c2"),
    "Welcome!\nBudget: 7 hours\n\n12;c2\nBye": (12, "c2"),
    "sbatch: lua: ok\nSubmitted batch job 12\n*** 2 days left ***": (12, None),
    "Job 12 is submitted": None,
    "12\n13": None,
    "": None,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_sbatch_answers(answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is queued is never said to have failed, or people submit it twice."""
    (tmp_path / "answer").write_text(answer + "\n")
    install(tmp_path, sbatch=f"/bin/cat {tmp_path}/answer; echo note >&2; exit ${{CODE:-0}}")
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = ANSWERS[answer]
    if expected:
        assert slurm_commands.sbatch() == (*expected, "note", 0)
        monkeypatch.setenv("CODE", "3")
        assert slurm_commands.sbatch() == (*expected, "note", 3), "with --wait, the code is the job's"
    else:
        text = (
            r"^sbatch: the job is submitted, but its number is unknown, as sbatch answered '.*note': `squeue"
        )
        with pytest.raises(SlurmError, match=text):
            slurm_commands.sbatch()
        monkeypatch.setenv("CODE", "1")
        with pytest.raises(SlurmError, match=r"^sbatch: note: correct"):
            slurm_commands.sbatch()


class Refusing(Host):
    """A host that starts no command."""

    def run_in_foreground(self, argv: list[str], *, is_terminal: bool) -> int:
        del argv, is_terminal
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_command_that_cannot_be_started() -> None:
    with pytest.raises(SlurmError, match=r"^true: cannot be started: Argument list too long$"):
        call(["true", "x" * (1 << 18)])
    with pytest.raises(SlurmError, match=r"^srun: cannot be started: Permission denied$"):
        slurm_commands.run_in_foreground(["srun"], Refusing(), is_terminal=False)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("to start at 3047-09-05T13:26:26 a using", "to start, nobody knows when because of"),  # 26.05
        ("to start at 5089-03-17T14:14:30 using", "to start, nobody knows when because of"),  # 22.05, 24.11
        ("to start at YEAR-12-31T23:59:59 using", "to start, nobody knows when because of"),
        ("to start at 2026-11-29T13:26:26 a using", "to start at 2026-11-29T13:26:26 using"),
        ("to start at tomorrow using", "to start at tomorrow using"),
    ],
)
def test_when_a_job_could_start(
    said: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = said.replace("YEAR", str(datetime.now().year + 1))
    line = f"sbatch: Job 35 {said} 1 processors on nodes gpu-1 in partition batch"
    install(tmp_path, sbatch=f"echo '{line}' >&2")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    answer = slurm_commands.test_only(text="")
    assert answer.startswith(f"Job 35 {shown}")
    assert answer.endswith(" using 1 processors on nodes gpu-1 in partition batch")
    assert " a using" not in answer
