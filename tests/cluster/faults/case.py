"""A case of the fault matrix: a job, a fault, and the times until the log names it and hosts are clean."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.slurm.states import FINAL
from tests.cluster import bare, enroot, sandbox
from tests.cluster.jobs import HANG, Job, Jobs, wait_clean, wait_until

# Leftovers that may stay until the next job removes them: not running, and not readable by others.
_HARMLESS = re.compile(
    r"file /tmp/ray-|container \S+ \((Exited|Created|Dead)|Podman containers of a rootless user"
)
# Patterns for `pgrep -f` of a job's processes.
CONTROLLER = "^[^ ]*python3 -I -S -c .* controller "
NODE_AGENT = "^[^ ]*python3 -I -S -c .* node$"
CONTAINER_PROCESS = "^[^ ]*python3 -I [^ ]*/agent container "
GUARD = "^[^ ]*python3 -I [^ ]*/agent guard "
RAY_START = "^[^ ]*python3 [^ ]*/agent ray "
# Runtime -> arguments of pgrep for the parent of the container process.
CLIENTS = {
    "podman": ["-f", "^(/usr/bin/)?podman run "],
    "docker": ["-f", "^(/usr/bin/)?docker run "],
    "none": ["--oldest", "-f", GUARD],
    "apptainer": ["-f", "^Apptainer runtime parent"],
    "pyxis": ["--oldest", "-f", GUARD],
}
KILL_WAIT = 12  # seconds; slurm.conf of the clusters
TRAINER = ["bash", "-c", "echo started; exec sleep infinity"]


class Fault:
    """A job of alice on two nodes, with one CPU each, and a fault in it.

    archive: the image's. record: stores a name and a value for docs/inside/faults.md.
    """

    def __init__(
        self,
        cluster: SlurmCluster,
        folder: Path,
        runtime: str,
        archive: Path,
        record: Callable[[str, object], None],
    ):
        self.cluster, self.runtime, self.archive = cluster, runtime, archive
        self.jobs = Jobs(cluster, folder, "alice")
        self.job = 0
        self._record = record
        self._start, self._log_start = 0.0, 0  # time when the clock started; length of the log then

    def submit(self, run: Sequence[str] = TRAINER, args: Sequence[str] = (), **spec: Any) -> None:
        """Submit a job and start the clock. spec: fields of the job spec, which override the defaults."""
        slurm = {"nodes": 2, "cpus_per_task": 1, "mem": "1G", **spec.pop("slurm", {})}
        container = {"runtime": self.runtime, **spec.pop("container", {})}
        if self.runtime == "none":
            spec["setup"] = "\n".join([bare.setup(), spec.get("setup", "")])
        elif self.runtime == "apptainer":
            container.setdefault("image", str(sandbox.image(self.archive)))
        elif self.runtime == "pyxis":
            container.setdefault("image", str(enroot.image(self.archive)))
        text = yaml.safe_dump({"slurm": slurm, "container": container, **spec})
        self.job = self.jobs.submit(text, run, args)
        self._start, self._log_start = time.monotonic(), 0

    def wait_for_log(self, text: str) -> None:
        """Wait until the log has this text, and start the clock."""
        self.jobs.wait_for(self.job, text)
        self._start = time.monotonic()

    def start_trainer(self, run: Sequence[str] = TRAINER, args: Sequence[str] = (), **spec: Any) -> None:
        """Submit a job whose trainer prints `started`, and wait for that line."""
        self.submit(run, args, **spec)
        self.wait_for_log("\nstarted\n")

    def log(self) -> str:
        return self.jobs.log(self.job)

    def start_clock(self) -> None:
        """Start the clock: the fault happens now."""
        self._start, self._log_start = time.monotonic(), len(self.log())

    def inject(self, argv: Sequence[str], host: str = "login", user: str = "root") -> None:
        """Cause the fault with a command on a host."""
        self.start_clock()
        done = self.cluster.run(argv, user, host)
        assert done.returncode == 0, done.stderr

    def set_time_left(self, seconds: int) -> None:
        """Cause the fault by moving the job's time limit; Slurm looks at it twice a minute.

        0: the next look ends the job, so that no warning signal comes half a minute earlier. Slurm refuses a
        time in the past, which `now` may be when the request arrives; the second try is for that.
        """
        update = f"scontrol update JobId={self.job} EndTime=now+{seconds}"
        self.inject(["bash", "-c", f"{update} || {update}"])

    def kill(self, host: str, *process: str) -> None:
        """Cause the fault with SIGKILL to processes of a host. process: arguments of pgrep."""
        pids = self.cluster.run(["pgrep", *process], host=host).stdout.split()
        assert pids, f"no process {process} on {host}"
        # A process may end together with another one, e.g. a child of srun.
        kill = 'for pid; do kill -KILL "$pid" && done=1; done; ((done))'
        self.inject(["bash", "-c", kill, "-", *pids], host)

    def kill_container(self, node: str) -> None:
        """Cause the fault by killing the job's container, or the container process if there is none."""
        if self.runtime in ("none", "pyxis"):
            self.kill(node, "--newest", "-f", GUARD)
        elif self.runtime == "apptainer":
            self.kill(node, "-f", CONTAINER_PROCESS)
        else:
            self.inject([self.runtime, "kill", f"slurmray-{self.job}-0-{node}"], node, "alice")

    def wait_end(
        self,
        notice: str = "",
        within: float = HANG,
        clean_within: float = HANG,
        *,
        dead: bool = False,
        lost: bool = False,
    ) -> Job:
        """Wait until the job has ended and its hosts are clean.

        notice: text in the log that names the fault; "": the end of the job.
        within, clean_within: limits in seconds of the matrix row, until the notice and until clean hosts.
        dead: dead containers and the job's emptied folder may stay until the next job removes them.
        lost: a host is lost. Slurm keeps the job COMPLETING until that host is back, and a slurmstepd of the
        job waits on the other hosts.
        """
        ended = (*FINAL, "COMPLETING") if lost else FINAL
        noticed = self._wait(lambda: self._is(ended) or (notice and notice in self.log()[self._log_start :]))
        clean = self._wait(lambda: self._is(ended) and not self.leftovers(dead=dead, lost=lost))
        info = self.cluster.job(self.job)
        state, code = info["JobState"], info["ExitCode"]
        job = Job(self.job, state, code, self.log(), self.jobs.folder / f"slurmray-runs/{self.job}-0")
        for name, value in {
            "notice": round(noticed, 1),
            "clean": round(clean, 1),
            "ended": f"{state} {code}",
            "last_line": job.last_line,
        }.items():
            self._record(name, value)
        assert notice in job.log[self._log_start :], job.log
        assert noticed < within, f"noticed after {noticed:.1f} s, not {within:g}:\n{job.log}"
        assert clean < clean_within, f"clean after {clean:.1f} s, not {clean_within:g}:\n{job.log}"
        return job

    def leftovers(self, *, dead: bool = False, lost: bool = False) -> list[str]:
        """Return leftovers of jobs, one line each. dead, lost: see `wait_end`."""
        return [
            line
            for line in self.cluster.leftovers()
            if not (dead and _HARMLESS.search(line)) and not (lost and ": slurmstepd: [" in line)
        ]

    def run_next_job(self, nodes: int = 2) -> None:
        """Check that a job on the same nodes works, and leaves them clean."""
        self.submit(["true"], slurm={"nodes": nodes})
        state, code = self.cluster.wait(self.job, HANG)
        assert (state, code) == ("COMPLETED", "0:0"), self.log()
        wait_clean(self.cluster)

    def _is(self, states: Sequence[str]) -> bool:
        return self.cluster.job(self.job).get("JobState") in states

    def _wait(self, condition: Callable[[], object]) -> float:
        """Wait until a condition is true; return the seconds since the clock was started."""
        wait_until(lambda: bool(condition()), lambda: "\n".join([*self.leftovers(), self.log()]), 120)
        return time.monotonic() - self._start
