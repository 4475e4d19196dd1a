"""Program: the first process in a rehearsal's namespaces, started by `slurm_cluster`. All hosts end with it.

Reads the plan as one JSON line, then one line for each command, and answers each with one JSON line.
Exits at the end of its standard input, except after the command `keep`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from slurmray.rehearsal.cluster import cgroups, root_filesystems

_HOST = Path(__file__).with_name("host.sh")
_NAMESPACES = ("--net", "--mount", "--uts", "--pid", "--ipc", "--cgroup", "--fork", "--kill-child=KILL")

# usage: FOLDER... -- COMMAND...: runs a command in these cgroups
_ENTER_CGROUPS = 'while [[ $1 != -- ]]; do echo 0 >"$1/cgroup.procs"; shift; done; shift; exec "$@"'


class Hosts:
    """The hosts, and the bridge that connects them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.is_kept = False
        self.base = Path(plan["mount_point"])
        # Seen through the machine's /proc: its pid on the machine.
        self.pid = int(Path("/proc/self").readlink().name)
        # A child of the cgroup of the process that booted it; see cgroups.remove_stale.
        self.cgroup = f"slurmray-{plan['pid_namespace']}-{self.pid}"
        self.running: dict[str, subprocess.Popen[str]] = {}
        root_filesystems.mount("--make-rprivate", "/")
        root_filesystems.mount("-t", "tmpfs", "-o", "mode=755,size=75%", "tmpfs", self.base)
        root_filesystems.compose(self.base / "root", Path(plan["root"]), plan["etc"], plan["devices"])
        (self.base / "munge").mkdir()
        self.binds = [str(self.base / "munge"), "/run/munge"]
        for index, path in enumerate(plan["copy_on_write"]):
            view = root_filesystems.copy_on_write(
                self.base / f"view{index}", Path(path), plan["overlay_options"]
            )
            self.binds += [str(view), path]
        for index, path in enumerate(plan["missing"]):
            (self.base / f"empty{index}").mkdir(mode=0o1777)
            self.binds += [str(self.base / f"empty{index}"), path]
        for source, target in plan["binds"]:
            self.binds += [source, target]
        for index, (source, target) in enumerate(plan["read_only"]):
            view = self.base / f"read_only{index}"
            view.mkdir() if Path(source).is_dir() else view.touch()
            root_filesystems.mount("--rbind", source, view)
            root_filesystems.read_only(view)
            self.binds += [str(view), target]
        for path, uid in plan["homes"].items():
            home = self.base / "homes" / Path(path).name
            home.mkdir(parents=True)
            os.chown(home, uid, uid)
            self.binds += [str(home), path]
        for host in plan["hosts"]:
            root_filesystems.create_host_folder(self.base / "hosts" / host)
            if plan["docker_root"] and "dockerd" in plan["hosts"][host]["daemons"]:
                root_filesystems.docker_root(
                    Path(plan["docker_root"]), self.base / "hosts" / host / "var/lib/docker"
                )
        self._bridge()

    def _bridge(self) -> None:
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        _ip("link", "set", "bridge", "up")
        for gateway in self.plan["gateways"]:
            _ip("address", "add", gateway, "dev", "bridge", *(["nodad"] if ":" in gateway else []))
        # With forwarding and no route, connections to the outside fail at once with "unreachable".
        for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            Path("/proc/sys/net", setting).write_text("1")

    def power_on(self, *hosts: str) -> dict[str, int]:
        """Boot hosts, all at once; return host -> pid of its first process on the machine."""
        pids = {host: self._start(host) for host in hosts}
        for host in hosts:
            if self._read_line(host) != "up":
                raise RuntimeError(f"host {host} did not boot")
        return pids

    def _start(self, host: str) -> int:
        plan = self.plan["hosts"][host]
        root, own = str(self.base / "root"), str(self.base / "hosts" / host)
        controllers = self.plan["controllers"]
        folders = map(str, cgroups.create(self.cgroup, host, controllers))
        argv = ["bash", "-c", _ENTER_CGROUPS, "enter", *folders, "--"]
        argv += ["unshare", *_NAMESPACES, "bash", str(_HOST), root, own, host, " ".join(controllers)]
        argv += [self.cgroup, plan["daemons"], *plan["addresses"], "--", *self.binds]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=sys.stderr, text=True)
        self.running[host] = process
        pid = self._read_line(host)
        if not pid:
            raise RuntimeError(f"host {host} could not be created")
        veth = self._veth(host)
        # The same after a power failure: other hosts have it in their ARP tables.
        mac = f"02:00:00:00:00:{list(self.plan['hosts']).index(host) + 1:02x}"
        # By path: iproute2 6.15 looks up a pid in /proc, which shows the machine's pids here.
        peer = ["peer", "name", "eth0", "address", mac, "netns", f"/proc/{pid}/ns/net"]
        _ip("link", "add", veth, "type", "veth", *peer)
        _ip("link", "set", veth, "master", "bridge", "up")
        assert process.stdin  # noqa: S101 (for mypy)
        process.stdin.write("\n")
        process.stdin.flush()
        return int(pid)

    def _read_line(self, host: str) -> str:
        stdout = self.running[host].stdout
        assert stdout  # noqa: S101 (for mypy)
        return stdout.readline().strip()

    def power_off(self, host: str) -> None:
        """End a host as a power failure does."""
        # First, or its processes could still close their connections. Later the kernel removes it, too.
        _ip("link", "delete", self._veth(host))
        process = self.running.pop(host)
        process.kill()
        process.wait()

    def disconnect(self, host: str) -> None:
        """Unplug the host's network cable."""
        _ip("link", "set", self._veth(host), "down")

    def reconnect(self, host: str) -> None:
        """Plug the host's network cable in again."""
        _ip("link", "set", self._veth(host), "up")

    def keep(self) -> None:
        """Do not exit at the end of standard input."""
        self.is_kept = True

    def _veth(self, host: str) -> str:
        return f"host{list(self.plan['hosts']).index(host)}"


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True)


def main() -> None:
    """Answer commands until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    hosts = Hosts(json.loads(sys.stdin.readline()))
    print(json.dumps({"value": hosts.pid}), file=answers, flush=True)
    for line in sys.stdin:
        command, *args = json.loads(line)
        try:
            answer = {"value": getattr(hosts, command)(*args)}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    if hosts.is_kept:
        answers.close()
        while True:
            signal.pause()
