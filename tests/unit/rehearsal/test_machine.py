"""What a rehearsal says of a machine that lacks something."""

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
def _a_bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of root, without programs; everything else is as it should be."""
    (tmp_path / "ids").write_text(f"someone:100000:65536\n{USER}:165536:65536\n")
    monkeypatch.setattr(machine, "PATH", str(tmp_path))
    monkeypatch.setattr(machine, "_IDS", (tmp_path / "ids",))
    monkeypatch.setattr(machine, "_RESTRICTED", tmp_path / "no-such-switch")
    monkeypatch.setattr(machine, "is_root", lambda: True)


def an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "is_root", lambda: False)


def install(folder: Path, *programs: str) -> None:
    for program in programs:
        (folder / program).touch(0o755)


def refusal(runtime: str, *, own_slurm: bool = False, builds: bool = False) -> str:
    with pytest.raises(RehearsalError) as caught:
        machine.require(runtime, own_slurm=own_slurm, builds=builds)
    assert caught.value.exit_code == ExitCode.REHEARSAL
    return str(caught.value)


def test_all_that_is_missing_comes_with_one_command() -> None:
    assert refusal("docker", own_slurm=True, builds=True) == (
        "missing on this machine: ip, nsenter, setpriv, unshare, sbatch, slurmctld, slurmd, munged, dockerd, "
        "docker, mmdebstrap; install with: apt-get install -y docker.io iproute2 mmdebstrap munge "
        "slurm-client slurmctld slurmd util-linux"
    )


def test_only_what_is_missing_and_needed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "nsenter", "setpriv", "unshare", "newgidmap")
    assert refusal("none") == ("missing on this machine: ip; install with: apt-get install -y iproute2")
    an_ordinary_user(monkeypatch)
    assert refusal("podman") == (
        "missing on this machine: ip, podman, newuidmap; "
        "install with: sudo apt-get install -y iproute2 podman uidmap"
    )


def test_a_machine_that_has_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "ip", "nsenter", "setpriv", "unshare", "newuidmap", "newgidmap")
    machine.require("none", own_slurm=False, builds=False)
    an_ordinary_user(monkeypatch)
    machine.require("none", own_slurm=False, builds=False)


def test_subordinate_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "ip", "nsenter", "setpriv", "unshare", "newuidmap", "newgidmap")
    (tmp_path / "others").write_text("someone:100000:65536\n")
    lacking = (tmp_path / "ids", tmp_path / "others", tmp_path / "gone")
    monkeypatch.setattr(machine, "_IDS", lacking)
    machine.require("none", own_slurm=False, builds=False)  # root needs none
    an_ordinary_user(monkeypatch)
    assert refusal("none") == (
        f"missing on this machine: subordinate ids of {USER} in {tmp_path}/others and {tmp_path}/gone; "
        f"install with: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {USER}"
    )
    (tmp_path / "others").write_text(f"{os.getuid()}:100000:65536\n")
    monkeypatch.setattr(machine, "_IDS", lacking[:2])
    machine.require("none", own_slurm=False, builds=False)


def test_ordinary_users_who_may_not_make_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "restricted").write_text("1\n")
    monkeypatch.setattr(machine, "_RESTRICTED", tmp_path / "restricted")
    an_ordinary_user(monkeypatch)
    said = refusal("none")
    assert "leave for ordinary users to make namespaces; install with: sudo apt-get install -y " in said
    assert re.search(r" && sudo sysctl \S+\.restricted=0$", said)
    (tmp_path / "restricted").write_text("0\n")
    assert "sysctl" not in refusal("none")


def test_a_process_that_nobody_has_waited_for_has_ended() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert machine.birth(child.pid) == 0
    assert machine.birth(os.getpid()) > 0
