"""Runs a rehearsal and its job from start to end; manages the cluster that `--keep` leaves running."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from slurmray.agent.script_parts import read_settings
from slurmray.errors import RehearsalError
from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.layout import Layout
from slurmray.rehearsal.cluster.requirements import Requirements, read_requirements
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.images import provide, suites
from slurmray.slurm.states import End, parse_end

Log = Callable[[str], None]
# The hosts have their own folders here. Mount sources below them are not taken from the machine.
_HOST_FOLDERS = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr")


# Prefixes of variables about this machine's daemons or a surrounding job, which are wrong on the hosts.
_DROPPED_VARIABLES = (
    "CONTAINERS_",
    "CONTAINER_HOST",
    "DBUS_",
    "DOCKER_",
    "SBATCH_",
    "SLURM",
    "SRUN_",
    "TMPDIR",
    "XDG_RUN",
)
_SLURMCTLD_TIMEOUT = 30  # seconds
_START_TIMEOUT = 20  # seconds; no other job runs there, so one that is still pending will never start
_REQUEUE_TIMEOUT = 150  # seconds; Slurm restarts a job only after its old credential has expired
_CLEANUP_TIMEOUT = 15  # seconds after the job's end


def rehearse(script: str, *, build_image: bool, suite: str | None, keep: bool) -> int:
    """Run the script on a cluster of its own; return the job's exit code, 130 if it was interrupted.

    build_image: build an image and use it as the job's. suite: Debian suite with the Slurm and Podman of the
    hosts; None: those of the machine. keep: leave the cluster running. Progress goes to stderr, the job's log
    to stdout. RehearsalError if the job could not run.
    """
    if _kept():
        raise RehearsalError("a kept cluster is still running: end it with slurmray rehearse --down")
    log = _timed_log()
    try:
        image, runtimes, sources = read_container(script)
        requirements = read_requirements(script)
    except ValueError as error:
        raise RehearsalError(str(error)) from error
    available = [name for name in machine.RUNTIMES if name in runtimes]
    if not available:
        raise RehearsalError(f"a rehearsal's hosts have no {runtimes[0]}: use --runtime podman")
    runtime = available[0]
    if runtime == "none" and build_image:
        raise RehearsalError("runtime none uses no image: remove --build-image")
    if runtime == "docker" and not machine.is_root():
        raise RehearsalError("rehearsing with Docker needs root: use sudo, or --runtime podman")
    machine.require(runtime, own_slurm=not suite, builds=build_image or bool(suite))
    for remark in requirements.remarks:
        log(f"not as on your cluster: {remark}")
    store = None
    if runtime != "none":
        store = provide.image(image, runtime, build=build_image, log=log)
    root = suites.hosts_root(machine.cache_folder(), suite, log)
    layout = Layout(Path.cwd(), runtime, store, root)
    layout = _with_mounts(layout, sources, log)
    # A job id that is new in this folder: run directories and logs have it in their names.
    first_job = {"FirstJobId": str(int(time.time()) % 10_000_000 + 1)}
    cluster_config = dataclasses.replace(
        requirements.cluster, options={**requirements.cluster.options, **first_job}
    )
    with _signals_as_interrupt(), hangs_as_errors(), ExitStack() as until_end:
        cluster = until_end.enter_context(SlurmCluster(cluster_config, layout, tethered=not keep))
        code = _run(cluster, script, requirements, log)
        if keep:
            cluster.keep()
            _state_file().write_text(json.dumps(cluster.state()))
            log("the cluster keeps running: enter it with slurmray rehearse --shell, end it with --down")
            until_end.pop_all()
    return code


def read_container(script: str) -> tuple[str, list[str], list[Path]]:
    """Return image, runtimes, and sources of mounts outside the submit folder, of a rendered script.

    The image has its registry. ValueError if slurmray did not render the script.
    """
    try:
        container = read_settings(script)["container"]
        sources = [re.sub(r"^~(?=/|$)", str(Path.home()), mount["source"]) for mount in container["mounts"]]
        absolute = [Path(source) for source in sources if source.startswith("/")]
        return container["image_with_registry"], container["runtimes"], absolute
    except (ValueError, KeyError, TypeError):
        message = "slurmray did not render this script; rehearse a job spec or a rendered script"
        raise ValueError(message) from None


def enter(command: list[str]) -> int:
    """Run a command, or a shell, on the login host of the kept cluster and return its exit code."""
    argv = _attach().argv(command or ["bash"])
    return os.spawnvp(os.P_WAIT, argv[0], argv)  # noqa: S606 - the terminal is the command's


def down() -> None:
    """Shut down the kept cluster."""
    _attach().down()
    _state_file().unlink()


def _run(cluster: SlurmCluster, script: str, requirements: Requirements, log: Log) -> int:
    programs = ["sinfo"] if cluster.layout.runtime == "none" else ["sinfo", cluster.layout.runtime]
    node = cluster.config.nodes[0]
    versions = [cluster.run([program, "--version"], host=node).stdout.strip() for program in programs]
    log(f"up: {', '.join(cluster.config.nodes)}; {', '.join(versions)}")
    number = _submit(cluster, script, requirements)
    log(f"submitted job {number}; its log follows")
    code = None
    try:
        end = follow(cluster, number)
    except KeyboardInterrupt:
        log(f"interrupted: scancel {number}; press Ctrl-C again to end everything at once")
        code = 130
        cluster.run(["scancel", str(number)])
        end = follow(cluster, number)
    leftovers = _leftovers(cluster)
    for line in leftovers:
        log(f"leftover on {line}")
    code = end.shell_code if code is None else code
    summary = f"{len(leftovers)} leftovers" if leftovers else "no leftovers on any host"
    log(f"job {number} {end.state}, exit code {code}, {summary}")
    return code


def _submit(cluster: SlurmCluster, script: str, requirements: Requirements) -> int:
    """Submit the script, byte for byte, with the caller's environment, and return the job's id."""
    for name in requirements.reservations:
        options = ["Nodes=ALL", "Users=root", "StartTime=now", "Duration=infinite"]
        cluster.run(["scontrol", "create", "reservation", f"ReservationName={name}", *options])
    env = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED_VARIABLES)}
    job = cluster.sbatch("", user=None, args=requirements.overrides, text=script, env=env)
    if requirements.held:
        cluster.run(["scontrol", "release", str(job)])
    return job


def follow(cluster: SlurmCluster, job: int) -> End:
    """Print the job's log until the job ends; return how. RehearsalError if Slurm does not start the job."""
    pending_since = last_answer = time.monotonic()
    read: dict[str, int] = {}
    for info in cluster.poll(job):
        state = info.get("JobState", "")
        last_answer = time.monotonic() if state else last_answer
        if time.monotonic() - last_answer > _SLURMCTLD_TIMEOUT:
            raise RehearsalError(f"no answer from slurmctld for {_SLURMCTLD_TIMEOUT} s")
        for path in dict.fromkeys((info.get("StdOut", ""), info.get("StdErr", ""))):
            host = info.get("BatchHost", "")
            if path and host in cluster.pids:
                read[path] = _copy(Path(f"/proc/{cluster.pids[host]}/root{path}"), read.get(path, 0))
        pending_since = pending_since if state == "PENDING" else time.monotonic()
        timeout = _START_TIMEOUT if info.get("Restarts", "0") == "0" else _REQUEUE_TIMEOUT
        if time.monotonic() - pending_since > timeout:
            raise RehearsalError(f"Slurm has not started the job within {timeout} s: {info.get('Reason')}")
    return parse_end(info["JobState"], info.get("ExitCode", "0:0"))


