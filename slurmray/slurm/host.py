"""The host that has Slurm's commands and the files of jobs: this one, or a login node reached through ssh."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slurmray import files, local_commands
from slurmray.agent.inherited import COMMAND_OPTIONS
from slurmray.errors import SlurmError, UsageError

# Prefixes of variables of a surrounding job and its step, from Slurm and PMI libraries. sbatch and srun use
# many of the same names for options, and sbatch passes all of them to the new job.
_JOB_PREFIXES = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "PMI_", "PMI2_", "PMIX_")
# Variables of a surrounding job from its script, which finds its processes by SLURMRAY_TEMP to kill them.
_SCRIPT_VARIABLES = tuple(
    f"SLURMRAY_{name}" for name in ("ATTEMPT", "RESTART", "RUN_DIR", "END_TIME", "TEMP")
)
# How to reach Slurm, and as which user.
_CLUSTER_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
_TIMEOUT = 120.0  # seconds for reading a file through ssh
# Of the shared connection's socket, in bytes. macOS takes paths of 103; `/slurmray-` and %C have 50, and
# while ssh makes the socket its name has 17 more.
_LONGEST_FOLDER = 103 - 50 - 17
_PATHS = 500  # of files that a command reads: its arguments have at most 2 MB
_SSH_FAILED = 255  # ssh's own exit code
# A login shell, for the PATH and the modules that a user has after signing in. What /etc/profile and the like
# print does not reach the output: 3 and 4 are its standard output and error.
_LOGIN_SHELL = "exec bash -l {} 3>&1 4>&2 >/dev/null 2>&1"
_RESTORE_OUTPUT = "exec >&3 2>&4 3>&- 4>&-"
# As clean_environment does here: a startup file may set them. Without a `!`, which csh would replace.
_UNSET_OPTIONS = f"unset $({'; '.join(f'compgen -v {prefix}' for prefix in COMMAND_OPTIONS)})"
# usage: START LAST LIMIT FILE... It does what files.read_own does: for each file it prints the number of
# bytes and the bytes, or `-` and why not. The file is opened once, as it may be replaced meanwhile, and bash
# looks at the open file where a condition has the name /dev/fd/3.
_READ = r"""
start=$1 last=$2 limit=$3
why() {
	if [[ -L $1 ]]; then
		echo "-is a symbolic link"
	elif [[ ! -e $1 ]]; then
		echo "-No such file or directory"
	elif [[ -d $1 ]]; then
		echo "-Is a directory"
	elif [[ ! -f $1 ]]; then
		echo "-is no regular file"
	elif [[ ! -O $1 ]]; then
		echo "-is another user's"
	else
		echo "-Permission denied"
	fi
}
content() {
	[[ -f /dev/fd/3 && -O /dev/fd/3 ]] || { echo "-is another user's"; return; }
	size=$(wc -c </dev/fd/3)
	first=$start
	[[ -z $last ]] || first=$((size > last ? size - last : 0))
	count=$((size > first ? size - first : 0))
	((count <= limit)) || { echo "-is larger than $((limit >> 20)) MiB"; return; }
	echo "$count"
	tail -c "+$((first + 1))" </dev/fd/3 | head -c "$count"
}
for file in "${@:4}"; do
	if [[ -f $file && ! -L $file && -O $file && -r $file ]]; then content 3<"$file"; else why "$file"; fi
