"""Errors about programs and settings that are missing on the machine."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from pathlib import Path

import pytest

from slurmray.errors import ExitCode, RehearsalError
from slurmray.rehearsal import machine

USER = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def _machine_without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without programs, and with correct settings; the user is root."""
    (tmp_path / "ids").write_text(f"someone:100000:65536\n{USER}:165536:65536\n")
    monkeypatch.setattr(machine, "PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_IDS", (tmp_path / "ids",))
    monkeypatch.setattr(machine, "_RESTRICTED", tmp_path / "no-such-switch")
    monkeypatch.setattr(machine, "is_root", lambda: True)


def become_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "is_root", lambda: False)


def install(folder: Path, *programs: str) -> None:
    for program in programs:
        (folder / program).touch(0o755)


def error(runtime: machine.Runtime, *, own_slurm: bool = False, builds: bool = False) -> str:
    with pytest.raises(RehearsalError) as caught:
        machine.require(runtime, own_slurm=own_slurm, builds=builds)
    assert caught.value.exit_code == ExitCode.REHEARSAL
    return str(caught.value)


def test_all_missing_programs_are_installed_by_one_command() -> None:
    assert error("docker", own_slurm=True, builds=True) == (
        "missing on this machine: ip, nsenter, setpriv, unshare, sbatch, slurmctld, slurmd, munged, dockerd, "
        "docker, mmdebstrap; install with: apt-get install -y docker.io iproute2 mmdebstrap munge "
        "slurm-client slurmctld slurmd util-linux"
    )


def test_only_missing_and_needed_programs_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "nsenter", "setpriv", "unshare", "newgidmap")
    assert error("none") == ("missing on this machine: ip; install with: apt-get install -y iproute2")
    become_ordinary_user(monkeypatch)
    assert error("podman") == (
        "missing on this machine: ip, podman, newuidmap; "
        "install with: sudo apt-get install -y iproute2 podman uidmap"
    )


def test_machine_with_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "ip", "nsenter", "setpriv", "unshare", "newuidmap", "newgidmap")
    machine.require("none", own_slurm=False, builds=False)
    become_ordinary_user(monkeypatch)
    machine.require("none", own_slurm=False, builds=False)


def test_missing_subordinate_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "ip", "nsenter", "setpriv", "unshare", "newuidmap", "newgidmap")
    (tmp_path / "others").write_text("someone:100000:65536\n")
    files = (tmp_path / "ids", tmp_path / "others", tmp_path / "gone")
    monkeypatch.setattr(machine, "_IDS", files)
    machine.require("none", own_slurm=False, builds=False)  # root needs none
    become_ordinary_user(monkeypatch)
    assert error("none") == (
        f"missing on this machine: subordinate ids of {USER} in {tmp_path}/others and {tmp_path}/gone; "
        f"install with: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {USER}"
    )
    (tmp_path / "others").write_text(f"{os.getuid()}:100000:65536\n")
    monkeypatch.setattr(machine, "_IDS", files[:2])
    machine.require("none", own_slurm=False, builds=False)


def test_user_namespaces_are_restricted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "restricted").write_text("1\n")
    monkeypatch.setattr(machine, "_RESTRICTED", tmp_path / "restricted")
    become_ordinary_user(monkeypatch)
    message = error("none")
    assert (
        "permission for ordinary users to create user namespaces; install with: sudo apt-get install -y "
        in message
    )
    assert re.search(r" && sudo sysctl \S+\.restricted=0$", message)
    (tmp_path / "restricted").write_text("0\n")
    assert "sysctl" not in error("none")


def test_zombie_counts_as_ended() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert machine.start_time(child.pid) == 0
    assert machine.start_time(os.getpid()) > 0
