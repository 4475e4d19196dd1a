"""One case: a job, a fault, and how long until the log names it and until the hosts are clean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from slurmray.rehearsal.cluster.lab import Lab
from slurmray.slurm.states import FINAL
from tests.cluster import bare, sandbox
from tests.cluster.jobs import HANG, Job, Jobs, wait_clean, wait_until

# Leftovers that may stay until the next job removes them: nothing that runs or that others can read.
_DEAD = re.compile(
    r"file /tmp/ray-|container \S+ \((Exited|Created|Dead)|Podman containers of a rootless user"
)
# Processes of a job, as patterns for `pgrep -f`. Without a container, the guard and its child, the container
# process, have the same arguments.
NODE_AGENT = "^[^ ]*python3 -I -S -c .* node$"
CONTAINER_PROCESS = "^[^ ]*python3 -I [^ ]*/agent container "
GUARD = "^[^ ]*python3 -I [^ ]*/agent guard "
RAY_START = "^[^ ]*python3 [^ ]*/agent ray "
# The parent of the container process on the node, by runtime: arguments of pgrep.
CLIENTS = {
    "podman": ["-f", "^(/usr/bin/)?podman run "],
    "docker": ["-f", "^(/usr/bin/)?docker run "],
    "none": ["--oldest", "-f", GUARD],
    "apptainer": ["-f", "^Apptainer runtime parent"],
}
KILL_WAIT = 12  # seconds, of the labs
TRAINER = ["bash", "-c", "echo started; exec sleep infinity"]


class Fault:
    """A job of alice's on two nodes, one CPU each.

    archive: of the image. record: takes a name and a value for docs/faults.md.
    """

    def __init__(
        self, lab: Lab, folder: Path, runtime: str, archive: Path, record: Callable[[str, object], None]
    ):
        self.lab, self.runtime, self.archive = lab, runtime, archive
        self.jobs = Jobs(lab, folder, "alice")
        self.job = 0
        self._record = record
        self._at, self._seen = 0.0, 0  # since when: seconds, and length of the log

    def submit(self, run: Sequence[str] = TRAINER, args: Sequence[str] = (), **spec: Any) -> None:
        """Submit a job; `spec` has more of the job spec, and wins."""
        slurm = {"nodes": 2, "cpus_per_task": 1, "mem": "1G", **spec.pop("slurm", {})}
        container = {"runtime": self.runtime, **spec.pop("container", {})}
        if self.runtime == "none":
            spec["setup"] = "\n".join([bare.setup(), spec.get("setup", "")])
        elif self.runtime == "apptainer":
            container.setdefault("image", str(sandbox.image(self.archive)))
        text = yaml.safe_dump({"slurm": slurm, "container": container, **spec})
        self.job = self.jobs.submit(text, run, args)
        self._at, self._seen = time.monotonic(), 0

    def until(self, text: str) -> None:
        """Wait until the log has this text; times are measured from here, unless a fault follows."""
        self.jobs.wait_for(self.job, text)
        self._at = time.monotonic()

    def train(self, run: Sequence[str] = TRAINER, args: Sequence[str] = (), **spec: Any) -> None:
        """Submit a job whose trainer prints `started`, and wait for that."""
        self.submit(run, args, **spec)
        self.until("\nstarted\n")

    def log(self) -> str:
        return self.jobs.log(self.job)

    def mark(self) -> None:
        """The fault happens now: times are measured from here."""
        self._at, self._seen = time.monotonic(), len(self.log())

    def strike(self, argv: Sequence[str], host: str = "login", user: str = "root") -> None:
        """Make the fault with a command on a host."""
        self.mark()
        done = self.lab.run(argv, user, host)
        assert done.returncode == 0, done.stderr

    def kill(self, host: str, *process: str) -> None:
        """The fault is SIGKILL for the processes of a host that pgrep finds with these arguments."""
        pids = self.lab.run(["pgrep", *process], host=host).stdout.split()
        assert pids, f"no process {process} on {host}"
        # One may end with another, e.g. a child of srun with srun.
        kill = 'for pid; do kill -KILL "$pid" && done=1; done; ((done))'
        self.strike(["bash", "-c", kill, "-", *pids], host)

    def kill_container(self, node: str) -> None:
        """The fault is the end of the job's container, or of the container process where there is none."""
        if self.runtime == "none":
            self.kill(node, "--newest", "-f", GUARD)
        elif self.runtime == "apptainer":
            self.kill(node, "-f", CONTAINER_PROCESS)
        else:
            self.strike([self.runtime, "kill", f"slurmray-{self.job}-0-{node}"], node, "alice")

    def end(
        self,
        notice: str = "",
        within: float = HANG,
        clean_within: float = HANG,
        *,
        dead: bool = False,
        lost: bool = False,
    ) -> Job:
        """Wait until the job is over and its hosts are clean.

        notice: text in the log that names the fault; "": the end of the job counts.
        within, clean_within: seconds that the row of the matrix allows until the notice, and until the hosts
        are clean.
        dead: dead containers and the job's emptied folder may stay until the next job removes them.
        lost: a host is lost; for Slurm the job is COMPLETING until that host is back, and Slurm's own daemon
        for it waits on the other hosts.
        """
        over = (*FINAL, "COMPLETING") if lost else FINAL
        noticed = self._passed(lambda: self._is(over) or (notice and notice in self.log()[self._seen :]))
        clean = self._passed(lambda: self._is(over) and not self.left(dead=dead, lost=lost))
        about = self.lab.job(self.job)
        state, code = about["JobState"], about["ExitCode"]
        job = Job(self.job, state, code, self.log(), self.jobs.folder / f"slurmray-runs/{self.job}-0")
        for name, value in {
            "notice": round(noticed, 1),
            "clean": round(clean, 1),
            "ended": f"{state} {code}",
            "last_line": job.last_line,
        }.items():
            self._record(name, value)
        assert notice in job.log[self._seen :], job.log
        assert noticed < within, f"noticed after {noticed:.1f} s, not {within:g}:\n{job.log}"
        assert clean < clean_within, f"clean after {clean:.1f} s, not {clean_within:g}:\n{job.log}"
        return job

    def left(self, *, dead: bool = False, lost: bool = False) -> list[str]:
        """Leftovers of jobs, one text each; dead, lost: see `end`."""
        return [
            line
            for line in self.lab.left_over()
            if not (dead and _DEAD.search(line)) and not (lost and ": slurmstepd: [" in line)
        ]

    def next_job(self) -> None:
        """A job on the same nodes works, and afterwards they are clean."""
        self.submit(["true"])
        state, code = self.lab.wait(self.job, HANG)
        assert (state, code) == ("COMPLETED", "0:0"), self.log()
        wait_clean(self.lab)

    def _is(self, states: Sequence[str]) -> bool:
        return self.lab.job(self.job).get("JobState") in states

    def _passed(self, holds: Callable[[], object]) -> float:
        """Wait until a condition is true, and return the seconds since the fault."""
        wait_until(lambda: bool(holds()), lambda: "\n".join([*self.left(), self.log()]), 120)
        return time.monotonic() - self._at
