"""One rehearsal from beginning to end, and the cluster that `--keep` leaves."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurmray.errors import RehearsalError
from slurmray.rehearsal import job, machine
from slurmray.rehearsal.cluster.directives import Wanted, wanted
from slurmray.rehearsal.cluster.lab import Lab
from slurmray.rehearsal.cluster.layout import RUNTIMES, Layout, Runtime
from slurmray.rehearsal.cluster.script_facts import facts
from slurmray.rehearsal.images import provide, suites

Say = Callable[[str], None]
# Below these the hosts have their own, or what stands in for it.
_OF_THE_HOST = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr")


@dataclass(frozen=True)
class Choices:
    """What the caller of a rehearsal chooses.

    folder: the submit folder. build_image: make an image in the place of the job's. suite: the Debian suite
    whose Slurm and Podman the hosts have; None: the machine's own. keep: leave the cluster up.
    """

    folder: Path
    build_image: bool = False
    suite: str | None = None
    keep: bool = False


def rehearse(script: str, choices: Choices) -> int:
    """Run the script on a cluster made for it and return the job's exit code, 130 when it was interrupted.

    Progress goes to stderr, the job's log to stdout. RehearsalError when there is no job to speak of.
    """
    if _kept():
        raise RehearsalError("a rehearsal's cluster is up: slurmray rehearse --down ends it")
    say = _clock()
    try:
        about, want = facts(script), wanted(script)
    except ValueError as error:
        raise RehearsalError(str(error)) from error
    known = [each for each in RUNTIMES if each in about.runtimes]
    if not known:
        raise RehearsalError(f"a rehearsal's hosts have no {about.runtimes[0]}: use --runtime podman")
    runtime: Runtime = known[0]
    if runtime == "none" and choices.build_image:
        raise RehearsalError("runtime none has no image: leave --build-image out")
    if runtime == "docker" and not machine.is_root():
        raise RehearsalError("rehearsing with Docker needs root: use sudo, or --runtime podman")
    machine.require(runtime, own_slurm=not choices.suite, builds=choices.build_image or bool(choices.suite))
    for note in want.notes:
        say(f"not as on your cluster: {note}")
    store = None
    if runtime != "none":
        store = provide.image(about.image, runtime, build=choices.build_image, say=say)
    root = suites.hosts_root(machine.cache_folder(), choices.suite, say)
    layout = Layout(choices.folder, runtime, store, root)
    layout = _with_mounts(layout, about.sources(Path.home()), say)
    # A number that was not there before, as run directories and logs of one folder are told apart by it.
    number = {"FirstJobId": str(int(time.time()) % 10_000_000 + 1)}
    cluster = dataclasses.replace(want.cluster, options={**want.cluster.options, **number})
    lab = Lab(cluster, layout, tethered=not choices.keep)
    with _interrupts():
        try:
            lab.boot()
            code = _run(lab, script, want, say)
            if choices.keep:
                lab.keep()
                _state_file().write_text(json.dumps(lab.state()))
                say("the cluster stays up: enter it with slurmray rehearse --shell, end it with --down")
        except BaseException:
            lab.down()
            raise
        if not choices.keep:
            lab.down()
    return code


def enter(command: list[str]) -> int:
    """Run a command, or a shell, on the login host of the kept cluster and return its exit code."""
    argv = _attached().argv(command or ["bash"])
    return os.spawnvp(os.P_WAIT, argv[0], argv)  # noqa: S606 - the terminal is the command's


def down() -> None:
    """End the kept cluster."""
    _attached().down()
    _state_file().unlink()


def _run(lab: Lab, script: str, want: Wanted, say: Say) -> int:
    programs = ["sinfo"] if lab.layout.runtime == "none" else ["sinfo", lab.layout.runtime]
    node = lab.cluster.nodes[0]
    versions = [lab.run([program, "--version"], host=node).stdout.strip() for program in programs]
    say(f"up: {', '.join(lab.cluster.nodes)}; {', '.join(versions)}")
    number = job.submit(lab, script, want)
    say(f"job {number} is submitted; its log follows")
    code = None
    try:
        about = job.follow(lab, number, job.to_stdout)
    except KeyboardInterrupt:
        say(f"interrupted: scancel {number}; once more to end it at once")
        code = 130
        job.cancel(lab, number)
        about = job.follow(lab, number, job.to_stdout)
    left = job.left_over(lab)
    for line in left:
        say(f"left over on {line}")
    code = job.exit_code(about) if code is None else code
    hosts = f"{len(left)} things left over" if left else "nothing left over on any host"
    say(f"job {number} {about['JobState']}, exit code {code}, {hosts}")
    return code


def _with_mounts(layout: Layout, sources: list[Path], say: Say) -> Layout:
    """Let the hosts see what the job mounts."""
    shown, files, missing = [], [], []
    for source in [Path.home(), *sources]:
        if any(source.is_relative_to(place) for place in (layout.folder, *_OF_THE_HOST)):
            continue
        if source.is_dir():
            shown.append(source)
        elif source.is_file():
            files.append(source)
        else:
            missing.append(source)
            say(f"not as on your cluster: {source} is not on this machine, an empty folder takes its place")
    return dataclasses.replace(layout, copy_on_write=shown, files=files, missing=missing)


def _clock() -> Say:
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"[rehearse {time.monotonic() - begun:5.1f} s] {text}", file=sys.stderr, flush=True)

    return say


@contextmanager
def _interrupts() -> Iterator[None]:
    """Make of a closed terminal and of SIGTERM what Ctrl-C is."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _state_file() -> Path:
    return machine.cache_folder() / "kept.json"


def _kept() -> dict[str, object]:
    """Return the state of the kept cluster, {} when there is none any more."""
    try:
        state: dict[str, object] = json.loads(_state_file().read_text())
    except FileNotFoundError:
        return {}
    return state if Lab.attach(state).is_up() else {}


def _attached() -> Lab:
    state = _kept()
    if not state:
        raise RehearsalError("no rehearsal's cluster is up: slurmray rehearse --keep JOB.yaml leaves one")
    return Lab.attach(state)
