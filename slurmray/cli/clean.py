"""`slurmray clean`: removes old run directories, or leftovers from nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from slurmray import history
from slurmray.agent.paths import IMAGES
from slurmray.cli.flags import PROFILE_OPTION, flag, set_option
from slurmray.cli.submit import follow_job
from slurmray.cli.terminal import can_ask, show
from slurmray.errors import SlurmError, UsageError
from slurmray.slurm import slurm_commands
from slurmray.slurm.host import Host, get_host
from slurmray.slurm.run_directories import directories, renamed_directories
from slurmray.slurm.states import FINAL, is_last_attempt_over, parse_events

_DAY = 86400.0  # seconds
_MOST_DAYS = 36500
_FILES_OF_NODE = (
    "logs/{}.log",
    "logs/{}-ray.tar.gz",
    "logs/{}.samples.jsonl",
    "logs/{}.samples.jsonl.new",
    "stall/{}.txt",
)
_PROGRAM = Path(__file__).with_name("clean.sh")
# The job that cleans up nodes starts beside other jobs, whatever a profile requests and sets for trainers.
_JOB = [("name", "clean"), ("preflight", "none"), ("slurm.time", "10")]
_NOT_REQUESTED = (
    *("slurm.exclusive", "slurm.cpus_per_task", "slurm.cpus_per_gpu", "slurm.gpus_per_node", "slurm.gres"),
    *("slurm.mem", "slurm.mem_per_cpu", "slurm.mem_per_gpu", "ray.gpus_per_node", "env"),
)


class _OldDirectory(NamedTuple):
    """The run directory of an ended attempt. nodes: their names. size: of what the job wrote, bytes.

    images: it is the folder beside them with archives of images instead: those not used since then, in
    seconds since 1970.
    """

    host: Host
    path: Path
    nodes: Sequence[str]
    size: int = 0
    images: int | None = None

    def __str__(self) -> str:
        return f"{self.host.name}:{self.path}" if self.host.name else str(self.path)


@click.command()
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0, max=_MOST_DAYS),
    default=30,
    show_default=True,
    metavar="DAYS",
    help="Of jobs that ended so long ago.",
)
@flag("--dry-run", help="Only list them.")
@flag("--yes", help="Do not ask.")
@click.option("-w", "--nodelist", metavar="NODES", help="Clean up these nodes instead, e.g. node[1-4].")
@PROFILE_OPTION
@set_option("With --nodelist: any field of the job spec, e.g. slurm.partition=gpu.")
def clean(
    *,
    days: float,
    dry_run: bool,
    yes: bool,
    nodelist: str | None,
    profile: str | None,
    settings: tuple[str, ...],
) -> int | None:
    """Remove the run directories of your ended jobs that were submitted with slurmray: logs and events.

    Files that a trainer wrote there stay, and so does the job's log, slurm-JOBID.out. With container.stage,
    also remove archives of images beside them that no job has used since then.

    With --nodelist, remove containers and folders that your ended jobs left on these nodes. Every job does
    that on the nodes where it starts. This submits a small job that does nothing else, and shows its log.

    \b
    Examples:
      slurmray clean --dry-run
      slurmray clean --older-than 7 --yes
      slurmray clean --nodelist node[1-4] --set slurm.partition=gpu
    """
    if nodelist is not None:
        if dry_run or yes:
            raise UsageError("slurmray clean: --dry-run and --yes are not for --nodelist")
        return _clean_nodes(nodelist, profile, settings)
    if profile or settings:
        raise UsageError("slurmray clean: --set and --profile go with --nodelist")
    _clean_run_directories(days, dry_run=dry_run, yes=yes)
    return None


def _clean_nodes(nodelist: str, profile_name: str | None, settings: tuple[str, ...]) -> int | None:
    """Remove leftovers from nodes, in a job; return its exit code."""
    from slurmray.cli.rendered import given, render_job

    chosen = given({"settings": settings, "nodelist": nodelist, "profile": profile_name})
    without = [(field, "null") for field in _NOT_REQUESTED]
    fields = [*_JOB, *without, *chosen]
    host = render_job(None, fields, []).host  # wrong options come first
    count = ("slurm.nodes", str(len(slurm_commands.hostnames(nodelist, host))))
    job = render_job(None, [*fields, count], [], only_checks=True).submit()
    code = follow_job(job)
    if code == 0 and not any(event.get("phase") == "leftovers" for event in job.events()):
        show(f"nothing of ended jobs was left on {nodelist}", err=True)
    return code


def _clean_run_directories(days: float, *, dry_run: bool, yes: bool) -> None:
    runs = history.runs()
    directories: list[_OldDirectory] = []
    errors = []
    for name in dict.fromkeys(run.host for run in runs):
        host_runs = [run for run in runs if run.host == name]
        try:
            directories += _find_old(get_host(name), host_runs, time.time() - days * _DAY)
        except SlurmError as error:  # a host may be gone for good
            errors.append(error)
    if errors and not directories:
        raise errors[0]
    for failure in errors:
        show(str(failure), err=True)
    for directory in directories:
        show(f"{directory}  {directory.size / 1e6:.1f} MB")
    if not directories:
        click.echo(f"no run directory of a job that ended {days:g} days ago or earlier", err=True)
    if not directories or dry_run:
        return
    if not yes:
        if not can_ask():
            raise UsageError("slurmray clean: would remove these; --yes does it")
        folders = "this folder" if len(directories) == 1 else f"these {len(directories)} folders"
        click.confirm(f"Remove {folders}?", abort=True, err=True)
    for directory in directories:
        if _run(directory, "remove").endswith(" stays\n"):
            show(f"{directory}: has files that the job's programs wrote: these stay", err=True)


def _find_old(host: Host, runs: Sequence[history.Run], before: float) -> Iterator[_OldDirectory]:
    """Yield the run directories on a host whose last event is older than `before`, seconds since 1970.

    Those of jobs that have not ended are left out, and those of other clusters, which are not asked. On the
    login node of another cluster with the same home folder, a job's mark tells its cluster.
    """
    queue = slurm_commands.squeue(host).items()
    busy = {name.partition("_")[0] for name, queued in queue if queued.state not in FINAL}
    asked = [run for run in runs if run.cluster is None]
    candidates = (path for run in asked for path in _run_directories(host, run, is_busy=str(run.id) in busy))
    paths = list(dict.fromkeys(candidates))
    texts = host.read_all([path / name for path in paths for name in ("events.jsonl", "mark")])
    cluster = ""  # of the host
    for folder in dict.fromkeys(_folder(host, run) for run in asked):
        images = _OldDirectory(host, folder / IMAGES, (), images=int(before))
        if (answer := _run(images, "")) and not answer.startswith("0 "):
            yield images._replace(size=int(answer.split()[0]))
    for path in paths:
        events = parse_events(texts.get(path / "events.jsonl", b"").decode(errors="replace"))
        if events and events[-1]["time"] < before:
            own = texts.get(path / "mark", b"").decode(errors="replace").split("\n")[1:2]
            if any(own) and not is_last_attempt_over(events):
                cluster = cluster or slurm_commands.cluster_name(host)
                if own != [cluster]:
                    continue  # it may still run
            starts = [event for event in events if event["event"] == "start"]
            nodes = [node for event in starts for node in [*event["nodes"], *event.get("spares", [])]]
            directory = _OldDirectory(host, path, nodes)
            if answer := _run(directory, ""):
                yield directory._replace(size=int(answer.split()[0]))


def _run_directories(host: Host, run: history.Run, *, is_busy: bool) -> list[Path]:
    """Return the run directories of ended jobs with a job's id: not its own if it is busy."""
    folder = _folder(host, run)
    names = [] if is_busy else directories(folder, run.id, host)
    return [folder / name for name in names + renamed_directories(folder, run.id, host)]


def _folder(host: Host, run: history.Run) -> Path:
    """The folder of a job's run directories."""
    return Path(run.folder, host.expand(run.run_dir))


def _run(directory: _OldDirectory, remove: str) -> str:
    """Run clean.sh for a directory; return what it prints."""
    # As input: those of many nodes are too long for arguments.
    files = "".join(f"{pattern.format(node)}\n" for node in directory.nodes for pattern in _FILES_OF_NODE)
    before = [] if directory.images is None else [str(directory.images)]
    argv = ["bash", "-c", _PROGRAM.read_text(), "bash", str(directory.path), remove, *before]
    result = slurm_commands.call(argv, text=files, host=directory.host)
    if result.stderr:
        show(result.stderr.rstrip("\n"), err=True)
    return result.stdout
