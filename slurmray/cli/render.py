"""`slurmray render`: renders a job spec, options, or both as one sbatch script or dstack task."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import stat
import termios
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from slurmray.agent.job_log import counted
from slurmray.cli.flags import FILE, PROFILE, job_options
from slurmray.errors import ExitCode, Problem, SpecError, UsageError

if TYPE_CHECKING:
    from slurmray.loading.profile import Profile
    from slurmray.plan import Plan
    from slurmray.spec.job import JobSpec

# {target: file}
DEFAULT_OUTPUT = {"slurm": Path("generated.sh"), "dstack": Path("generated.dstack.yml")}
_SUFFIX = {"slurm": ".sh", "dstack": ".dstack.yml"}
_STDOUT = Path("-")
_NAME = "{name}"  # in -o: the name of the job


@click.command(options_metavar="[JOB.yaml ...] [OPTIONS] [-- COMMAND ...]")
@click.argument("jobs", nargs=-1, metavar="", type=FILE)
@job_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    help="File to write; - is standard output, {name} the job's name.  [default: generated.sh, or "
    "generated.dstack.yml; {name}.sh for several job specs]",
)
@click.option(
    "--target",
    type=click.Choice(list(DEFAULT_OUTPUT)),
    default="slurm",
    help="What to write: slurm, an sbatch script, or dstack, a dstack task.  [default: slurm]",
)
@click.option(
    "--force", is_flag=True, help="Overwrite FILE even if it was edited, or was not rendered by slurmray."
)
@click.pass_obj
def render(
    trainer: list[str],
    /,
    jobs: tuple[Path, ...],
    settings: tuple[str, ...],
    output: Path | None,
    target: str,
    force: bool,
    **flags: str | tuple[str, ...] | None,
) -> None:
    """Write the sbatch script of a job, or a dstack task.

    JOB.yaml is a job spec; - reads it from standard input, and several make a script each. Options override
    their fields. You can also give every other option of sbatch, e.g. --qos high or -C h100. COMMAND,
    everything after the first --, runs the trainer. Without COMMAND and `run`, the job checks every node and
    GPU.

    The cluster needs only the script, and Python 3.6 or later on the nodes. It contains the job as JSON,
    commands in bash, and the agent, which calls them. slurmray verify shows whether it was edited.

    \b
    Examples:
      slurmray render --nodes 2 --gpus-per-node 8
          checks two nodes with 8 GPUs each; submit it with sbatch generated.sh
      slurmray render job.yaml --nodes 4 -o four.sh
          the job of job.yaml on four nodes
      slurmray render --nodes 2 --image my/image:1 --env WANDB_API_KEY \\
          --mount ~/data:/data:ro -- python train.py --lr 1e-6
          without a job spec
      slurmray render job.yaml --set container.shm_size=64g -o - | less
          shows the script
      slurmray render small.yaml large.yaml -o "scripts/{name}.sh"
          a script for each
      slurmray render job.yaml --template site.sbatch.j2
          adds the blocks of your site's template
      slurmray render job.yaml --target dstack
          the same job as a dstack task; submit it with dstack apply -f generated.dstack.yml
    """
    from slurmray.loading.remarks import has_values
    from slurmray.rendering.output import write_scripts

    output = output or _default_output(target, len(jobs))
    rendered = _render_all(jobs, given(settings, flags), trainer, output, target)
    before = {path: _job_file_of(path) for path in rendered}
    if output == _STDOUT:
        click.echo(next(iter(rendered.values())).text.encode(), nl=False)
    else:
        is_private = any(has_values(each.spec) for each in rendered.values())
        write_scripts({path: each.text for path, each in rendered.items()}, force, is_private=is_private)
    for path, each in rendered.items():
        _report(path, each, before[path], target)
    if not jobs and _has_unread_input():
        click.echo("standard input was not read; slurmray render - takes it as the job spec", err=True)


class _Rendered(NamedTuple):
    """A script or task. job: the file of its job spec."""

    job: Path | None
    plan: Plan
    text: str

    @property
    def spec(self) -> JobSpec:
        return self.plan.spec


def _default_output(target: str, jobs: int) -> Path:
    return DEFAULT_OUTPUT[target] if jobs < 2 else Path(_NAME + _SUFFIX[target])


def _render_all(
    jobs: tuple[Path, ...], settings: list[tuple[str, str]], trainer: list[str], output: Path, target: str
) -> dict[Path, _Rendered]:
    """Render all job specs, each for a file of its own. SpecError lists the mistakes in all of them."""
    if len(jobs) > 1 and _NAME not in str(output):
        raise UsageError(f"-o {output}: is one file for {len(jobs)} job specs; use {_NAME} in it")
    found: dict[Path, _Rendered] = {}
    problems = []
    for job in jobs or (None,):
        try:
            plan, text = render_job(job, settings, trainer, output, target)
        except SpecError as error:
            problems += error.problems
            continue
        name = plan.spec.name
        if _NAME in str(output) and "/" in name:
            problems.append(Problem(str(job or "-o"), f"name: {name} has a /, and {_NAME} is in -o"))
        path = Path(str(output).replace(_NAME, name))
        if path in found:
            same = f"name: {name} is also that of {found[path].job}; give each its own"
            problems.append(Problem(str(job), same))
        found[path] = _Rendered(job, plan, text)
    if problems:
        raise SpecError(problems)
    return found


def _report(path: Path, rendered: _Rendered, before: str, target: str) -> None:
    """Print what was written, hints about the job, and how to submit it. before: see _job_file_of."""
    from slurmray.cli.terminal import show

    job, spec = rendered.job, rendered.spec
    if path != _STDOUT:
        click.echo(f"wrote {path}: {summary(spec, target)}", err=True)
    warn_of_unset(spec, target)
    for line in _remarks(rendered.plan, target):
        click.echo(line, err=True)
    if path == _STDOUT:
        return
    if before and before != (job and _from_here(job)):
        show(f"{path} was the script of {before} before; with -o FILE both are kept", err=True)
    file = shlex.quote(str(path))
    if target == "dstack":
        click.echo(f"run it with: dstack apply -f {file}", err=True)
        return
    click.echo(f"submit it with: sbatch {file}", err=True)
    click.echo(f"or try it on this machine: slurmray rehearse {file}", err=True)


def _has_unread_input() -> bool:
    """Whether standard input is a file or pipe with data."""
    try:
        mode = os.fstat(0).st_mode
        if stat.S_ISREG(mode):
            return os.lseek(0, 0, os.SEEK_CUR) < os.fstat(0).st_size
        size = fcntl.ioctl(0, termios.FIONREAD, b"\0" * 4) if stat.S_ISFIFO(mode) else b"\0"
    except OSError:  # closed
        return False
    return any(size)


def render_job(
    job: Path | None,
    settings: list[tuple[str, str]],
    trainer: list[str],
    output: Path = DEFAULT_OUTPUT["slurm"],
    target: str = "slurm",
    *,
    only_checks: bool = False,
) -> tuple[Plan, str]:
    """Return the plan of a job and its sealed script or task.

    First three arguments: as in load_plan; settings may have PROFILE, too. only_checks: as in render_script.
    """
    from slurmray.loading.load import load_plan
    from slurmray.rendering.output import seal

    fields = [(option, value) for option, value in settings if option != PROFILE]
    if target == "dstack":
        from slurmray.rendering.dstack.task import refusals, render_task

        if PROFILE in dict(settings):
            raise UsageError(f"{PROFILE}: for jobs of Slurm; leave it out with --target dstack")
        plan = load_plan(job, fields, trainer, refusals)
        return plan, seal(render_task(plan))
    from slurmray.rendering.script import render_script

    plan = load_plan(job, fields, trainer, profile=profile_of(settings))
    command = _render_command(job, settings, trainer, output)
    return plan, seal(render_script(plan, command, only_checks=only_checks))


def profile_of(settings: list[tuple[str, str]]) -> Profile | None:
    """Return the profile that the options of `given` choose."""
    from slurmray.loading import profile

    return profile.choose(dict(settings).get(PROFILE))


def given(settings: tuple[str, ...], flags: dict[str, str | tuple[str, ...] | None]) -> list[tuple[str, str]]:
    """Return (name, value) pairs for load_plan: --set first, so that the other options override it."""
    pairs = []
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: expected PATH=VALUE, e.g. --set container.shm_size=64g")
        pairs.append((path, value))
    for name, values in flags.items():
        for value in (values,) if isinstance(values, str) else values or ():
            pairs.append((f"--{name.replace('_', '-')}", value))
    return pairs


def _render_command(
    job: Path | None, settings: list[tuple[str, str]], trainer: list[str], output: Path
) -> str:
    """Return the command that renders the same script again, without the values of `env`: the log shows it.

    The trainer's command becomes --set run=..., so that users can append options.
    """
    from slurmray.loading.load import hide_env, is_switch

    argv = ["slurmray", "render"]
    if job is not None:
        argv.append(_from_here(job))
    for name, given_value in settings:
        value = hide_env(name, given_value)
        option = ["--set", f"{name}={value}"]
        if name.startswith("--"):
            option = [name] if is_switch(name) else [name, value]
        argv += option
    if trainer:
        argv += ["--set", f"run={json.dumps(trainer, ensure_ascii=False)}"]
    if output not in (DEFAULT_OUTPUT["slurm"], _STDOUT):
        argv += ["-o", _from_here(output)]
    return shlex.join(argv)


def _job_file_of(script: Path) -> str:
    """Return the job spec's file of a script that slurmray wrote before; "" if it is not known."""
    from slurmray.files import read as read_file
    from slurmray.rendering.script import settings_of_text

    try:
        again = json.loads(settings_of_text(read_file(script).decode(errors="replace")))["render_again"]
        argv = shlex.split(again)
    except (OSError, ValueError, KeyError):
        return ""
    return argv[2] if len(argv) > 2 and argv[:2] == ["slurmray", "render"] and argv[2][0] != "-" else ""


