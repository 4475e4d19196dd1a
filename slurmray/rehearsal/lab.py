"""A real Slurm of several hosts on this machine, seen from outside: boot it, run commands on its hosts, end it."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from slurmray import run
from slurmray.errors import RehearsalError
from slurmray.rehearsal import cgroups, conf
from slurmray.rehearsal.cache import as_root
from slurmray.rehearsal.machine import cache_folder

Runtime = Literal["podman", "docker"]
_PACKAGES = Path(__file__).parents[2]
_FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL")


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin", "PYTHONPATH": str(_PACKAGES)}


class Lab:
    """A login host and nodes with a real Slurm, all of which end with this object, or with this process.

    cluster: the nodes. folder: the submit folder, the same on all hosts and on the machine, writable.
    runtime: whether the nodes have a Docker daemon; Podman needs none.
    podman_store, docker_root: where the images are (see `images`).
    root: the root filesystem that the hosts' programs come from.
    copy_on_write: more folders of the machine that the hosts see; what is written there is lost at the end.
    """

    def __init__(
        self,
        cluster: conf.Cluster,
        folder: Path,
        runtime: Runtime | None = "podman",
        *,
        podman_store: Path | None = None,
        docker_root: Path | None = None,
        root: Path = Path("/"),
        copy_on_write: Sequence[Path] = (),
    ) -> None:
        self.cluster = cluster
        self.folder = folder.resolve()
        self.runtime = runtime
        self.podman_store = podman_store
        self.docker_root = docker_root
        self.root = root
        self.copy_on_write = [path.resolve() for path in copy_on_write]
        self.pids: dict[str, int] = {}
        self._inner: subprocess.Popen[bytes] | None = None

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
        mount_point = cache_folder() / "lab"
        mount_point.mkdir(parents=True, exist_ok=True)
        user = [] if os.geteuid() == 0 else ["--user", "--map-auto", "--map-root-user"]
        argv = ["setpriv", "--pdeathsig", "KILL", "unshare", *user, "--mount", "--net", "--pid", "--ipc", "--uts"]
        argv += ["--fork", "--kill-child=KILL", sys.executable, "-P", "-m", "slurmray.rehearsal.inner"]
        self._inner = run.start(argv, env=_environment())
        self._send(self._plan(mount_point))
        self.power_on(conf.LOGIN)
        self.power_on(*self.cluster.nodes)
        self._wait_idle()

    def down(self) -> None:
        """End everything at once."""
        if self._inner and self._inner.stdin:
            self._inner.stdin.close()
            try:
                self._inner.wait(10)
            except subprocess.TimeoutExpired:
                self._inner.kill()
                self._inner.wait()
            cgroups.sweep()
        self._inner = None
        self.pids = {}

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

    def argv(self, argv: Sequence[str], user: str | None = None, host: str = conf.LOGIN) -> list[str]:
        """Return the command that runs `argv` on a host in the submit folder; its end is the caller's to see.

        user: root, alice or bob, with a fresh environment of theirs; None is root with the caller's environment.
        """
        enter = ["nsenter", "-t", str(self.pids[host]), "-m", "-n", "-p", "-i", "-u", "-C"]
        if os.geteuid() != 0:
            enter += ["-U", "--preserve-credentials"]
        become = ["setpriv", "--pdeathsig", "KILL"]
        if user:
            become += ["--reset-env"]
        if user not in {None, "root"}:
            become += [f"--reuid={user}", f"--regid={user}", "--init-groups", "--inh-caps=-all"]
        return [*enter, *become, "env", "-C", str(self.folder), *argv]

    def run(
        self,
        argv: Sequence[str],
        user: str = "root",
        host: str = conf.LOGIN,
        timeout: float | None = 60,
        text: str | None = None,
        stdin: IO[bytes] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host in the submit folder to its end; timeout is in seconds."""
        return run.run(self.argv(argv, user, host), timeout=timeout, text=text, stdin=stdin)

    def sbatch(self, script: str | Path, user: str = "root", args: Sequence[str] = ()) -> int:
        """Submit a script from the submit folder and return the job's id."""
        done = self.run(["sbatch", "--parsable", *args, str(script)], user)
        if done.returncode != 0:
            raise RehearsalError(f"sbatch refused the script: {done.stderr.strip()}")
        return int(done.stdout.split(";")[0])

    def job(self, job: int) -> dict[str, str]:
        """Return what `scontrol show job` says, field by field."""
        done = self.run(["scontrol", "--oneliner", "show", "job", str(job)])
        return dict(re.findall(r"(\S+?)=(\S*)", done.stdout))

    def wait(self, job: int, timeout: float) -> tuple[str, str]:
        """Wait for a job's end and return its state and exit code, as ("FAILED", "7:0"); timeout is in seconds."""
        deadline = time.monotonic() + timeout
        while (about := self.job(job)).get("JobState") not in _FINAL:
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {job} is {about.get('JobState')} after {timeout:g} s")
            time.sleep(0.1)
        return about["JobState"], about["ExitCode"]

    def left_over(self) -> list[str]:
        """Return what jobs have left on the hosts: containers, processes, files in /tmp; one text each."""
        script = Path(__file__).with_name("left_over.sh").read_text()
        seen = [str(self.folder), *map(str, self.copy_on_write)]
        found = []
        for host in self.pids:
            done = self.run(["bash", "-c", script, "left_over", *seen], host=host)
            found += [f"{host}: {line}" for line in (done.stdout + done.stderr).splitlines()]
        return found

    def _plan(self, mount_point: Path) -> dict[str, Any]:
        cluster = self.cluster
        limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 1_048_576)
        tasks = min(resource.getrlimit(resource.RLIMIT_NPROC)[1], 4_194_304)
        limits = {"nofile": limit, "nproc": tasks} if limit > 0 and tasks > 0 else {}
        version = run.run([*as_root(), "chroot", str(self.root), "/usr/sbin/slurmctld", "-V"], env=_environment())
        major = int(version.stdout.split()[1].split(".")[0])
        daemons = {host: "slurmd" for host in cluster.nodes} | {conf.LOGIN: "munged slurmctld"}
        if self.runtime == "docker":
            daemons |= {host: "dockerd slurmd" for host in cluster.nodes}
        binds = [(str(self.folder), str(self.folder))]
        if self.podman_store:
            binds.append((str(self.podman_store), conf.IMAGES))
        if os.geteuid() == 0:
            rootless = cache_folder() / "rootless"
            rootless.mkdir(exist_ok=True)
            binds.append((str(rootless), conf.ROOTLESS))
        return {
            "mount_point": str(mount_point),
            "root": str(self.root),
            "etc": conf.etc_files(cluster, major, limits, str(Path.home())),
            "devices": conf.gres_devices(cluster),
            "cgroup": "v2" if os.geteuid() != 0 or Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
            "cgroup_parent": cgroups.parent(),
            "docker_root": str(self.docker_root or ""),
            "copy_on_write": [str(path) for path in self.copy_on_write],
            "overlay_options": "" if os.geteuid() == 0 else ",userxattr",
            "binds": binds,
            "homes": {user.home: user.uid for user in conf.USERS},
            "gateways": [conf.GATEWAY_V4, conf.GATEWAY_V6],
            "hosts": {
                host: {
                    "daemons": daemons[host],
                    "addresses": [
                        f"{address}/{64 if ':' in address else 16}" for address in conf.addresses(cluster, host)
                    ],
                }
                for host in cluster.hosts
            },
        }

    def _send(self, message: object) -> Any:
        inner = self._inner
        if not inner or not inner.stdin or not inner.stdout:
            raise RehearsalError("the rehearsal's cluster is not up")
        inner.stdin.write(json.dumps(message).encode() + b"\n")
        inner.stdin.flush()
        line = inner.stdout.readline()
        if not line:
            raise RehearsalError("the rehearsal's first process ended; what it said stands above")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise RehearsalError(answer["error"])
        return answer["value"] if isinstance(answer, dict) else answer

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
                raise RehearsalError(f"Slurm does not come up: {states or done.stderr}; its log: {log}")
            time.sleep(0.05)
