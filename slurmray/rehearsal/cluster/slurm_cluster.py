"""A real Slurm on several hosts of one machine: boot it, run commands on its hosts, shut it down."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from slurmray import local_commands
from slurmray.errors import RehearsalError
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster import cgroups
from slurmray.rehearsal.cluster.layout import Layout, environment, plan
from slurmray.rehearsal.cluster.slurm_conf import LOGIN, ClusterConfig
from slurmray.slurm.states import FINAL, parse_job

_LEFTOVERS = Path(__file__).with_name("leftovers.sh")
# Without the current folder, where other modules may have these names; since Python 3.11, -P does this.
FIRST_PROCESS = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "from slurmray.rehearsal.cluster import first_process; first_process.main()"
)


class SlurmCluster:
    """A login host and nodes with a real Slurm. They end with this process at the latest.

    config: nodes, resources, addresses. layout: root filesystem, images, folders.
    tethered: False allows `keep`, after which the cluster outlives this process.
    """

    def __init__(self, config: ClusterConfig, layout: Layout, *, tethered: bool = True) -> None:
        self.config = config
        self.layout = layout
        self.folder = layout.folder.resolve()
        self.tethered = tethered
        self.pids: dict[str, int] = {}
        self.first_process = 0
        self._init: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the object)

    def __enter__(self) -> SlurmCluster:
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
        cgroups.remove_stale()
        argv = ["setpriv", "--pdeathsig", "KILL"] if self.tethered else []
        argv += ["unshare", *([] if machine.is_root() else ["--user", "--map-auto", "--map-root-user"])]
        argv += ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child=KILL"]
        argv += [sys.executable, "-c", FIRST_PROCESS]
        plan_text = plan(self.config, self.layout)
        self._init = local_commands.start(argv, env=environment(), stderr=self._errors.fileno())
        self.first_process = self._send(plan_text)
        self.power_on(LOGIN)
        self.power_on(*self.config.nodes)
        self._wait_idle()

    def down(self) -> None:
        """Kill all hosts at once, and wait until they are gone."""
        if self.is_up():
            os.kill(self.first_process, signal.SIGKILL)
        if self._init:
            if not self.first_process:
                self._init.kill()
            self._init.communicate()
        while self.is_up():
            time.sleep(0.02)
        self._init, self.first_process, self.pids = None, 0, {}
        cgroups.remove_stale()

    def state(self) -> dict[str, Any]:
        """Return the state that `attach` needs, JSON types only."""
        first = {"first_process": self.first_process, "start_time": machine.start_time(self.first_process)}
        return {**first, "pids": self.pids, "folder": str(self.folder)}

    @classmethod
    def attach(cls, state: dict[str, Any]) -> SlurmCluster:
        """Return a cluster that another process has kept, to run commands on it and to shut it down."""
        cluster = cls(ClusterConfig(), Layout(Path(state["folder"])))
        cluster.pids = state["pids"]
        if machine.start_time(state["first_process"]) == state.get("start_time"):
            cluster.first_process = state["first_process"]
        return cluster

    def is_up(self) -> bool:
        """Return whether the cluster runs."""
        return machine.start_time(self.first_process) > 0

    def keep(self) -> None:
        """Let the cluster outlive this process."""
        self._send(["keep"])

    def power_on(self, *hosts: str) -> None:
        """Boot hosts that are off."""
        self.pids |= self._send(["power_on", *hosts])

    def power_off(self, host: str) -> None:
        """End a host as a power failure does; its disk keeps its files."""
        self._send(["power_off", host])
        del self.pids[host]

    def disconnect(self, host: str) -> None:
        """Unplug the host's network cable."""
        self._send(["disconnect", host])

    def reconnect(self, host: str) -> None:
        """Plug the host's network cable in again."""
        self._send(["reconnect", host])

    def argv(
        self,
        argv: Sequence[str],
        user: str | None = None,
        host: str = LOGIN,
        *,
        folder: Path | None = None,
    ) -> list[str]:
        """Return the command that runs `argv` on a host, for `subprocess.Popen`.

        user: root, alice or bob, with a fresh environment; None: root with the caller's environment.
        folder: working directory; None: the submit folder.
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
        host: str = LOGIN,
        *,
        folder: Path | None = None,
        timeout: float | None = 60,
        text: str | None = None,
        stdin: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host and wait for its end; see `argv`. timeout: seconds."""
        command = self.argv(argv, user, host, folder=folder)
        return local_commands.run(command, timeout=timeout, text=text, stdin=stdin, env=env)

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
        """Submit a script and return the job's id; see `argv`. text: the script, if `script` is ""."""
        command = ["sbatch", "--parsable", *args, *filter(None, [str(script)])]
        result = self.run(command, user, folder=folder, text=text, env=env)
        if result.returncode != 0:
            raise RehearsalError(f"sbatch rejected the script: {result.stderr.strip()}")
        return int(result.stdout.split(";")[0])

    def job(self, job: int) -> dict[str, str]:
        """Return the fields of `scontrol show job`."""
        return parse_job(self.run(["scontrol", "show", "job", str(job)]).stdout)

    def poll(self, job: int) -> Iterator[dict[str, str]]:
        """Yield the fields of `scontrol show job` until the job has ended; the last ones have a final state.

        There are 5 requests a second. The fields are {} if slurmctld does not answer.
        """
        while (fields := self.job(job)).get("JobState") not in FINAL:
            yield fields
            time.sleep(0.2)
        yield fields

    def wait(self, job: int, timeout: float) -> tuple[str, str]:
        """Wait at most `timeout` seconds for a job's end; return state and code, e.g. ("FAILED", "7:0").

        TimeoutError has the last lines of the job's log.
        """
        deadline = time.monotonic() + timeout
        for info in self.poll(job):
            if info.get("JobState") not in FINAL and time.monotonic() > deadline:
                log = self.run(["tail", "-n30", info.get("StdOut", "/dev/null")]).stdout
                state = f"{info.get('JobState')} ({info.get('Reason')})"
                raise TimeoutError(f"job {job} is {state} after {timeout:g} s:\n{log}")
        return info["JobState"], info["ExitCode"]

    def leftovers(self) -> list[str]:
        """Return leftovers of jobs on the hosts: containers, processes, files in /tmp; one line each."""
        shared = [str(self.folder), *map(str, (*self.layout.copy_on_write, *self.layout.missing))]
        lines = []
        for host in self.pids:
            result = self.run(["bash", "-c", _LEFTOVERS.read_text(), "leftovers", *shared], host=host)
            lines += [f"{host}: {line}" for line in (result.stdout + result.stderr).splitlines()]
        return lines

    def _send(self, message: object) -> Any:
        init = self._init
        if not init or not init.stdin or not init.stdout:
            raise RehearsalError("the rehearsal's cluster is not running")
        with suppress(BrokenPipeError):  # then there is no answer either
            init.stdin.write(json.dumps(message).encode() + b"\n")
            init.stdin.flush()
        line = init.stdout.readline()
        answer = json.loads(line) if line else {"error": "its first process exited"}
        if "error" in answer:
            self._errors.seek(0)
            stderr = self._errors.read().decode(errors="replace").strip()
            raise RehearsalError(f"the rehearsal's cluster failed: {answer['error']}\n{stderr}".strip())
        return answer["value"]

    def _wait_idle(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            result = self.run(["sinfo", "--noheader", "--Node", "--format=%N %T"])
            states = dict(line.split() for line in result.stdout.splitlines())
            waiting = [node for node in self.config.nodes if states.get(node) != "idle"]
            if not waiting:
                return
            if time.monotonic() > deadline:
                log = self.run(["tail", "-n5", "/var/log/slurmctld.log"]).stdout
                errors = f"{result.stderr}{log}".strip()
                raise RehearsalError(f"Slurm did not start on {shlex.join(waiting)} within 60 s: {errors}")
            time.sleep(0.05)