def _from_here(path: Path) -> str:
    """Return a path, relative if it is below the current folder, so that machines render the same script."""
    place, here = Path(os.path.realpath(path.parent), path.name), Path.cwd()
    inside = path.is_absolute() and place.is_relative_to(here)
    return str(place.relative_to(here) if inside else path)


def _remarks(plan: Plan, target: str) -> list[str]:
    """Return hints for the user who submits the job."""
    if target == "dstack":
        from slurmray.rendering.dstack.task import remarks

        return remarks(plan)
    from slurmray.loading.remarks import remarks

    return remarks(plan)


def warn_of_unset(spec: JobSpec, target: str = "slurm") -> None:
    """Warn about variables that the job takes from the submitter and that are not set."""
    from slurmray.loading.remarks import unset_variables

    what = {"slurm": f"sbatch, or the job ends with {ExitCode.CONFIG}", "dstack": "dstack apply"}[target]
    for name in unset_variables(spec, os.environ, target):
        click.echo(f"env.{name} is not set in your environment; export it before {what}", err=True)


def summary(spec: JobSpec, target: str) -> str:
    """Return what a job has and runs, in one line."""
    return f"{resources(spec, target)}, {'the built-in check' if spec.run is None else 'your command'}"


def resources(spec: JobSpec, target: str) -> str:
    """Return the resources of a job, in one line."""
    nodes = spec.slurm.node_count
    parts = [counted(nodes, "node")]
    if spec.slurm.groups:
        parts += [
            f"{group.name}: {group.nodes} with {counted(group.gpus, 'GPU') if group.gpus else 'no GPUs'}"
            for group in spec.slurm.groups
        ]
    else:
        no_gpus = "no GPUs (request them with --gpus-per-node 8)"
        parts.append(f"{counted(spec.gpus, 'GPU')} each" if spec.gpus else no_gpus)
    of_services = nodes - spec.ray_nodes
    if of_services:
        parts.append(f"{counted(of_services, 'node')} for services")
    if spec.trainer_nodes < spec.ray_nodes and not spec.slurm.groups:
        total = spec.trainer_nodes * spec.ray_gpus
        parts.append(f"{counted(total, 'GPU')} for the trainer, as the head node offers {spec.head_gpus}")
    if not all(component.cpus_per_task for component in spec.slurm.components):
        default = "Slurm's default, often 1" if target == "slurm" else "2 or more, as the instance has"
        parts.append(f"CPUs: {default} (request more with --cpus-per-task 8)")
    return ", ".join(parts)
