"""Renders, submits and follows the jobs of a test."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmray.loading.load import load_spec
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rendering.output import write_script
from slurmray.rendering.script import render_script
from slurmray.slurm.states import FINAL

HANG = 300  # seconds; no job takes a fifth of it on an idle machine
# A row of the table of findings: nodes, check, `found | wanted | fix`.
_ROW = re.compile(r"^([\w,-]+) +(\S.*?)  +(\S.* \| .* \| .*)$", re.MULTILINE)


@dataclass
class Job:
    """An ended job. code: `ExitCode` of `scontrol show job`. log: standard output and error."""

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
        """The events in its run directory."""
        return [json.loads(line) for line in (self.run / "events.jsonl").read_text().splitlines()]

    @property
    def findings(self) -> dict[tuple[str, str], str]:
        """(node, check) -> `found | wanted | fix`, of the tables in the log."""
        rows = [row for row in _ROW.findall(self.log) if row[0] != "node"]  # the header
        return {(node, check): rest for nodes, check, rest in rows for node in nodes.split(",")}


class Jobs:
    """Jobs of a user in one folder of a cluster. None may leave anything on any host."""

    def __init__(self, lab: Lab, folder: Path, user: str = "root"):
        self.lab = lab
        self.folder = folder
        self.user = user

    def script(self, spec: str = "", entrypoint: Sequence[str] = ()) -> Path:
        """Render a job spec; two nodes with two CPUs each, unless it has a section `slurm`."""
        job, script = self.folder / "job.yaml", self.folder / "generated.sh"
        job.write_text(spec, encoding="utf-8")
        flags = [] if "slurm:" in spec else [("--nodes", "2"), ("--cpus-per-task", "2"), ("--mem", "1G")]
        write_script(script, render_script(load_spec(job, flags, entrypoint)), force=True)
        return script

    def submit(self, spec: str = "", entrypoint: Sequence[str] = (), args: Sequence[str] = ()) -> int:
        """Submit a job, with more arguments for sbatch, and return its id."""
        return self.lab.sbatch(self.script(spec, entrypoint), self.user, args, folder=self.folder)

    def log(self, job: int) -> str:
        """The log of a job until now."""
        log = self.folder / f"slurm-{job}.out"
        return log.read_text(errors="replace") if log.exists() else ""

    def wait_for(self, job: int, text: str) -> None:
        """Wait until a text is in a job's log; an AssertionError where the job ends without it."""

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
    """Wait until a condition is true; an AssertionError with why() after so many seconds."""
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
