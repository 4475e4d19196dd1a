"""Options of container runtimes and of pyxis, as fields of a job spec."""

from __future__ import annotations

import re

from slurmray.importing.draft import Draft
from slurmray.importing.known import LIFE
from slurmray.importing.options import (
    ABSOLUTE_PATH,
    PATH,
    Option,
    Table,
    Target,
    append,
    field,
    look,
    skip,
    when,
)
from slurmray.importing.words import Word, constant

ENGINES = ("docker", "podman", "podman-hpc", "nerdctl")
APPTAINERS = ("apptainer", "singularity")
# Programs that are a runtime of the job spec under another name.
_RUNTIMES = {"podman-hpc": "podman", "nerdctl": "docker"}


def set_runtime(draft: Draft, program: str, lines: list[int]) -> None:
    """Set the runtime."""
    draft.set("container.runtime", _RUNTIMES.get(program, program), lines)
    if program in _RUNTIMES:
        draft.set("container.command", program, lines)


def set_image(target: Target, image: Word) -> None:
    """Set the image."""
    field("container.image", PATH)(target, Option("image", image, (image,)))


def set_variables(target: Target, option: Option, variables: list[Word]) -> None:
    """Set variables of an option: NAME=VALUE, or NAME for one of the script or of the submitter."""
    for word in variables:
        name, value = word.partition("=")
        if name:
            target.set_in_container(name, value, option.lines)
        else:
            look("a variable that is only known when the script runs: see env")(target, option)


def read_build(target: Target, words: list[Word], lines: list[int]) -> None:
    """Set the fields of a `docker build`."""
    options, rest = _BUILD.split(words)
    _BUILD.read(target, options)
    context = rest[0].path if rest else None
    if not context:
        target.draft.look(lines, "a build: see container.build")
        return
    target.draft.set("container.build.context", context, lines)
    if target.draft.get("container.build.file") is None:
        target.draft.set("container.build.file", f"{context}/Dockerfile", lines)


def _add_mount(
    target: Target, option: Option, host: Word, inside: Word | None = None, *options: Word
) -> None:
    inside = inside or host
    source, place = host.path, inside.absolute_path
    flags = [flag.constant for flag in options if flag.parts]
    if source == inside.path == "." and not flags:
        target.draft.skip(option.lines, "the submit folder is always mounted")
    elif not source or source[0] not in "/~$." or not place or None in flags:
        look("not a folder that is certain: see container.mounts")(target, option)
    elif source == inside.path and not flags:
        target.draft.add("container.mounts", source, option.lines)
    else:
        text = ":".join([source, place, *(flag.replace("+", ",") for flag in flags if flag)])
        target.draft.add("container.mounts", text, option.lines)


def _volume(target: Target, option: Option) -> None:
    _add_mount(target, option, *option.value.split(":"))


def _mounts(target: Target, option: Option) -> None:
    for word in option.value.split(","):
        _add_mount(target, option, *word.split(":"))


def _long_mount(target: Target, option: Option) -> None:
    """Add a mount with its parts by name, e.g. type=bind,source=HOST,target=INSIDE,readonly."""
    names = {"src": "source", "destination": "target", "dst": "target", "readonly": "ro"}
    pairs = [part.partition("=") for part in option.value.split(",")]
    values = {names.get(name, name): value for name, value in pairs}
    host, inside, kind = (values.pop(name, None) for name in ("source", "target", "type"))
    if host and inside and (kind is None or kind.constant == "bind") and set(values) <= {"ro"}:
        _add_mount(target, option, host, inside, *(constant(name, host.line) for name in values))
    else:
        _ARGUMENT(target, option)


def _size(option: Option) -> str | None:
    return re.sub("(?<=[a-z])b$", "", (option.text or "").lower()) or None


def _limits(option: Option) -> str | None:
    return re.sub("=([^:]+)$", r"=\1:\1", option.text or "") or None


def _pyxis_image(target: Target, option: Option) -> None:
    target.draft.set("container.runtime", "pyxis", option.lines)
    set_image(target, option.value)


# The tables.

