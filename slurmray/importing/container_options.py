"""Options of container runtimes and of `srun --container-*`, as fields of a job spec."""

from __future__ import annotations

import re
from collections.abc import Callable

from slurmray.importing.draft import Draft
from slurmray.importing.known import LIFE
from slurmray.importing.options import Option
from slurmray.importing.words import Word

SetVariable = Callable[[str, Word | None, list[int]], None]

ENGINES = ("docker", "podman", "podman-hpc", "nerdctl")
APPTAINERS = ("apptainer", "singularity")

# Options without a value: of `docker run` and `docker exec`, `docker build`, and `apptainer exec`.
ENGINE_FLAGS = set(
    """
    -d --detach -i --interactive -t --tty --rm --init --privileged --read-only -P --publish-all
    --no-healthcheck --oom-kill-disable -q --quiet --replace --no-hosts --gpu --mpi --nccl --cuda-mpi
    --openmpi-pmi2 --openmpi-pmix --http-proxy --tls-verify --env-host --rmi --passwd --unsetenv-all
    --read-only-tmpfs --no-hostname --sig-proxy --disable-content-trust --rootfs --use-api-socket
    """.split()  # noqa: SIM905 - one name a line would hide the rest
)
BUILD_FLAGS = {"--no-cache", "--pull", "-q", "--quiet", "--rm", "--squash"}
APPTAINER_FLAGS = set(
    """
    --nv --nvccli --rocm -c --contain -C --containall -e --cleanenv -f --fakeroot -i --ipc -p --pid -u --uts
    --userns -w --writable --writable-tmpfs -s --no-home --no-init --no-privs --no-umask --no-eval --compat
    --disable-cache --net -q --quiet --silent -v --verbose -d --debug --nocolor --no-compat --oci --no-oci
    --underlay --sharens --unsquash --no-https --keep-privs --allow-setuid
    """.split()  # noqa: SIM905
)

_NETWORK = "containers use the host's network"
_GPUS = "the container gets the job's GPUs"
_DEVICES = "slurmray adds the devices of GPUs and of the network"
_SKIPPED = {
    **dict.fromkeys(("--gpus", "--runtime", "--gpu", "--nv", "--nvccli", "--rocm"), _GPUS),
    **dict.fromkeys(("--name", "--rm", "-d", "--detach", "--init", "--restart", "--replace"), LIFE),
    **dict.fromkeys(("-i", "-t", "--interactive", "--tty", "-q", "--quiet", "--cidfile", "-h"), LIFE),
    **dict.fromkeys(("-p", "--publish", "-P", "--publish-all", "--expose"), _NETWORK),
    "--hostname": LIFE,
    "--entrypoint": "the program that it names begins the command",
    "--ipc": "see container.shm_size; not set: the size of the node's /dev/shm",
    "--privileged": f"{_DEVICES}; --privileged gives access to the GPUs of other jobs",
}
# Programs that are a runtime of the job spec under another name.
_RUNTIMES = {"podman-hpc": "podman", "nerdctl": "docker"}
# Where an option of Apptainer means something else than one of Docker with the same name.
_OF_APPTAINER = {
    "--env": "--env-list",
    "-e": "args",
    "-u": "args",
    "-w": "args",
    "-p": "args",
    "-i": "args",
    "-B": "--volume",
}
_ALIASES = {
    **{"-v": "--volume", "--bind": "--volume", "-e": "--env", "-w": "--workdir", "--pwd": "--workdir"},
    **{"--cwd": "--workdir", "-u": "--user", "--net": "--network"},
}
_GPU_DEVICES = re.compile(r"/dev/(?:kfd|dri|nvidia|infiniband|mem$|gdrdrv|cxi)|nvidia\.com/gpu|amd\.com/gpu")


