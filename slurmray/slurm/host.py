"""The host that has Slurm's commands and the files of jobs: this one, or a login node reached through ssh."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slurmray import process
from slurmray.errors import SlurmError, UsageError
from slurmray.slurm.environment import clean_environment

_TIMEOUT = 120.0  # seconds for reading a file through ssh
_SSH_FAILED = 255  # ssh's own exit code, which the commands below never have
# A login shell, for the PATH and the modules that a user has after signing in. What /etc/profile and the like
# print does not reach the output: 3 and 4 are its standard output and error.
_LOGIN_SHELL = "exec bash -l {} 3>&1 4>&2 >/dev/null 2>&1"
_RESTORE_OUTPUT = "exec >&3 2>&4 3>&- 4>&-"
# Prints number of bytes and content of each file: -1 for one that cannot be read. It may grow meanwhile.
_READ_ALL = """
for file; do
	{ size=$(wc -c <"$file"); } 2>/dev/null || { echo -1; continue; }
	echo "$size"
	head -c "$size" -- "$file"
done
"""


class Host:
    """This host. name: None. read_pause: seconds between two looks at a file that grows."""

    name: str | None = None
    read_pause = 1.0

    def run(
        self,
        argv: Sequence[str],
        *,
        text: str | None = None,
        folder: str | Path = "",
        variables: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm to its end. FileNotFoundError if it is not installed.

        text: its standard input. folder: where it runs; "" is the current or home folder. variables: added to
        its environment. timeout: seconds until subprocess.TimeoutExpired; None: no limit.
        """
        env = {**clean_environment(os.environ), **(variables or {})}
        return process.run(argv, env=env, text=text, folder=folder or None, timeout=timeout)

    def start(self, argv: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a command of Slurm with pipes for its standard input and output."""
        return process.start(argv, env={**clean_environment(os.environ), **variables})

    def run_in_foreground(self, argv: list[str], *, is_terminal: bool) -> int:
        """Run a command of Slurm with this process's streams, and return its exit code.

        is_terminal: whether it is started on a terminal. FileNotFoundError if it is not installed.
        """
        del is_terminal  # it inherits it
        return process.run_in_foreground(argv, clean_environment(os.environ))

    def read(self, path: Path, start: int = 0, last: int | None = None) -> bytes:
        """Return what a file has. start: first byte. last: at most so many bytes, from the end. OSError."""
        with path.open("rb") as file:
            file.seek(start if last is None else max(0, os.fstat(file.fileno()).st_size - last))
            return file.read()

    def read_all(self, paths: Sequence[Path]) -> dict[Path, bytes]:
        """Return what files have, of those that can be read."""
        found = {}
        for path in paths:
            try:
                found[path] = path.read_bytes()
            except OSError:
                continue
        return found

    def names(self, folder: Path) -> list[str]:
        """Return the names of what is in a folder; [] if it cannot be read."""
        try:
            return [path.name for path in folder.iterdir()]
        except OSError:
            return []

    def expand(self, path: str) -> Path:
        """Return a path with the home folder in place of `~`."""
        return Path(path).expanduser()


class SshHost(Host):
    """A host that OpenSSH's client reaches, with the user's own configuration and keys.

    name: as for ssh. All methods raise SlurmError with the message of ssh if it fails.
    """

    read_pause = 2.0

    def __init__(self, name: str) -> None:
        self.name: str = name

    def run(
        self,
        argv: Sequence[str],
        *,
        text: str | None = None,
        folder: str | Path = "",
        variables: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as Host.run does, but with a login shell's environment there."""
        done = self._run(argv, text or "", folder, variables or {}, timeout)
        out, err = (output.decode(errors="replace") for output in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(argv, done.returncode, out, err)

    def start(self, argv: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a command as Host.start does, but with a login shell's environment there."""
        assigned = [f"{name}={value}" for name, value in variables.items()]
        command = _through_login_shell(["env", *assigned, *argv])
        return process.start([*self._ssh(), self.name, command])

    def run_in_foreground(self, argv: list[str], *, is_terminal: bool) -> int:
        """Run ssh with a command, see Host.run_in_foreground. is_terminal: it gets one there, too."""
        command = [*self._ssh(is_terminal=is_terminal), self.name, _through_login_shell(argv)]
        return process.run_in_foreground(command)

    def read(self, path: Path, start: int = 0, last: int | None = None) -> bytes:
        """Return what a file there has, see Host.read."""
        option = f"+{start + 1}" if last is None else str(last)
        argv = ["env", "LC_ALL=C", "tail", "-c", option, "--", str(path)]
        done = self._run(argv, "", "", {}, _TIMEOUT)
        if done.returncode == 0:
            return done.stdout
        reason = done.stderr.decode(errors="replace").strip().rpartition(": ")[2]
        kind = FileNotFoundError if reason == "No such file or directory" else OSError
        raise kind(0, f"{reason} on {self.name}", str(path))

    def read_all(self, paths: Sequence[Path]) -> dict[Path, bytes]:
        """Return what files there have, in one request."""
        rest = self._run(["sh", "-c", _READ_ALL, "sh", *map(str, paths)], "", "", {}, _TIMEOUT).stdout
        found = {}
        for path in paths:
            size, _, rest = rest.partition(b"\n")
            if (length := int(size or -1)) >= 0:
                found[path], rest = rest[:length], rest[length:]
        return found

    def names(self, folder: Path) -> list[str]:
        """Return the names of what is in a folder there; [] if it cannot be read."""
        done = self._run(["ls", "-A", "--", str(folder)], "", "", {}, _TIMEOUT)
        return done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []

    def expand(self, path: str) -> Path:
        """Return a path with the home folder there in place of `~`."""
        is_in_home = path == "~" or path.startswith("~/")
        return Path(self._home, path[2:]) if is_in_home else Path(path)

    def prepare_folder(self, folder: str, files: Sequence[str]) -> Path:
        """Make a folder and copy files into it with rsync, by their paths below the current one.

        folder: relative to the home folder there, or absolute. It returns its absolute path. Folders are
        copied with all that they have. UsageError if a file is missing here, or rsync fails.
        """
        place = self.expand(folder)
        argv = ["sh", "-c", 'mkdir -p -- "$1" && cd -- "$1" && pwd -P', "sh", str(place)]
        done = self.run(argv, timeout=_TIMEOUT)
        if done.returncode != 0:
            raise UsageError(f"{self.name}: {done.stderr.strip()}; correct `folder` in the profile")
        place = Path(done.stdout.rstrip("\n"))
        if files:
            self._copy(files, place)
        return place

    def _copy(self, files: Sequence[str], folder: Path) -> None:
        ssh = shlex.join(self._ssh())
        to = f"{self.name}:{folder}/"
        argv = ["rsync", "--archive", "--compress", "--relative", "--protect-args", f"--rsh={ssh}"]
        try:
            done = process.run([*argv, "--", *files, to])
        except FileNotFoundError:
            raise UsageError("rsync: no such command here; install it, or leave `sync` out") from None
        if done.returncode != 0:
            error = next(iter(done.stderr.splitlines()), "failed without a message")
            raise UsageError(f"sync: {error}")

    def _run(
        self,
        argv: Sequence[str],
        text: str,
        folder: str | Path,
        variables: Mapping[str, str],
        timeout: float | None,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command. It travels on standard input: others on the host see arguments of processes."""
        script = _script(argv, text, folder, variables)
        command = [*self._ssh(), self.name, f"sh -c {shlex.quote(_LOGIN_SHELL.format('-s'))}"]
        data = script.encode(errors="surrogateescape")
        try:
            done = process.run_bytes(command, data=data, timeout=timeout)
        except subprocess.TimeoutExpired:
            text = f"ssh {self.name}: no answer within {timeout:g} s; try `ssh {self.name}`"
            raise SlurmError(text) from None
        if done.returncode == _SSH_FAILED:
            error = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SlurmError(f"ssh {self.name}: {error or 'failed'}; try `ssh {self.name}`")
        if done.returncode == 127:  # POSIX: not found
            raise FileNotFoundError(0, f"no such command on {self.name}", argv[0])
        return done

    @functools.cached_property
    def _home(self) -> str:
        return self._run(["sh", "-c", 'printf %s "$HOME"'], "", "", {}, _TIMEOUT).stdout.decode()

    def _ssh(self, *, is_terminal: bool = False) -> list[str]:
        """Return ssh with its options. Some undo what a user's configuration sets for working by hand."""
        options = {
            "LogLevel": "ERROR",  # no banner in the output
            "ClearAllForwardings": "yes",  # their ports may be taken
            "RemoteCommand": "none",
            **self._shared_connection,
        }
        terminal = "-t" if is_terminal else "-T"
        return ["ssh", terminal, *(f"-o{name}={value}" for name, value in options.items())]

    @functools.cached_property
    def _shared_connection(self) -> dict[str, str]:
        """Options that let all commands use one connection; {} if the user's configuration does so."""
        try:
            config = process.run(["ssh", "-G", self.name]).stdout
        except FileNotFoundError:
            raise SlurmError("ssh: no such command here; install OpenSSH's client") from None
        if re.search("^controlpath (?!none$)", config, re.MULTILINE):
            return {}
        folder = Path.home() / ".ssh"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:  # then each command makes a connection
            return {}
        return {
            "ControlMaster": "auto",
            "ControlPath": f'"{folder}/slurmray-%C"',
            "ControlPersist": "10m",
            "ConnectTimeout": "15",
            "ServerAliveInterval": "15",  # ends a connection that a suspended laptop has lost
        }


HERE = Host()


@functools.cache
def host_of(name: str | None) -> Host:
    """Return a host by its name for ssh; None is this one."""
    return HERE if name is None else SshHost(name)


def _through_login_shell(argv: Iterable[str]) -> str:
    """Return a command line for the user's shell that runs a command with its standard input as it is."""
    inner = shlex.join(["-c", f'{_RESTORE_OUTPUT}; exec "$@"', "bash"])
    return shlex.join(["sh", "-c", _LOGIN_SHELL.format(f'{inner} "$@"'), "sh", *argv])


def _script(argv: Sequence[str], text: str, folder: str | Path, variables: Mapping[str, str]) -> str:
    """Return a command with its standard input as a script for bash."""
    lines = [_RESTORE_OUTPUT]
    if folder:
        lines.append(f"cd -- {shlex.quote(str(folder))} || exit")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    source = f"printf %s {shlex.quote(text)} |" if text else ""
    lines.append(f"{source} {shlex.join(argv)}" + ("" if text else " </dev/null"))
    lines.append(f"code=$?; exit $((code == {_SSH_FAILED} ? 1 : code))")
    return "\n".join(lines) + "\n"
