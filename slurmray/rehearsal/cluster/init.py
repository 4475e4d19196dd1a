"""The first process in the namespaces of a rehearsal: with it everything ends. A program; `lab` starts it.

It reads one JSON line with the plan, then one line for each command, and answers each with one JSON line.
When its standard input ends, it ends, unless it was told to stay.
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

# enter.sh FOLDER... -- WORD...: a command in these cgroups
_ENTER = 'while [[ $1 != -- ]]; do echo 0 >"$1/cgroup.procs"; shift; done; shift; exec "$@"'


class Inner:
    """The hosts and the bridge between them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.stays = False
        self.lab = Path(plan["mount_point"])
        self.pid = int(Path("/proc/self").readlink().name)  # as the machine numbers it, whose /proc this is
        self.cgroup = cgroups.parent(plan["pid_namespace"], self.pid)
        self.running: dict[str, subprocess.Popen[str]] = {}
        root_filesystems.mount("--make-rprivate", "/")
        root_filesystems.mount("-t", "tmpfs", "-o", "mode=755,size=75%", "tmpfs", self.lab)
        root_filesystems.compose(self.lab / "root", Path(plan["root"]), plan["etc"], plan["devices"])
        (self.lab / "munge").mkdir()
        self.binds = [str(self.lab / "munge"), "/run/munge"]
        for index, path in enumerate(plan["copy_on_write"]):
            view = root_filesystems.copy_on_write(
                self.lab / f"view{index}", Path(path), plan["overlay_options"]
            )
            self.binds += [str(view), path]
        for index, path in enumerate(plan["missing"]):
            (self.lab / f"empty{index}").mkdir(mode=0o1777)
            self.binds += [str(self.lab / f"empty{index}"), path]
        for source, target in plan["binds"]:
            self.binds += [source, target]
        for index, (source, target) in enumerate(plan["read_only"]):
            view = self.lab / f"read_only{index}"
            view.mkdir() if Path(source).is_dir() else view.touch()
            root_filesystems.mount("--rbind", source, view)
            root_filesystems.read_only(view)
            self.binds += [str(view), target]
        for path, uid in plan["homes"].items():
            home = self.lab / "homes" / Path(path).name
            home.mkdir(parents=True)
            os.chown(home, uid, uid)
            self.binds += [str(home), path]
        for host in plan["hosts"]:
            root_filesystems.own(self.lab / "hosts" / host)
            if plan["docker_root"] and "dockerd" in plan["hosts"][host]["daemons"]:
                root_filesystems.docker_root(
                    Path(plan["docker_root"]), self.lab / "hosts" / host / "var/lib/docker"
                )
        self._bridge()

    def _bridge(self) -> None:
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        _ip("link", "set", "bridge", "up")
        for gateway in self.plan["gateways"]:
            _ip("address", "add", gateway, "dev", "bridge", *(["nodad"] if ":" in gateway else []))
        # With forwarding and no route, a host that looks for the world hears "unreachable" at once.
        for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            Path("/proc/sys/net", setting).write_text("1")

    def power_on(self, *hosts: str) -> dict[str, int]:
        """Boot hosts, all at once, and return their first processes as the machine numbers them."""
        pids = {host: self._start(host) for host in hosts}
        for host in hosts:
            if self._says(host) != "up":
                raise RuntimeError(f"host {host} did not boot")
        return pids

    def _start(self, host: str) -> int:
        about = self.plan["hosts"][host]
        base, own = str(self.lab / "root"), str(self.lab / "hosts" / host)
        controllers = self.plan["controllers"]
        argv = ["bash", "-c", _ENTER, "enter", *map(str, cgroups.make(self.cgroup, host, controllers)), "--"]
        argv += ["unshare", *_NAMESPACES, "bash", str(_HOST), base, own, host, " ".join(controllers)]
        argv += [self.cgroup, about["daemons"], *about["addresses"], "--", *self.binds]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=sys.stderr, text=True)
        self.running[host] = process
        pid = self._says(host)
        if not pid:
            raise RuntimeError(f"host {host} cannot be made")
        veth = self._veth(host)
        # The same as before a power failure: the other hosts remember it.
        mac = f"02:00:00:00:00:{list(self.plan['hosts']).index(host) + 1:02x}"
        # By path: iproute2 6.15 looks a process id up in /proc, which has the machine's numbers here.
        peer = ["peer", "name", "eth0", "address", mac, "netns", f"/proc/{pid}/ns/net"]
        _ip("link", "add", veth, "type", "veth", *peer)
        _ip("link", "set", veth, "master", "bridge", "up")
        assert process.stdin  # noqa: S101 (for mypy)
        process.stdin.write("\n")
        process.stdin.flush()
        return int(pid)

    def _says(self, host: str) -> str:
        stdout = self.running[host].stdout
        assert stdout  # noqa: S101 (for mypy)
        return stdout.readline().strip()

    def power_off(self, host: str) -> None:
        """End a host as a power failure does."""
        self.cut(host)  # first, or its processes would still say goodbye
        process = self.running.pop(host)
        process.kill()
        process.wait()
        _ip("link", "delete", self._veth(host))  # it goes with its host, but some time later

    def cut(self, host: str) -> None:
        """Take the host's network cable away."""
        _ip("link", "set", self._veth(host), "down")

    def mend(self, host: str) -> None:
        """Put the host's network cable back."""
        _ip("link", "set", self._veth(host), "up")

    def stay(self) -> None:
        """Do not end when the standard input does."""
        self.stays = True

    def _veth(self, host: str) -> str:
        return f"host{list(self.plan['hosts']).index(host)}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    inner = Inner(json.loads(sys.stdin.readline()))
    print(json.dumps({"value": inner.pid}), file=answers, flush=True)
    for line in sys.stdin:
        name, *words = json.loads(line)
        try:
            answer = {"value": getattr(inner, name)(*words)}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    if inner.stays:
        answers.close()
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