class Containers:
    """Sets the fields of `container`. set_variable: sets a variable for the container's programs."""

    def __init__(self, draft: Draft, set_variable: SetVariable) -> None:
        self.draft, self.set_variable = draft, set_variable
        self.readers: dict[str, Callable[[Option, Word], None]] = {
            "--volume": self._mounts,
            "--mount": self._long_mount,
            "--env": lambda option, value: self._variables([value], option.lines),
            "--env-list": lambda option, value: self._variables(value.split(","), option.lines),
            "--env-file": lambda option, value: self._path("env_file", value, option.lines),
            "--workdir": lambda option, value: self._folder(value, option.lines),
            "--shm-size": self._shm_size,
            "--ulimit": self._ulimit,
            "--device": self._device,
            "--group-add": self._group,
            "--user": self._user,
            "--network": self._network,
            "--pull": self._pull,
        }

    def is_skipped(self, option: Option) -> bool:
        """Note an option that a job spec does not need; return whether it is one."""
        reason = _SKIPPED.get(option.name) or (_NETWORK if option.name in ("--network", "--net") else "")
        if reason:
            self.draft.skip(option.lines, reason)
        return bool(reason)

    def read_runtime(self, program: str, lines: list[int]) -> None:
        """Set the runtime."""
        self.draft.set("container.runtime", _RUNTIMES.get(program, program), lines)
        if program in _RUNTIMES:
            self.draft.set("container.command", program, lines)

    def read_build(self, options: list[Option], rest: list[Word], lines: list[int]) -> None:
        """Set the fields of a `docker build`."""
        values = {option.name: option.value.path for option in options if option.value is not None}
        context = rest[0].path if rest else None
        tag = values.get("-t") or values.get("--tag")
        if not context or not tag or set(values) - {"-f", "--file", "-t", "--tag"}:
            self.draft.look(lines, "a build: see container.build")
            return
        name = values.get("-f") or values.get("--file") or f"{context}/Dockerfile"
        self.draft.set("container.build.file", name, lines)
        if context != ".":
            self.draft.set("container.build.context", context, lines)
        self.draft.set("container.image", tag, lines)

    def read_archive(self, options: list[Option], lines: list[int]) -> None:
        """Set the archive of a `docker load`."""
        paths = [option.value.path for option in options if option.name in ("-i", "--input") and option.value]
        if paths and paths[0]:
            self.draft.set("container.archive", paths[0], lines)
        else:
            self.draft.look(lines, "an image from a file: see container.archive")

    def read_image(self, image: Word) -> None:
        """Set the image."""
        path = image.path
        if path is None:
            self.draft.look([image.line], "the image is only known when the script runs: set container.image")
        else:
            self.draft.set("container.image", path, [image.line])

    def read_option(self, option: Option, is_apptainer: bool) -> None:
        """Set the field of an option of `docker run` or `apptainer exec`."""
        name = option.name
        kind = _OF_APPTAINER.get(name, name) if is_apptainer else name
        kind = _ALIASES.get(kind, kind)
        if kind in self.readers and option.value is not None:
            self.readers[kind](option, option.value)
        elif name in _SKIPPED and kind != "args":
            self.draft.skip(option.lines, _SKIPPED[name])
        else:
            self._argument(option)

    def read_srun_option(self, option: Option) -> bool:
        """Set the field of an option of pyxis. Return whether it is one."""
        name, value = option.name, option.value
        if name == "--container-image" and value is not None:
            self.draft.set("container.runtime", "pyxis", option.lines)
            self.read_image(value)
        elif name == "--container-mounts" and value is not None:
            self._mounts(option, value)
        elif name == "--container-workdir" and value is not None:
            self._folder(value, option.lines)
        elif name in ("--container-name", "--no-container-mount-home", "--container-env", "--container-save"):
            reason = "slurmray does not mount your home, and one task on each node has the container"
            self.draft.skip(option.lines, reason)
        elif "container" in name:
            self.draft.add("container.step_args", _one_argument(option), option.lines)
        else:
            return False
        return True

    def _argument(self, option: Option) -> None:
        if option.value is not None and option.value.constant is None:
            self.draft.look(
                option.lines, f"{option.name} has a value that is only known when the script runs"
            )
        else:
            self.draft.add("container.args", _one_argument(option), option.lines)

    def _path(self, field: str, value: Word, lines: list[int]) -> None:
        if value.path is None:
            self.draft.look(lines, f"set {field}: the value is only known when the script runs")
        else:
            self.draft.set(field, value.path, lines)

    def _folder(self, value: Word, lines: list[int]) -> None:
        path = value.absolute_path
        if path is None or path[:1] not in ("/", "$", "."):
            self.draft.look(lines, "set container.workdir: the value is only known when the script runs")
        else:
            self.draft.set("container.workdir", _from_submit_folder(path), lines)

    def _mounts(self, option: Option, value: Word) -> None:
        is_list = option.name not in ("-v", "--volume")
        for word in value.split(",") if is_list else [value]:
            parts = word.split(":")
            options = parts[2].constant if len(parts) > 2 else ""
            self._mount(parts[0], parts[1] if len(parts) > 1 else parts[0], options, option.lines)

    def _long_mount(self, option: Option, value: Word) -> None:
        values: dict[str, Word | None] = dict(part.partition("=") for part in value.split(","))
        source = values.get("source") or values.get("src")
        target = values.get("target") or values.get("destination") or values.get("dst")
        kind = values.get("type")
        if not source or not target or (kind and kind.constant != "bind"):
            self._argument(option)
            return
        is_read_only = not {"readonly", "ro"}.isdisjoint(values)
        self._mount(source, target, "ro" if is_read_only else "", option.lines)

    def _mount(self, source: Word, target: Word, options: str | None, lines: list[int]) -> None:
        host, inside = source.path, target.absolute_path
        if not host or not inside or options is None:
            self.draft.look(
                lines, "a mount that is only known when the script runs: add it to container.mounts"
            )
            return
        if host[0] not in "/~$.":
            self.draft.look(lines, "a named volume: use a folder in container.mounts")
            return
        inside = _from_submit_folder(inside)
        is_same = source.path == target.path
        if is_same and host == "." and not options:
            self.draft.skip(lines, "the submit folder is always mounted")
            return
        text = host if is_same and not options else f"{host}:{inside}"
        options = options.replace("+", ",")
        self.draft.add("container.mounts", f"{text}:{options}" if options else text, lines)

    def _variables(self, words: list[Word], lines: list[int]) -> None:
        for word in words:
            name, value = word.partition("=")
            if name:
                self.set_variable(name, value, lines)
            else:
                self.draft.look(lines, "a variable that is only known when the script runs: see env")

    def _shm_size(self, option: Option, value: Word) -> None:
        match = re.fullmatch(r"([1-9][0-9]*)([bkmgBKMG])[bB]?", value.constant or "")
        if match:
            self.draft.set("container.shm_size", match[1] + match[2].lower(), option.lines)
        else:
            self.draft.look(option.lines, "set container.shm_size, e.g. 64g")

    def _ulimit(self, option: Option, value: Word) -> None:
        text = value.constant or ""
        name, _, limits = text.partition("=")
        soft, _, hard = limits.partition(":")
        self.draft.add("container.ulimits", f"{name}={soft}:{hard or soft}", option.lines)

    def _device(self, option: Option, value: Word) -> None:
        text = value.constant or ""
        if not _GPU_DEVICES.match(text):
            self._argument(option)
        elif text.startswith("/dev/kfd"):
            self.draft.set("container.accelerator", "amd", option.lines)
        else:
            self.draft.skip(option.lines, _DEVICES)

    def _group(self, option: Option, value: Word) -> None:
        if value.constant in ("video", "render", "keep-groups"):
            self.draft.skip(option.lines, _DEVICES)
        else:
            self._argument(option)

    def _user(self, option: Option, value: Word) -> None:
        text = value.constant
        if text is None and "id -u" in value.bash:
            self.draft.skip(option.lines, "the default, container.user: auto")
        elif text in ("root", "0", "0:0", "root:root"):
            self.draft.set("container.user", "0:0", option.lines)
        elif text and re.fullmatch(r"[0-9]+(?::[0-9]+)?", text):
            self.draft.set("container.user", text, option.lines)
        else:
            self.draft.look(option.lines, "set container.user to UID[:GID] in numbers")

    def _network(self, option: Option, value: Word) -> None:
        if value.constant == "host":
            self.draft.skip(option.lines, _NETWORK)
        else:
            self.draft.look(option.lines, f"{_NETWORK}, and no other")

    def _pull(self, option: Option, value: Word) -> None:
        if value.constant in ("always", "missing", "never"):
            self.draft.set("container.pull", value.constant, option.lines)
        else:
            self._argument(option)


def _from_submit_folder(path: str) -> str:
    """Return an absolute path for one that begins in the submit folder."""
    return "$SLURM_SUBMIT_DIR" + path[1:] if path == "." or path.startswith("./") else path


def _one_argument(option: Option) -> str:
    """Return an option with its value as one argument."""
    if option.value is None:
        return option.name
    equals = "=" if option.name.startswith("--") else ""
    return f"{option.name}{equals}{option.value.constant}"