_NETWORK = "containers use the host's network"
_DEVICES = "slurmray adds the devices of GPUs and of the network"
_GPU_DEVICES = r"(?:/dev/(?:dri|nvidia|infiniband|gdrdrv|cxi)|nvidia\.com/gpu|amd\.com/gpu).*|/dev/mem"
_ARGUMENT = append("container.args")
_STEP_ARGUMENT = append("container.step_args")
_AMD = field("container.accelerator", lambda _: "amd")
_WORKDIR = field("container.workdir", ABSOLUTE_PATH)
_USER = when("root(?::root)?", field("container.user", lambda _: "0:0"), field("container.user"))
_NOT_NEEDED = (
    ("--gpus= --runtime= --gpu --nv --nvccli --rocm", skip("the container gets the job's GPUs")),
    ("--name= --rm -d --detach --init --restart= --replace --cidfile= -h= --hostname=", skip(LIFE)),
    ("-i --interactive -t --tty -q --quiet", skip(LIFE)),
    ("-p= --publish= -P --publish-all --expose=", skip(_NETWORK)),
    ("--entrypoint=", skip("the program that it names begins the command")),
    ("--ipc=", skip("see container.shm_size; not set: the size of the node's /dev/shm")),
    ("--privileged", skip(f"{_DEVICES}; --privileged gives access to the GPUs of other jobs")),
)
ENGINE = Table(
    *_NOT_NEEDED,
    ("-v= --volume=", _volume),
    ("--mount=", _long_mount),
    ("-e= --env=", lambda target, option: set_variables(target, option, [option.value])),
    ("--env-file=", field("env_file", PATH)),
    ("-w= --workdir=", _WORKDIR),
    ("--shm-size=", field("container.shm_size", _size)),
    ("--ulimit=", append("container.ulimits", _limits)),
    ("--device=", when("/dev/kfd.*", _AMD, when(_GPU_DEVICES, skip(_DEVICES), _ARGUMENT))),
    ("--group-add=", when("video|render|keep-groups", skip(_DEVICES), _ARGUMENT)),
    ("-u= --user=", when(r".*\bid -u\b.*", skip("the default"), _USER)),
    ("--network= --net=", when("host", skip(_NETWORK), look(_NETWORK))),
    ("--pull=", when("always|missing|never", field("container.pull"), _ARGUMENT)),
    flags="""
        --read-only --no-healthcheck --oom-kill-disable --no-hosts --mpi --nccl --cuda-mpi --openmpi-pmi2
        --openmpi-pmix --http-proxy --tls-verify --env-host --rmi --passwd --unsetenv-all --read-only-tmpfs
        --no-hostname --sig-proxy --disable-content-trust --rootfs --use-api-socket
    """,
    other=_ARGUMENT,
)
APPTAINER = Table(
    ("--nv --nvccli --rocm", skip("the container gets the job's GPUs")),
    ("-q --quiet --silent", skip(LIFE)),
    ("-B= --bind=", _mounts),
    ("--mount=", _long_mount),
    ("--env=", lambda target, option: set_variables(target, option, option.value.split(","))),
    ("--env-file=", field("env_file", PATH)),
    ("--pwd= --cwd=", _WORKDIR),
    flags="""
        -c --contain -C --containall -e --cleanenv -f --fakeroot -i --ipc -p --pid -u --uts --userns -w
        --writable --writable-tmpfs -s --no-home --no-init --no-privs --no-umask --no-eval --compat --net -v
        --verbose -d --debug --nocolor --no-compat --oci --no-oci --underlay --sharens --unsquash --no-https
        --keep-privs --allow-setuid --disable-cache
    """,
    other=_ARGUMENT,
)
# A container that is a service.
SERVICE = Table(
    *_NOT_NEEDED,
    ("--network= --net=", skip(_NETWORK)),
    other=look("a service has the mounts of container, and services[].env"),
)
# Of srun and sbatch.
PYXIS = (
    ("--container-image=", _pyxis_image),
    ("--container-mounts=", _mounts),
    ("--container-workdir=", _WORKDIR),
    ("--container-name= --container-save=", skip("one task on each node has the container")),
    ("--container-env=", look("env names what the container gets")),
    ("--no-container-mount-home", skip("slurmray does not mount your home")),
    (
        """
        --container-mount-home --container-remap-root --no-container-remap-root --container-writable
        --container-readonly --container-entrypoint --no-container-entrypoint --container-entrypoint-log
        """,
        _STEP_ARGUMENT,
    ),
)
LOAD = Table(
    ("-i= --input=", field("container.archive", PATH)),
    ("-q --quiet", skip(LIFE)),
    other=look("see container.archive"),
)
_BUILD = Table(
    ("-f= --file=", field("container.build.file", PATH)),
    ("-t= --tag=", field("container.image", PATH)),
    ("--no-cache --pull -q --quiet --rm --squash", skip("slurmray builds the image where it is missing")),
    other=look("container.build has a file and a context only"),
)
