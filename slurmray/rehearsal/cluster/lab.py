"""A real Slurm of several hosts on this machine, seen from outside: boot it, run commands there, end it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from slurmray import process
from slurmray.errors import RehearsalError
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster import cgroups, config
from slurmray.rehearsal.cluster.layout import Layout, environment, plan
from slurmray.slurm.states import FINAL, parse_job

_LEFT_OVER = Path(__file__).with_name("left_over.sh")


class Lab:
    """A login host and nodes with a real Slurm. All of it ends with this process, if not before.

    cluster, layout: what it is made of. tethered: False lets it live on after `keep`.
    """

    def __init__(self, cluster: config.Cluster, layout: Layout, *, tethered: bool = True) -> None:
        self.cluster = cluster
        self.layout = layout
        self.folder = layout.folder.resolve()
        self.tethered = tethered
        self.pids: dict[str, int] = {}
        self.first_process = 0
        self._inner: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the object)

    def __enter__(self) -> Lab:
        try:
            self.boot()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def boot(self) -> None:
        """Boot all hosts and wait until every node is idle."""
        cgroups.sweep()
        argv = ["setpriv", "--pdeathsig", "KILL"] if self.tethered else []
        argv += ["unshare", *([] if machine.is_root() else ["--user", "--map-auto", "--map-root-user"])]
        argv += ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child=KILL"]
        argv += [sys.executable, "-P", "-m", "slurmray.rehearsal.cluster.init"]
        plan_text = plan(self.cluster, self.layout)
        self._inner = process.start(argv, env=environment(), stderr=self._errors.fileno())
        self.first_process = self._send(plan_text)
        self.power_on(config.LOGIN)
        self.power_on(*self.cluster.nodes)
        self._wait_idle()

    def down(self) -> None:
        """End everything at once, and wait for that."""
        if self.is_up():
            os.kill(self.first_process, signal.SIGKILL)
        if self._inner:
            if not self.first_process:
                self._inner.kill()
            self._inner.communicate()
        while self.is_up():
            time.sleep(0.02)
        self._inner, self.first_process, self.pids = None, 0, {}
        cgroups.sweep()

    def state(self) -> dict[str, Any]:
        """Return what `attach` needs, JSON types only."""
        first = {"first_process": self.first_process, "birth": machine.birth(self.first_process)}
        return {**first, "pids": self.pids, "folder": str(self.folder)}

    @classmethod
    def attach(cls, state: dict[str, Any]) -> Lab:
        """Return a cluster that another process kept, to run commands on and to end."""
        lab = cls(config.Cluster(), Layout(Path(state["folder"])))
        lab.pids = state["pids"]
        if machine.birth(state["first_process"]) == state["birth"]:
            lab.first_process = state["first_process"]
        return lab

    def is_up(self) -> bool:
        """Tell whether the cluster lives."""
        return machine.birth(self.first_process) > 0

    def keep(self) -> None:
        """Let the cluster live on when this process ends."""
        self._send(["stay"])

    def power_on(self, *hosts: str) -> None:
        """Boot hosts that are off."""
        self.pids |= self._send(["power_on", *hosts])

    def power_off(self, host: str) -> None:
        """End a host as a power failure does; its disk keeps what it has."""
        self._send(["power_off", host])
        del self.pids[host]

    def cut(self, host: str) -> None:
        """Take the host's network cable away."""
        self._send(["cut", host])

    def mend(self, host: str) -> None:
        """Put the host's network cable back."""
        self._send(["mend", host])

    def argv(
        self,
        argv: Sequence[str],
        user: str | None = None,
        host: str = config.LOGIN,
        *,
        folder: Path | None = None,
    ) -> list[str]:
        """Return the command that runs `argv` on a host, for `subprocess.Popen`.

        user: root, alice or bob, with a fresh environment; None: root with the caller's environment.
        folder: where it runs; None: in the submit folder.
        """
        enter = ["nsenter", "-t", str(self.pids[host]), "-m", "-n", "-p", "-i", "-u", "-C"]
        if not machine.is_root():
            enter += ["-U", "--preserve-credentials"]
        become = ["setpriv", "--pdeathsig", "KILL"]
        if user:
            become += ["--reset-env"]
        if user not in {None, "root"}:
            become += [f"--reuid={user}", f"--regid={user}", "--init-groups", "--inh-caps=-all"]
        return [*enter, *become, "env", "-C", str(folder or self.folder), *argv]

    def run(
        self,
        argv: Sequence[str],
        user: str | None = "root",
        host: str = config.LOGIN,
        *,
        folder: Path | None = None,
        timeout: float | None = 60,
        text: str | None = None,
        stdin: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end, as `argv` says; timeout is in seconds."""
        words = self.argv(argv, user, host, folder=folder)
        return process.run(words, timeout=timeout, text=text, stdin=stdin, env=env)

    def sbatch(
        self,
        script: str | Path,
        user: str | None = "root",
        args: Sequence[str] = (),
        *,
        folder: Path | None = None,
        text: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> int:
        """Submit a script as `argv` says and return the job's id. text: the script, where `script` is ""."""
        words = ["sbatch", "--parsable", *args, *filter(None, [str(script)])]
        done = self.run(words, user, folder=folder, text=text, env=env)
        if done.returncode != 0:
            raise RehearsalError(f"sbatch refuses the script: {done.stderr.strip()}")
        return int(done.stdout.split(";")[0])

    def job(self, job: int) -> dict[str, str]:
        """Return what `scontrol show job` says, field by field."""
        return parse_job(self.run(["scontrol", "show", "job", str(job)]).stdout)

    def wait(self, job: int, timeout: float) -> tuple[str, str]:
        """Wait, at most `timeout` seconds, for a job's end; return state and code, as ("FAILED", "7:0").

        TimeoutError has the end of the job's log.
        """
        deadline = time.monotonic() + timeout
        while (about := self.job(job)).get("JobState") not in FINAL:
            if time.monotonic() > deadline:
                log = self.run(["tail", "-n30", about.get("StdOut", "/dev/null")]).stdout
                raise TimeoutError(f"job {job} is {about.get('JobState')} after {timeout:g} s:\n{log}")
            time.sleep(0.1)
        return about["JobState"], about["ExitCode"]

    def left_over(self) -> list[str]:
        """Return what jobs have left on the hosts: containers, processes, files in /tmp; one text each."""
        seen = [str(self.folder), *map(str, (*self.layout.copy_on_write, *self.layout.missing))]
        found = []
        for host in self.pids:
            done = self.run(["bash", "-c", _LEFT_OVER.read_text(), "left_over", *seen], host=host)
            found += [f"{host}: {line}" for line in (done.stdout + done.stderr).splitlines()]
        return found

    def _send(self, message: object) -> Any:
        inner = self._inner
        if not inner or not inner.stdin or not inner.stdout:
            raise RehearsalError("the rehearsal's cluster is not up")
        with suppress(BrokenPipeError):  # then there is no answer either
            inner.stdin.write(json.dumps(message).encode() + b"\n")
            inner.stdin.flush()
        line = inner.stdout.readline()
        answer = json.loads(line) if line else {"error": "its first process ended"}
        if "error" in answer:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            raise RehearsalError(f"the rehearsal's cluster cannot do this: {answer['error']}\n{said}".strip())
        return answer["value"]

    def _wait_idle(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            done = self.run(["sinfo", "--noheader", "--Node", "--format=%N %T"])
            states = dict(line.split() for line in done.stdout.splitlines())
            waiting = [node for node in self.cluster.nodes if states.get(node) != "idle"]
            if not waiting:
                return
            if time.monotonic() > deadline:
                log = self.run(["tail", "-n5", "/var/log/slurmctld.log"]).stdout
                said = f"{done.stderr}{log}".strip()
                raise RehearsalError(f"Slurm does not come up on {shlex.join(waiting)}: {said}")
            time.sleep(0.05)