def _leftovers(cluster: SlurmCluster) -> list[str]:
    """Return the job's leftovers on the hosts, after waiting for their clean-up."""
    deadline = time.monotonic() + _CLEANUP_TIMEOUT
    while (lines := cluster.leftovers()) and time.monotonic() < deadline:
        time.sleep(0.3)
    return lines


def _copy(path: Path, position: int) -> int:
    try:
        with path.open("rb") as stream:
            stream.seek(position)
            while data := stream.read(1 << 16):
                click.echo(data, nl=False)  # the command line handles its errors
            return stream.tell()
    except FileNotFoundError:
        return position


def _with_mounts(layout: Layout, sources: list[Path], log: Log) -> Layout:
    """Return the layout with the machine's home folder and the job's mount sources."""
    folders, files, missing = [], [], []
    for source in [Path.home(), *sources]:
        if any(source.is_relative_to(place) for place in (layout.folder, *_HOST_FOLDERS)):
            continue
        if source.is_dir():
            folders.append(source)
        elif source.is_file():
            files.append(source)
        else:
            missing.append(source)
            log(f"not as on your cluster: {source} is not on this machine, the hosts get an empty folder")
    return dataclasses.replace(layout, copy_on_write=folders, files=files, missing=missing)


def _timed_log() -> Log:
    start = time.monotonic()

    def log(line: str) -> None:
        print(f"[rehearse {time.monotonic() - start:5.1f} s] {line}", file=sys.stderr, flush=True)

    return log


@contextmanager
def hangs_as_errors() -> Iterator[None]:
    """Raise a RehearsalError in place of subprocess.TimeoutExpired."""
    try:
        yield
    except subprocess.TimeoutExpired as error:
        command = " ".join(map(str, error.cmd[-4:]))  # it begins with what enters a host
        text = f"... {command} has not ended within {error.timeout:g} s: is this machine overloaded?"
        raise RehearsalError(text) from None


@contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP (a closed terminal) like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    handlers = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _state_file() -> Path:
    return machine.cache_folder() / "kept.json"


def _kept() -> dict[str, object]:
    """Return the state of the kept cluster; {} if none is running."""
    try:
        state: dict[str, object] = json.loads(_state_file().read_text())
    except FileNotFoundError:
        return {}
    return state if SlurmCluster.attach(state).is_up() else {}


def _attach() -> SlurmCluster:
    state = _kept()
    if not state:
        raise RehearsalError("no kept cluster is running: start one with slurmray rehearse --keep JOB.yaml")
    return SlurmCluster.attach(state)
