"""The rehearsal's container image, built from Debian and Ray without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import shlex
import shutil
import sys
import tarfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from slurmray.errors import RehearsalError
from slurmray.rehearsal.images import cache as store
from slurmray.rehearsal.images import suites

RAY_VERSION = "2.60.0"
# Python version -> the suite that has it. noble is Ubuntu 24.04.
_SUITES = {"3.11": "bookworm", "3.12": "noble", "3.13": "trixie"}
_DEBIAN = ["python3", "libstdc++6", "procps"]
# Machines with wheels of Ray -> their names in OCI.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# 45 MB that need Java, or packages that `ray[default]` does not install.
_DROPPED = ("bin", "ray/jars", "ray/rllib", "ray/llm")
_RAY_COMMAND = "#!/usr/bin/python3\nimport sys\nfrom ray.scripts.scripts import main\nsys.exit(main())\n"
# User, group and home are those of rayproject/ray: an image that does not run as root.
_CONFIG = {
    "User": "ray",
    "WorkingDir": "/home/ray",
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/ray", "LANG=C.UTF-8"],
    "Cmd": ["bash"],
}
_EPOCH = "1970-01-01T00:00:00Z"


def archive(
    cache: Path, tag: str, log: Callable[[str], None], debian: Sequence[str] = (), wheels: Sequence[str] = ()
) -> Path:
    """Return a docker-archive of minimal Debian and `ray[default]`; Podman and Docker load it as `tag`.

    A tag rayproject/ray:VERSION-pyXY… sets the versions of Ray and of Python (3.11 to 3.13); other tags get
    RAY_VERSION and Python 3.11. debian: more Debian packages, from the mirror. wheels: more requirements for
    pip, from its index. About 450 MB; takes a minute the first time. Works as root and as an ordinary user.
    RehearsalError if a download or the build fails.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise RehearsalError(f"no Ray is published for {machine}: name a container image that runs there")
    ray, python = ray_version(tag), python_version(tag)
    suite = _SUITES[python]
    pip, packages = [*_pip(machine, ray, python), *wheels], [*_DEBIAN, *debian]
    # Without the paths of interpreter and cache, which must not change the key.
    recipe = [machine, tag, pip[1:], suites.command(suite, packages, _hooks("", python)), _DROPPED, _CONFIG]

    def build(path: Path) -> None:
        if not find_spec("pip"):
            raise RehearsalError(f"no pip: {sys.executable} -m ensurepip, or apt-get install python3-pip")
        tree = path.parent / "dist-packages"
        env = {"TMPDIR": str(path.parent)}
        log(f"fetching Ray {ray} (once)")
        store.call([*pip, "--target", str(tree)], f"Ray {ray} could not be fetched", env)
        for name in _DROPPED:
            shutil.rmtree(tree / name, ignore_errors=True)
        script = path.parent / "ray"
        script.write_text(_RAY_COMMAND)
        script.chmod(0o755)
        log(f"building a Debian {suite} with Ray {ray} (once, about a minute)")
        layer = path.parent / "layer.tar"
        suites.bootstrap(suites.command(suite, packages, _hooks(str(path.parent), python)), layer)
        write(path, layer, tag, _ARCHITECTURES[machine])

    return store.build_once(cache, f"ray-{ray}-{store.key(recipe)}.tar", build, log)


def ray_version(tag: str) -> str:
    """Return the Ray version in an image's name; RAY_VERSION if it has none."""
    match = re.search(r"(?:^|/)rayproject/ray:([0-9]+\.[0-9]+\.[0-9]+)", tag)
    return match.group(1) if match else RAY_VERSION


def python_version(tag: str) -> str:
    """Return the Python version in an image's name, for example 3.13; 3.11 if no suite has it."""
    match = re.search(r"(?:^|/)rayproject/ray:[^/]*-py3([0-9]+)", tag)
    python = f"3.{match.group(1)}" if match else ""
    return python if python in _SUITES else "3.11"


def _pip(machine: str, ray: str, python: str) -> list[str]:
    """Return pip's command line for the image's Python, which may differ from the running one."""
    platforms = [f"--platform={name}_{machine}" for name in ("manylinux2014", "manylinux_2_28")]
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:"),
        *(f"--python-version={python}", "--implementation=cp", *platforms, f"ray[default]=={ray}"),
    ]


def _hooks(folder: str, python: str) -> list[str]:
    """Return mmdebstrap's customize hooks; `folder` has `dist-packages` and the `ray` command."""
    source = shlex.quote(folder)
    packages = f"/usr/local/lib/python{python}/dist-packages"
    # Ray's start is CPU-bound. With unchecked .pyc files Python neither compiles nor compares timestamps.
    options = "-q -f -j 0 --invalidation-mode unchecked-hash"
    compiled = f"python3 -m compileall {options} /usr/lib/python{python} {packages}"
    return [
        f"copy-in {source}/dist-packages {packages.rpartition('/')[0]}",
        f"copy-in {source}/ray /usr/local/bin",
        f'chroot "$1" chown -R 0:0 {packages} /usr/local/bin',
        'echo "ray:x:1000:100::/home/ray:/bin/bash" >> "$1/etc/passwd"',
        'chroot "$1" install -d -o 1000 -g 100 /home/ray',
        f'chroot "$1" {compiled}',
        # Fails here, and not on the hosts, if Ray does not start.
        'chroot "$1" python3 -B /usr/local/bin/ray --version',
    ]


def write(path: Path, layer: Path, tag: str, architecture: str) -> None:
    """Write the docker-archive: manifest.json, the image's config and its one layer.

    The format is Docker's image specification 1.2, github.com/moby/moby/blob/master/image/spec/v1.2.md.
    """
    checksum = hashlib.sha256()
    with layer.open("rb") as stream:
        while block := stream.read(1 << 20):
            checksum.update(block)
    digest = checksum.hexdigest()
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "created": _EPOCH,
            "config": _CONFIG,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": _EPOCH, "created_by": "slurmray rehearse"}],
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for member, content in (("manifest.json", manifest), (name, config)):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        entry = tarfile.TarInfo(f"{digest}.tar")
        entry.size = layer.stat().st_size
        with layer.open("rb") as stream:
            tar.addfile(entry, stream)
