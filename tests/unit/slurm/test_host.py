"""A host behind ssh, of which there is a stand-in; tests/cluster/test_laptop.py has a real one."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from slurmray.errors import SlurmError, UsageError
from slurmray.slurm import slurm_commands
from slurmray.slurm.host import HERE, SshHost

from .. import ssh
from ..programs import install

HOSTILE = "a b'\"$(touch /tmp/x)`\\\n*\t~é"


@pytest.fixture(params=["bash", "sh"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshHost:
    """A host whose login shell prints a greeting. Its home folder is tmp_path/home."""
    home = ssh.install(tmp_path, monkeypatch)
    with (home / ".profile").open("a") as profile:
        profile.write("echo welcome; echo oops >&2; export FROM_PROFILE=1\n")
    monkeypatch.setenv("SHELL", request.param)
    return SshHost("login")


def test_a_command(host: SshHost, tmp_path: Path) -> None:
    """Arguments, input, variables and folder arrive as they are; a greeting does not get into the output."""
    program = 'pwd; cat; printf "%s|" "$1" "$V" "$FROM_PROFILE"; echo error >&2; exit 3'
    done = host.run(
        ["sh", "-c", program, "sh", HOSTILE], text=HOSTILE, folder=tmp_path, variables={"V": HOSTILE}
    )
    assert done.returncode == 3
    assert done.stdout == f"{tmp_path}\n{HOSTILE}{HOSTILE}|{HOSTILE}|1|"
    assert done.stderr == "error\n"
    assert host.run(["cat"]).stdout == "", "no input, rather than the script"


def test_a_command_with_its_own_input(host: SshHost) -> None:
    process = host.start(["sh", "-c", 'cat; printf "%s|" "$1" "$V"', "sh", HOSTILE], {"V": HOSTILE})
    out, _ = process.communicate(b"\0data")
    assert out == b"\0data" + f"{HOSTILE}|{HOSTILE}|".encode()


def test_options_of_slurm_s_commands_from_startup_files(host: SshHost, tmp_path: Path) -> None:
    """SQUEUE_PARTITION would hide jobs, so that `slurmray clean` takes one that runs for an ended one."""
    with (tmp_path / "home/.profile").open("a") as profile:
        profile.write("export SQUEUE_PARTITION=debug SCANCEL_INTERACTIVE=1 SCONTROL_ALL=1 SLURM_CONF=/a\n")
    kept = "PATH", "SLURM_CONF"
    assert [name for name in kept if f"\n{name}=" in f"\n{host.run(['env']).stdout}"] == list(kept)
    assert not re.findall("SQUEUE|SCANCEL|SCONTROL", host.run(["env"]).stdout)
    out, _ = host.start(["env"], {}).communicate()
    assert not re.findall(b"SQUEUE|SCANCEL|SCONTROL", out)


def test_what_is_not_there(host: SshHost, tmp_path: Path) -> None:
    for path, error in ((tmp_path / "none", FileNotFoundError), (tmp_path, OSError)):
        with pytest.raises(error):
            host.read(path)
    assert host.names(tmp_path / "none") == []
    assert host.read_all([tmp_path / "none"]) == {}
    with pytest.raises(SlurmError, match=r"^sview: no such command on login: `ssh login bash -lc sview`"):
        slurm_commands.call(["sview"], host=host)
    assert host.run(["sh", "-c", "exit 255"]).returncode == 255, "not ssh's"
    with pytest.raises(SlurmError, match=r"^ssh nowhere: .*: Connection refused; try `ssh nowhere`$"):
        slurm_commands.squeue(SshHost("nowhere"))


@pytest.mark.parametrize("data", [b"", b"\0\xff\n\n", b"no newline", b"-1\n7\n", bytes(300_000)])
def test_files_are_read_as_on_this_host(data: bytes, host: SshHost, tmp_path: Path) -> None:
    folder = tmp_path / "-f *'"
    folder.mkdir()
    paths = [folder / name for name in ("-one", "two words", "none", "three")]
    for path in paths:
        if path.name != "none":
            path.write_bytes(data + path.name.encode())
    for arguments in ({}, {"start": 3}, {"start": 10**6}, {"last": 5}, {"last": 10**6}):
        assert host.read(paths[0], **arguments) == HERE.read(paths[0], **arguments)
    assert host.read_all(paths) == HERE.read_all(paths)
    assert sorted(host.names(folder)) == sorted(HERE.names(folder))


def test_very_many_files(host: SshHost, tmp_path: Path) -> None:
    """As of a sweep's tasks: they are more than a command's arguments may have."""
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    paths = [folder / f"{number:0200}" for number in range(9000)]
    paths[-1].write_text("last")
    assert host.read_all(paths) == {paths[-1]: b"last"}


def test_rsync_of_an_ipv6_address() -> None:
    assert SshHost("me@2001:db8::5")._rsync_name == "me@[2001:db8::5]"
    assert SshHost("login")._rsync_name == "login"


def test_the_home_folder(host: SshHost, tmp_path: Path) -> None:
    assert host.expand("~/a") == tmp_path / "home/a"
    assert host.expand("~") == tmp_path / "home"
    assert host.expand("a/~") == Path("a/~")
    assert HERE.expand("~no-such-user/a") == Path("~no-such-user/a")


def test_files_are_copied(host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    (work / "src/deep").mkdir(parents=True)
    (work / "src/deep/a b'$.py").write_text("a")
    (work / "-job").write_text("b")
    (work / "other").write_text("c")
    monkeypatch.chdir(work)
    folder = host.prepare_folder("runs/it's", ["src", "-job"])
    assert folder == tmp_path / "home/runs/it's"
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert names == ["-job", "src/deep/a b'$.py"]
    (folder / "result").touch()
    assert host.prepare_folder(str(folder), ["src"]) == folder
    assert (folder / "result").exists()
    with pytest.raises(UsageError, match=r"^sync: rsync: .*none.* No such file"):
        host.prepare_folder("runs", ["none"])
    (tmp_path / "home/file").touch()
    with pytest.raises(UsageError, match=r"^login: .*file.*; correct `folder` in the profile$"):
        host.prepare_folder("file/a", [])


def test_a_host_that_hangs(host: SshHost) -> None:
    with pytest.raises(SlurmError, match=r"^ssh login: no answer within 0\.1 s; try `ssh login`$"):
        slurm_commands.call(["sleep", "60"], host=host, timeout=0.1)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(("length", "paths"), [(31, "none"), (32, "none"), (31, "/x/%C")])
def test_one_connection_for_all_commands(
    length: int, paths: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the user's configuration does so, or the path of its socket would be too long."""
    program = tmp_path / "bin/ssh"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -G ] && echo "controlpath {paths}" || echo "$*" >>{tmp_path}/commands\n'
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        home = Path(folder, "h" * (length - len(folder) - 1))
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        with pytest.raises(SlurmError, match="bash did not get to the command"):
            SshHost("login").run(["true"])
    text = (tmp_path / "commands").read_text()
    is_shared = (length, paths) == (31, "none")
    assert (f'-oControlPath="{home}/.ssh/slurmray-%C"' in text) == is_shared
    assert ("ControlMaster=auto" in text) == is_shared


