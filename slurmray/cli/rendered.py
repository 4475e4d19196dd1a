"""Renders the job that a command line describes, and prints its remarks."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from slurmray.agent.combinations import count
from slurmray.agent.job_log import counted
from slurmray.cli.flags import PROFILE
from slurmray.cli.targets import TARGETS, Target
from slurmray.cli.terminal import show
from slurmray.errors import UsageError
from slurmray.loading import profile as profiles
from slurmray.loading.load import hide_env, is_switch, load_plan
from slurmray.loading.remarks import unset_variables
from slurmray.loading.submission import check_submission, queue_options
from slurmray.plan import Plan
from slurmray.rendering.output import seal
from slurmray.slurm.host import Host
from slurmray.spec.job_spec import JobSpec

if TYPE_CHECKING:
    from slurmray.slurm.submitted_job import Job

DEFAULT_OUTPUT = Path("generated.sh")


class Rendered(NamedTuple):
    """A rendered job. text: its sealed script or task. file: its job spec. profile: the one that was used."""

    plan: Plan
    text: str
    file: Path | None
    profile: profiles.Profile | None
    target: Target

    @property
    def spec(self) -> JobSpec:
        """The job spec."""
        return self.plan.spec

    @property
    def host(self) -> Host:
        """The host on which the job is submitted."""
        return profiles.choose_host(self.profile)

    @property
    def folder(self) -> Path:
        """From which it is submitted there; relative to the home folder of another host."""
        return profiles.choose_folder(self.profile)

    @property
    def unset(self) -> list[str]:
        """Fields of variables that the job takes from the submitter and that are not set here."""
        return unset_variables(self.spec, os.environ, self.target.own_variables)

    def require_variables(self) -> None:
        """UsageError if the job takes variables from here that are not set, and so would end at once.

        A login shell on another host may set them.
        """
        if not self.host.name:
            require_set(self.unset)

    def check_submission(self) -> list[str]:
        """Check folder and partitions as submit_script does, and return remarks."""
        return check_submission(self.spec, self.host, self.folder)

    def require_one_job(self) -> None:
        """UsageError for an array, of which slurmray would know only the first job."""
        if dict(self.spec.slurm.given()).get("array") and not self.spec.sweep:
            raise UsageError("slurm.array makes several jobs: render the script, and submit it with sbatch")

    @property
    def remarks(self) -> list[str]:
        """Hints for the user who submits the job."""
        fix = f"is not set in your environment; export it before {self.target.submitting}"
        unset = [f"{field} {fix}" for field in self.unset]
        return unset + self.target.remarks(self.plan, not self.host.name)

    @property
    def summary(self) -> str:
        """What the job has and runs, in one line."""
        return f"{self.resources}, {'the built-in check' if self.spec.run is None else 'your command'}"

    @property
    def resources(self) -> str:
        """The resources of the job, in one line."""
        spec = self.spec
        nodes = spec.slurm.node_count
        tasks = f"{counted(count(spec.sweep), 'task')} of " if spec.sweep else ""
        parts = [tasks + counted(nodes, "node")]
        if self.plan.fewer_nodes:
            parts.append(f"at least {min(self.plan.fewer_nodes)}")
        if spec.spare_nodes:
            parts.append(counted(spec.spare_nodes, "spare node"))
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
        options = [dict(component.given()) for component in spec.slurm.components]
        cpus = {"cpus-per-task", "cpus-per-gpu"}
        if not all(cpus & {*given} or given.get("exclusive", "") is None for given in options):
            parts.append(f"CPUs: {self.target.default_cpus} (request more with --cpus-per-task)")
        if self.target is TARGETS["slurm"]:
            asked = [queue_options(spec, component, self.host) for component in spec.slurm.components]
            parts += dict.fromkeys(f"partition {name}" if name else "default partition" for name, _ in asked)
            time = asked[0][1] or ""
            parts.append(f"time limit {time}{' min' * time.isdecimal()}" if time else "default time limit")
        return ", ".join(parts)

    def submit(self, *arguments: str) -> Job:
        """Submit the job as api.submit_script does, and show messages for the user."""
        from slurmray.api import submit_script

        job, messages = submit_script(self.spec, self.text, *arguments, profile=self.profile)
        show_remarks(messages)
        return job


def require_set(unset: Sequence[str]) -> None:
    """UsageError for fields of variables that are not set, if there are some."""
    if unset:
        raise UsageError(
            "\n".join(f"{field} is not set in your environment; export it first" for field in unset)
        )


def show_remarks(remarks: Sequence[str]) -> None:
    """Print remarks on a job."""
    for remark in remarks:
        show(remark, err=True)


def render_job(
    job: Path | None,
    settings: list[tuple[str, str]],
    trainer: list[str],
    output: Path = DEFAULT_OUTPUT,
    target: str = "slurm",
    *,
    only_checks: bool = False,
) -> Rendered:
    """Return a job, sealed.

    First three arguments: as in load_plan; settings may have PROFILE, too. output: the file that
    will have its text. only_checks: as in render_script.
    """
    chosen, name = TARGETS[target], dict(settings).get(PROFILE)
    if name is not None and not chosen.has_profiles:
        raise UsageError(f"{PROFILE}: for jobs of Slurm; leave it out with --target {target}")
    profile = profiles.choose(name) if chosen.has_profiles else None
    fields = [(option, value) for option, value in settings if option != PROFILE]
    plan = load_plan(job, fields, trainer, chosen.check, profile=profile)
    command = _render_command(job, settings, trainer, output)
    text = seal(chosen.render(plan, command, only_checks))
    return Rendered(plan, text, job, profile, chosen)


def given(options: Mapping[str, str | tuple[str, ...] | None]) -> list[tuple[str, str]]:
    """Return (name, value) pairs for load_plan: --set first, so that the other options override it.

    options: those of job_options, by their parameters.
    """
    flags, pairs = dict(options), []
    for setting in flags.pop("settings", None) or ():
        path, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: expected PATH=VALUE, e.g. --set container.shm_size=64g")
        pairs.append((path, value))
    for name, values in flags.items():
        for value in (values,) if isinstance(values, str) else values or ():
            pairs.append((f"--{name.replace('_', '-')}", value))
    return pairs


def path_from_here(path: Path) -> str:
    """Return a path, relative if it is below the current folder, so that machines render the same script."""
    place, here = Path(os.path.realpath(path.parent), path.name), Path.cwd()
    inside = path.is_absolute() and place.is_relative_to(here)
    return str(place.relative_to(here) if inside else path)


def _render_command(
    job: Path | None, settings: list[tuple[str, str]], trainer: list[str], output: Path
) -> str:
    """Return the command that renders the same script again, without the values of `env`: the log shows it.

    The trainer's command becomes --set run=..., so that users can append options.
    """
    argv = ["slurmray", "render"]
    if job is not None:
        argv.append(path_from_here(job))
    for name, given_value in settings:
        value = hide_env(name, given_value)
        option = ["--set", f"{name}={value}"]
        if name.startswith("--"):
            option = [name] if is_switch(name) else [name, value]
        argv += option
    if trainer:
        argv += ["--set", f"run={json.dumps(trainer, ensure_ascii=False)}"]
    if output not in (DEFAULT_OUTPUT, Path("-")):
        argv += ["-o", path_from_here(output)]
    return shlex.join(argv)
