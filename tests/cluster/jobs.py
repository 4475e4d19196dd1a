"""Renders and submits jobs of tests, and waits for their end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurmray.loading.load import load_plan
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import USERS, User
from slurmray.rendering.script import render_script
from slurmray.slurm.states import FINAL

HANG = 300  # seconds; no job takes a fifth of that on an idle machine
# A row of the table of findings: host list, check, `found | wanted | fix`.
_ROW = re.compile(r"^([\w,\[\]-]+) +(\S.*?)  +(\S.* \| .* \| .*)$", re.MULTILINE)


@dataclass
class Job:
    """An ended job. code: `ExitCode` in `scontrol show job`. log: stdout and stderr. run: run directory."""

    id: int
    state: str
    code: str
    log: str
    run: Path

    @property
    def last_line(self) -> str:
        """Last line of the log, without its time stamp.

        slurmstepd may say after it that a process ended before Slurm's signal came.
        """
        lines = [line for line in self.log.rstrip().split("\n") if "_handle_signal_container: " not in line]
        return lines[-1].split("] ", 1)[-1]

    @property
    def events(self) -> list[dict[str, Any]]:
        """Events of the run directory."""
        return [json.loads(line) for line in (self.run / "events.jsonl").read_text().splitlines()]

    @property
    def findings(self) -> dict[tuple[str, str], str]:
        """(node, check) -> `found | wanted | fix` in the tables of findings of the log."""
        rows = [row for row in _ROW.findall(self.log) if row[0] != "node"]  # the header
        return {(node, check): rest for nodes, check, rest in rows for node in names(nodes)}


def names(host_list: str) -> list[str]:
    """Return the nodes of a host list of the clusters of tests: node1, or node[1-3,7]."""
    prefix, bracket, numbers = host_list.partition("[")
    ranges = re.findall(r"([0-9]+)(?:-([0-9]+))?", numbers)
    found = [f"{prefix}{n}" for first, last in ranges for n in range(int(first), int(last or first) + 1)]
    return found if bracket else [host_list]


class Jobs:
    """Jobs of a user in one folder of a cluster. A test fails if they leave anything on a host."""

    def __init__(self, cluster: SlurmCluster, folder: Path, user: str = "root"):
        self.cluster = cluster
        self.folder = folder
        self.user = user

    def script(self, spec: str = "", entrypoint: Sequence[str] = ()) -> Path:
        """Render a job spec. Without a section `slurm` the job gets two nodes with two CPUs each."""
        job, script = self.folder / "job.yaml", self.folder / "generated.sh"
        job.write_text(spec, encoding="utf-8")
        flags = [] if "slurm:" in spec else [("--nodes", "2"), ("--cpus-per-task", "2"), ("--mem", "1G")]
        script.write_text(render_script(load_plan(job, flags, entrypoint)), encoding="utf-8")
        return script

    def submit(self, spec: str = "", entrypoint: Sequence[str] = (), args: Sequence[str] = ()) -> int:
        """Submit a job and return its id. args: more arguments for sbatch."""
        return self.cluster.sbatch(self.script(spec, entrypoint), self.user, args, folder=self.folder)

    def log(self, job: int) -> str:
        """Return the current log of a job."""
        log = self.folder / f"slurm-{job}.out"
        return log.read_text(errors="replace") if log.exists() else ""

    def wait_for(self, job: int, text: str, timeout: float = HANG) -> None:
        """Wait until a text is in a job's log; AssertionError if the job ends without it."""

        def message() -> str:
            return f"{text!r} is not in the log:\n{self.log(job)}\n{self.cluster.job(job)}"

        wait_until(
            lambda: text in self.log(job) or self.cluster.job(job).get("JobState") in FINAL, message, timeout
        )
        assert text in self.log(job), message()

    def wait_end(self, job: int, timeout: float = HANG) -> Job:
        """Wait for a job's end, at most `timeout` seconds, and until its hosts are clean."""
        state, code = self.cluster.wait(job, timeout)
        wait_clean(self.cluster)
        return Job(job, state, code, self.log(job), self.folder / f"slurmray-runs/{job}-0")

    def run(
        self,
        spec: str = "",
        entrypoint: Sequence[str] = (),
        args: Sequence[str] = (),
        *,
        timeout: float = HANG,
    ) -> Job:
        """Submit a job and wait for its end."""
        return self.wait_end(self.submit(spec, entrypoint, args), timeout)

    def run_concurrently(self, *jobs: tuple[str, Sequence[str]]) -> list[Job]:
        """Submit several jobs, each a spec and an entrypoint, and wait until all have ended."""
        numbers = [self.submit(*job) for job in jobs]
        for number in numbers:
            self.cluster.wait(number, HANG)
        return [self.wait_end(number) for number in numbers]


def wait_until(condition: Callable[[], bool], message: Callable[[], str], timeout: float = HANG) -> None:
    """Wait until a condition is true; AssertionError with message() after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, message()
        time.sleep(0.1)


def wait_clean(cluster: SlurmCluster) -> None:
    """Wait until no host has leftovers of jobs."""
    wait_until(lambda: not cluster.leftovers(), lambda: "\n".join(cluster.leftovers()), 15)


@contextlib.contextmanager
def passing_for(cluster: SlurmCluster, folder: Path, user: User) -> Iterator[None]:
    """Let this process, which is root to enter hosts, pass for a user: Slurm's commands, owner of files.

    folder: a new one, for the commands.
    """
    path = path_with_slurm(cluster, folder, user.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cluster.folder)
        patch.setenv("PATH", path)
        patch.setattr(os, "geteuid", lambda: user.uid)
        yield


def path_with_slurm(cluster: SlurmCluster, folder: Path, user: str | None = None) -> str:
    """Write wrappers of Slurm's commands into a folder; return a PATH with them.

    The commands run on the login host: as `user`, with a fresh environment, or as root with the caller's.
    """
    folder.mkdir()
    path, ids = os.environ["PATH"], {account.name: account.uid for account in USERS}
    for name in ("sbatch", "scontrol", "sacct", "scancel", "sinfo", "squeue", "srun"):
        command = shlex.join(cluster.argv([f"/usr/bin/{name}"], user))
        # With the original PATH: jobs inherit it, and must not get this folder.
        command = command.replace(f"env -C {cluster.folder}", 'env -C "$PWD"')
        # A script and its folder are this process's, and the user reads the one and writes into the other.
        allow = f'chmod a+r "$last"; chgrp {ids.get(user or "")} "${{last%/*}}"; chmod g+w "${{last%/*}}"'
        allow = f'for last; do :; done; [ ! -f "$last" ] || {{ {allow}; }}\n' if user in ids else ""
        (folder / name).write_text(f'#!/bin/sh\n{allow}exec env PATH={shlex.quote(path)} {command} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}:{path}"