def test_others_on_the_host_see_no_values(host: SshHost) -> None:
    """sbatch gets values of the user's environment."""
    argv = ["sh", "-c", "exec ps -o args= --ppid $PPID --pid $PPID"]
    done = host.run(argv, variables={"KEY": "se-cret"})
    assert "bash -l -s" in done.stdout
    assert "se-cret" not in done.stdout


@pytest.fixture
def bash_host(host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshHost:
    """sshd starts the user's shell, which reads .bashrc (bash), .cshrc or config.fish before the command."""
    install(tmp_path / "bin", login='[ ! -e ~/.bashrc ] || . ~/.bashrc\nexec /bin/bash "$@"')
    monkeypatch.setenv("SHELL", f"{tmp_path}/bin/login")
    return host


GREETINGS = "echo Welcome to the cluster; echo 12; echo oops >&2"


@pytest.mark.parametrize("file", [".bashrc", ".bash_profile", ".bash_logout", ".profile"])
def test_startup_files_that_print(file: str, bash_host: SshHost, tmp_path: Path) -> None:
    (tmp_path / "home" / file).write_text(f"{GREETINGS}\n")
    done = bash_host.run(["sh", "-c", "cat; echo error >&2; exit 3"], text="no newline")
    assert (done.returncode, done.stdout, done.stderr) == (3, "no newline", "error\n")
    assert bash_host.expand("~/a") == tmp_path / "home/a"
    assert bash_host.prepare_folder("runs", []) == tmp_path / "home/runs"
    process = bash_host.start(["cat"], {})
    assert process.communicate(b"12\n")[0].partition(b"Welcome")[0] == b"12\n"


@pytest.mark.parametrize("text", ["exec ./other", "exit", "exit 255", "exec sleep 0", "exec true"])
@pytest.mark.parametrize("file", [".profile", ".bashrc"])
def test_startup_files_that_start_another_shell(
    file: str, text: str, bash_host: SshHost, tmp_path: Path
) -> None:
    """The other shell runs nothing of the script."""
    install(tmp_path / "home", other="cat >/dev/null\nexit 1")
    (tmp_path / "home" / file).write_text(f"cd; {text}\n")
    with pytest.raises(SlurmError, match=r"^ssh login: (bash did not get to the command|failed)"):
        bash_host.run(["touch", "made"], folder=tmp_path)
    assert not (tmp_path / "made").exists()
