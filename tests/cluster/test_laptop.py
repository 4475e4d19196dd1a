"""Commands on a machine without Slurm, through a real sshd on the login host, as alice with a key."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmray import local_commands
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster import slurm_conf
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.cluster.slurm_conf import ClusterConfig
from slurmray.rehearsal.images import suites

from . import rootless
from .conftest import GPUS
from .jobs import HANG, wait_clean, wait_until
from .pages import ROOT, run_page

ALICE = slurm_conf.USERS[0]
GREETING = "echo Welcome to the cluster\n"
SSHD = """\
HostKey {folder}/host
UsePAM no
Banner {folder}/banner
PasswordAuthentication no
"""
SSH = """\
Host login
  User alice
  ProxyCommand {proxy}
  IdentityFile {folder}/key
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking accept-new
"""


@pytest.fixture(scope="module")
def cluster(podman_layout: Layout, archive: Path) -> Iterator[SlurmCluster]:
    """Hosts of Debian 12, which have sshd and rsync: the machine itself may have none."""
    root = suites.root(machine.cache_folder(), "bookworm", print, ("openssh-server", "rsync"))
    layout = Layout(podman_layout.folder, "podman", podman_layout.store, root)
    with SlurmCluster(ClusterConfig(nodes=("node1", "node2"), gres=GPUS), layout) as cluster:
        rootless.load_for_user(cluster, archive, ALICE, print)
        yield cluster


@contextlib.contextmanager
def laptop(cluster: SlurmCluster, work: Path) -> Iterator[None]:
    """On a machine on which only ssh and rsync can be found, with the current folder `work`."""
    # Short, for the socket of the shared connection.
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        for key in ("host", "key"):
            local_commands.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)])
        proxy = start_sshd(cluster, folder)
        (folder / "config").write_text(SSH.format(folder=folder, proxy=proxy))
        programs = folder / "bin"
        programs.mkdir()
        ssh = shlex.join([shutil.which("ssh") or "ssh", "-F", str(folder / "config")])
        # ssh looks for its configuration in the home of /etc/passwd, whatever HOME is. The proxy needs PATH.
        path = shlex.quote(os.environ["PATH"])
        (programs / "ssh").write_text(f'#!/bin/sh\nPATH={path} exec {ssh} "$@"\n')
        (programs / "ssh").chmod(0o755)
        (programs / "rsync").symlink_to(shutil.which("rsync") or "rsync")
        patch.setenv("PATH", str(programs))
        patch.setenv("HOME", name)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("SLURMRAY_CONFIG")
        patch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
        patch.chdir(work)
        try:
            yield
        finally:
            local_commands.run(["ssh", f"-oControlPath={folder}/.ssh/slurmray-%C", "-O", "exit", "login"])


def start_sshd(cluster: SlurmCluster, folder: Path) -> str:
    """Return the command that connects to an sshd on the login host; alice's key is that in the folder."""
    place = tempfile.mkdtemp(dir=cluster.folder)
    shutil.copy(folder / "host", place)
    Path(place, "banner").write_text("Authorized use only\n")
    Path(place, "sshd_config").write_text(SSHD.format(folder=place))
    user = "grep -q ^sshd: /etc/passwd || echo sshd:x:100:65534::/run/sshd:/bin/false >>/etc/passwd"
    done = cluster.run(["bash", "-c", f"mkdir -p /run/sshd; chmod 755 /run/sshd; {user}"])
    assert done.returncode == 0, done.stderr
    key = (folder / "key.pub").read_text()
    write = "umask 077; mkdir -p ~/.ssh; cat >~/.ssh/authorized_keys; printf %s"
    done = cluster.run(["bash", "-c", f"{write} {shlex.quote(GREETING)} >~/.profile"], ALICE.name, text=key)
    assert done.returncode == 0, done.stderr
    sshd = ["/usr/sbin/sshd", "-i", "-e", "-f", f"{place}/sshd_config"]
    # ssh leaves the connection to a process in the background, and its own parent ends.
    return shlex.join(cluster.argv(["setpriv", "--pdeathsig", "clear", *sshd], "root"))


@pytest.mark.full
def test_the_first_hour(cluster: SlurmCluster, tmp_path: Path) -> None:
    with laptop(cluster, tmp_path):
        run_page(ROOT / "docs/from-a-laptop.md")
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == [
        "job.yaml",
        "slurm",  # the log, from fetch
        "slurmray",  # run directories
        "train.py",
    ]
    wait_clean(cluster)


@pytest.mark.full
def test_dashboard_and_clean(cluster: SlurmCluster, tmp_path: Path) -> None:
    with laptop(cluster, tmp_path):
        config_file = Path("~/.config/slurmray/config.yaml").expanduser()
        config_file.parent.mkdir(parents=True)
        config_file.write_text("profile: lab\nprofiles: {lab: {host: login}}\n")
        slurmray("submit", "--nodes=1", "--cpus-per-task=2", "--mem=1G", "--time=30", "--", "sleep", "600")
        argv = [sys.executable, "-m", "slurmray"]
        wait_until(
            lambda: local_commands.run([*argv, "attach", "--", "true"]).returncode == 0,
            lambda: slurmray("logs"),
        )
        end = slurmray("attach", "--", "bash", "-c", "cat $RAY_TMPDIR/end_time")
        assert 0 < int(end) - time.time() <= 1800
        browser, opened = Path(os.environ["PATH"], "xdg-open"), tmp_path / "opened"
        browser.write_text(f'#!/bin/sh\necho "$1" >{opened}\n')
        browser.chmod(0o755)
        terminal, stdout = pty.openpty()
        env = {**os.environ, "DISPLAY": ":0"}
        with subprocess.Popen([*argv, "dashboard", "--port=0"], stdout=stdout, env=env) as forwarder:
            wait_until(lambda: opened.exists() and opened.read_text().endswith("\n"), lambda: "no browser")
            client = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            address = opened.read_text().strip()
            client.open(address, timeout=HANG).close()
            page = client.open(address.partition("?")[0], timeout=HANG).read()
            assert b"<title>Ray Dashboard</title>" in page
            forwarder.send_signal(signal.SIGINT)
        os.close(stdout)
        os.close(terminal)
        assert forwarder.returncode == 130
        slurmray("cancel", "slurmray", "--now")
        state = "CANCELLED"
        wait_until(
            lambda: json.loads(slurmray("status", "--json"))["state"] == state, lambda: slurmray("status")
        )
        removed = slurmray("clean", "--older-than=0", "--yes")
        assert removed.startswith(f"login:{ALICE.home}/slurmray/{tmp_path.name}/slurmray-runs/")
        assert slurmray("clean", "--older-than=0", "--yes") == ""
    wait_clean(cluster)


def slurmray(*args: str) -> str:
    """Run a command line that must not fail; return its standard output."""
    done = local_commands.run([sys.executable, "-m", "slurmray", *args], timeout=HANG)
    assert done.returncode == 0, done.stderr
    return done.stdout
