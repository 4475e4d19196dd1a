"""Rendering, submitting and looking at one job of a test."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmray.job_states import FINAL
from slurmray.loading import load_spec
from slurmray.output import write_script
from slurmray.rehearsal.lab import Lab
from slurmray.rendering import render
from slurmray.script.render import render_script
from slurmray.spec import JobSpec

from . import generation

HANG = 180  # seconds; no job of the tests takes a fifth of it
RENDER = render_script if generation.IS_AGENT else render


@dataclass
class Job:
    """A job that is over. code: as `scontrol show job` says it. log: standard output and error."""

    id: int
    state: str
    code: str
    log: str
    run: Path

    @property
    def last_line(self) -> str:
        """The log's last line, without its time."""
        return self.log.rstrip().split("\n")[-1].split("] ", 1)[-1]

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the job has said for programs."""
        return [json.loads(line) for line in (self.run / "events.jsonl").read_text().splitlines()]


class Jobs:
    """Jobs of a user in one folder of a cluster. Whatever a job was, it must leave nothing on any host."""

    render: Callable[[JobSpec], str] = staticmethod(RENDER)

    def __init__(self, lab: Lab, folder: Path, user: str = "root"):
        self.lab = lab
        self.folder = folder
        self.user = user

    def script(self, spec: str = "", entrypoint: Sequence[str] = ()) -> Path:
        """Render a job spec; two nodes and two CPUs on each, unless it says otherwise."""
        job, script = self.folder / "job.yaml", self.folder / "generated.sh"
        job.write_text(spec, encoding="utf-8")
        flags = [] if "slurm:" in spec else [("--nodes", "2"), ("--cpus-per-task", "2"), ("--mem", "1G")]
        write_script(script, self.render(load_spec(job, flags, entrypoint)), force=True)
        return script

    def submit(self, spec: str = "", entrypoint: Sequence[str] = (), args: Sequence[str] = ()) -> int:
        """Submit a job, with more arguments for sbatch, and return its id."""
        return self.lab.sbatch(self.script(spec, entrypoint), self.user, args, folder=self.folder)

    def log(self, job: int) -> str:
        """What a job has said until now."""
        log = self.folder / f"slurm-{job}.out"
        return generation.log(log.read_text(errors="replace")) if log.exists() else ""

    def wait_for(self, job: int, text: str) -> None:
        """Wait until a job has said something; an AssertionError where it ends without."""

        def why() -> str:
            return f"{text!r} is not in the log:\n{self.log(job)}\n{self.lab.job(job)}"

        wait_until(lambda: text in self.log(job) or self.lab.job(job).get("JobState") in FINAL, why)
        assert text in self.log(job), why()

    def end(self, job: int) -> Job:
        """Wait for a job's end, and until its hosts are clean."""
        state, code = self.lab.wait(job, HANG)
        wait_clean(self.lab)
        return Job(job, state, code, self.log(job), self.folder / f"slurmray-runs/{job}-0")

    def run(self, spec: str = "", entrypoint: Sequence[str] = (), args: Sequence[str] = ()) -> Job:
        """Submit a job and wait for its end."""
        return self.end(self.submit(spec, entrypoint, args))

    def run_at_once(self, *jobs: tuple[str, Sequence[str]]) -> list[Job]:
        """Submit several jobs, each a spec and an entrypoint, and wait for the end of all."""
        numbers = [self.submit(*job) for job in jobs]
        for number in numbers:
            self.lab.wait(number, HANG)
        return [self.end(number) for number in numbers]


def wait_until(holds: Callable[[], bool], why: Callable[[], str], seconds: float = HANG) -> None:
    """Wait, at most so long, for something to hold."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)


def wait_clean(lab: Lab) -> None:
    """Wait until jobs have left nothing on any host."""
    wait_until(lambda: not lab.left_over(), lambda: "\n".join(lab.left_over()), 15)


def commands(lab: Lab, folder: Path, user: str | None = None) -> str:
    """Make Slurm's commands in a folder, which run on the login host; return the PATH that has them.

    user: who runs them there, with a fresh environment; None: root with the caller's.
    """
    folder.mkdir()
    path = os.environ["PATH"]
    for name in ("sbatch", "scontrol", "sacct", "scancel", "squeue"):
        enter = shlex.join(lab.argv([f"/usr/bin/{name}"], user))
        # Jobs get the PATH of the login host, not this one.
        enter = enter.replace(f"env -C {lab.folder}", 'env -C "$PWD"')
        (folder / name).write_text(f'#!/bin/sh\nexec env PATH={shlex.quote(path)} {enter} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}:{path}"