done
"""
_NO_BASH = (
    "bash did not get to the command: a startup file there starts another shell, or exits. Let "
    "~/.bash_profile, ~/.profile or ~/.bashrc do so on terminals only, e.g. [[ -t 0 ]] && exec fish"
)
_NAMES = r'cd -- "$1" && shopt -s dotglob nullglob && for name in *; do printf "%s\0" "$name"; done'


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for submitting a new job: inside a job, without the variables of that job.

    The new job would otherwise use that job's number of tasks, memory and step, and a TMPDIR that is removed
    when that job ends. Outside a job SBATCH_ACCOUNT and the like are the user's. COMMAND_OPTIONS are removed
    everywhere: SQUEUE_PARTITION would hide jobs.
    """
    environment = {name: environment[name] for name in environment if not name.startswith(COMMAND_OPTIONS)}
    if "SLURM_JOB_ID" not in environment:
        return environment
    kept = {
        name: value
        for name, value in environment.items()
        if name in _CLUSTER_VARIABLES or not (name.startswith(_JOB_PREFIXES) or name in _SCRIPT_VARIABLES)
    }
    temp = environment.get("SLURMRAY_TEMP")
    if temp and kept.get("TMPDIR", "").startswith(f"{temp}/"):
        del kept["TMPDIR"]
    return kept


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
        return local_commands.run(argv, env=env, text=text, folder=folder or None, timeout=timeout)

    def start(self, argv: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a command of Slurm with pipes for its standard input and output."""
        return local_commands.start(argv, env={**clean_environment(os.environ), **variables})

    def run_in_foreground(self, argv: list[str], *, is_terminal: bool) -> int:
        """Run a command of Slurm with this process's streams, and return its exit code.

        is_terminal: whether it is started on a terminal. FileNotFoundError if it is not installed.
        """
        del is_terminal  # it inherits it
        return local_commands.run_in_foreground(argv, clean_environment(os.environ))

    @property
    def uid(self) -> int:
        """The number of the user who runs the commands."""
        return os.geteuid()

    def read(self, path: Path, start: int = 0, last: int | None = None, limit: int = files.MAX_LOG) -> bytes:
        """Return what a file of the user has, see files.read_own. OSError."""
        return files.read_own(path, start, last, limit)

    def size(self, path: Path) -> int:
        """Return how many bytes a file has; 0 if that cannot be found out."""
        try:
            return path.stat().st_size
        except OSError:
            return 0

    def read_all(self, paths: Sequence[Path]) -> dict[Path, bytes]:
        """Return what small files have, of those that `read` reads."""
        contents = {}
        for path in paths:
            with contextlib.suppress(OSError):
                contents[path] = self.read(path, limit=files.MAX_INPUT)
        return contents

    def names(self, folder: Path) -> list[str]:
        """Return the names of what is in a folder; [] if it cannot be read."""
        try:
            return [path.name for path in folder.iterdir()]
        except OSError:
            return []

    def expand(self, path: str) -> Path:
        """Return a path with the home folder in place of `~`; unchanged if there is none of that name."""
        return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises RuntimeError


class SshHost(Host):
    """A host that OpenSSH's client reaches, with the user's own configuration and keys.

    name: as for ssh. Methods that wait for a command raise SlurmError with the message of ssh if that fails.
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
        result = self._run(argv, text or "", folder, variables, timeout)
        out, err = (output.decode(errors="replace") for output in (result.stdout, result.stderr))
        return subprocess.CompletedProcess(argv, result.returncode, out, err)

    def start(self, argv: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a command as Host.start does, but with a login shell's environment there."""
        assignments = [f"{name}={value}" for name, value in variables.items()]
        mark = secrets.token_hex()
        command = _login_shell_command(["env", *assignments, *argv], mark)
        child = local_commands.start([*self._ssh(), self.name, command])
        assert child.stdout  # noqa: S101 - opened with PIPE
        tail = b""
        # By byte: the rest is for the caller. It gets no input before: it may be another shell than bash.
        while not tail.endswith(mark.encode()) and (byte := os.read(child.stdout.fileno(), 1)):
            tail = tail[-len(mark) :] + byte
        return child

    def run_in_foreground(self, argv: list[str], *, is_terminal: bool) -> int:
        """Run ssh with a command, see Host.run_in_foreground. is_terminal: it gets one there, too."""
        command = [*self._ssh(is_terminal=is_terminal), self.name, _login_shell_command(argv)]
        return local_commands.run_in_foreground(command)

    @functools.cached_property
    def uid(self) -> int:
        """As in Host, there."""
        return int(self._run(["id", "-u"]).stdout)

    def read(self, path: Path, start: int = 0, last: int | None = None, limit: int = files.MAX_LOG) -> bytes:
        """Return what a file there has, see Host.read."""
        data = self._read([path], start, last, limit)[path]
        if isinstance(data, bytes):
            return data
        kind = FileNotFoundError if data == "No such file or directory" else OSError
        number = errno.EFBIG if data.startswith("is larger") else 0
        raise kind(number, f"{data} on {self.name}", str(path))

    def size(self, path: Path) -> int:
        """As in Host, there."""
        printed = self._run(["wc", "-c", "--", str(path)]).stdout.split()
        return int(printed[0]) if printed else 0

    def read_all(self, paths: Sequence[Path]) -> dict[Path, bytes]:
        """As in Host, in one request."""
        contents = self._read(paths, 0, None, files.MAX_INPUT)
        return {path: data for path, data in contents.items() if isinstance(data, bytes)}

    def _read(
        self, paths: Sequence[Path], start: int, last: int | None, limit: int
    ) -> dict[Path, bytes | str]:
        """Return what files have, or why they are not read."""
        numbers = [str(start), "" if last is None else str(last), str(limit)]
        contents: dict[Path, bytes | str] = {}
        for first in range(0, len(paths), _PATHS):
            part = paths[first : first + _PATHS]
            rest = self._run(["bash", "-c", _READ, "bash", *numbers, *map(str, part)]).stdout
            for path in part:
                line, _, rest = rest.partition(b"\n")
                if line.isdigit():
                    contents[path], rest = rest[: int(line)], rest[int(line) :]
                else:
                    contents[path] = line[1:].decode(errors="replace") or "no answer"
        return contents

    def names(self, folder: Path) -> list[str]:
        """Return the names of what is in a folder there; [] if it cannot be read."""
        result = self._run(["bash", "-c", _NAMES, "bash", str(folder)])
        return [name.decode(errors="surrogateescape") for name in result.stdout.split(b"\0")[:-1]]

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
        result = self.run(argv, timeout=_TIMEOUT)
        if result.returncode != 0:
            raise UsageError(f"{self.name}: {result.stderr.strip()}; correct `folder` in the profile")
        place = Path(result.stdout.rstrip("\n"))
        if files:
            self._rsync("sync", ["--archive"], files, f"{self._rsync_name}:{place}/")
        return place

    def fetch(self, files: Sequence[tuple[Path, str]], target: Path) -> None:
        """Copy files from there to a folder here, by rsync: each by its path below a folder there.

        files: pairs of folder and path. What is newer here stays. Links that lead out of `target` are left
        out, since the files there may be anybody's. UsageError if one is missing, or rsync fails.
        """
        options = ["--recursive", "--links", "--safe-links", "--perms", "--times", "--update"]
        self._rsync(
            "fetch",
            options,
            [f"{self._rsync_name}:{folder}/./{path}" for folder, path in files],
            f"{target}/",
        )

    @property
    def _rsync_name(self) -> str:
        """The name for rsync, which needs brackets around an IPv6 address."""
        user, at, host = self.name.rpartition("@")
        return f"{user}{at}[{host}]" if ":" in host else self.name

    def _rsync(self, task: str, options: Sequence[str], sources: Sequence[str], target: str) -> None:
        """Run rsync for a task. Paths are relative to the current folder, or to what is before `/./`."""
        argv = ["rsync", *options, "--compress", "--relative", "--protect-args"]
        try:
            result = local_commands.run([*argv, f"--rsh={shlex.join(self._ssh())}", "--", *sources, target])
        except FileNotFoundError:
            raise UsageError(f"{task}: no rsync here; install it, or copy the files yourself") from None
        if result.returncode != 0:
            error = next(iter(result.stderr.splitlines()), "failed without a message")
            if re.search("rsync: .*not found|not found: .*rsync", error):
                error = f"no rsync on {self.name}; load it in ~/.bashrc there, or copy the files yourself"
            raise UsageError(f"{task}: {error}")

    def _run(
        self,
        argv: Sequence[str],
        text: str = "",
        folder: str | Path = "",
        variables: Mapping[str, str] | None = None,
        timeout: float | None = _TIMEOUT,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command. It travels on standard input: others on the host see arguments of processes."""
        mark = secrets.token_hex()
        script = _script(argv, text, folder, variables or {}, mark)
        command = [*self._ssh(), self.name, f"sh -c {shlex.quote(_LOGIN_SHELL.format('-s'))}"]
        data = script.encode(errors="surrogateescape")
        try:
            result = subprocess.run(command, input=data, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            message = f"ssh {self.name}: no answer within {timeout:g} s; try `ssh {self.name}`"
            raise SlurmError(message) from None
        code, out, err = _read_output(result, mark.encode())
        if code is None and result.returncode == _SSH_FAILED:
            error = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SlurmError(f"ssh {self.name}: {error or 'failed'}; try `ssh {self.name}`")
        if code is None:
            raise SlurmError(f"ssh {self.name}: {_NO_BASH}")
        if code == 127:  # POSIX: not found
            raise FileNotFoundError(0, f"no such command on {self.name}", argv[0])
        return subprocess.CompletedProcess(argv, code, out, err)

    @functools.cached_property
    def _home(self) -> str:
        return self._run(["sh", "-c", 'printf %s "$HOME"']).stdout.decode()

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
            config = local_commands.run(["ssh", "-G", self.name]).stdout
        except FileNotFoundError:
            raise SlurmError("ssh: no such command here; install OpenSSH's client") from None
        if re.search("^controlpath (?!none$)", config, re.MULTILINE):
            return {}
        folder = Path.home() / ".ssh"
        if len(os.fsencode(folder)) > _LONGEST_FOLDER:
            return {}
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
def get_host(name: str | None) -> Host:
    """Return a host by its name for ssh; None is this one."""
    return HERE if name is None else SshHost(name)


def _login_shell_command(argv: Iterable[str], mark: str = "") -> str:
    """Return a command line for the user's shell that runs a command with its standard input as it is.

    mark: printed before.
    """
    inner = shlex.join(["-c", f'{_UNSET_OPTIONS}; {_RESTORE_OUTPUT}; printf %s {mark}; exec "$@"', "bash"])
    return shlex.join(["sh", "-c", _LOGIN_SHELL.format(f'{inner} "$@"'), "sh", *argv])


def _script(
    argv: Sequence[str], text: str, folder: str | Path, variables: Mapping[str, str], mark: str
) -> str:
    """Return a command with its standard input as a script for bash.

    It prints the mark, then the command's output, then the mark again and the exit code: startup files such
    as .bashrc and .cshrc print before, and .bash_logout after that.
    """
    body = [f"cd -- {shlex.quote(str(folder))} || return"] if folder else []
    body += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    source = f"printf %s {shlex.quote(text)} |" if text else ""
    body.append(f"{source} {shlex.join(argv)}" + ("" if text else " </dev/null"))
    lines = [
        # A startup file may have replaced bash: csh ends here, and fish runs nothing of a script with name().
        ': "$(:)"',
        "slurmray_command() {",
        *body,
        "}",
        _UNSET_OPTIONS,
        _RESTORE_OUTPUT,
        f"printf %s {mark}; printf %s {mark} >&2",
        "slurmray_command",
        f"code=$?; printf %s {mark} >&2; printf '%s%d\\n' {mark} $code",
        "exit",
    ]
    return "\n".join(lines) + "\n"


def _read_output(result: subprocess.CompletedProcess[bytes], mark: bytes) -> tuple[int | None, bytes, bytes]:
    """Return exit code, standard output and error of a command of _script; None: it has not ended."""
    _, _, rest = result.stdout.partition(mark)
    out, _, code = rest.rpartition(mark)
    number = re.match(rb"\d{1,3}", code)
    return int(number[0]) if number else None, out, [*result.stderr.split(mark), b""][1]
