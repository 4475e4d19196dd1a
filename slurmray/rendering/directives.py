"""The `#SBATCH` lines of a job."""

from __future__ import annotations

from collections.abc import Iterable

from slurmray.slurm import syntax
from slurmray.spec.job import JobSpec


def directives_of(spec: JobSpec) -> list[str]:
    """Return the `#SBATCH` lines, quoted for sbatch."""
    groups = spec.slurm.groups
    options = [*spec.slurm.given()]
    if groups:
        options = [each for each in options if each[0] in syntax.OF_WHOLE_JOB] + [*groups[0].given()]
    lines = [syntax.directive("job-name", spec.name), *_component(options)]
    if spec.stop.lead:
        # B: only to the batch script. Not TERM, which Slurm sends when it cancels a job; nor one with which
        # somebody may ask the trainer for something: see WARNING of agent/signals.py.
        lines.append(syntax.directive("signal", f"B:URG@{spec.stop.lead}"))
    if spec.on_node_loss == "continue":
        lines.append(syntax.directive("no-kill", None))
    if spec.requeue.is_possible:
        lines += [syntax.directive("requeue", None), syntax.directive("open-mode", "append")]
    else:
        lines.append(syntax.directive("no-requeue", None))
    for group in groups[1:]:
        lines += [syntax.NEXT_COMPONENT, *_component(group.given())]
    return lines


def _component(options: Iterable[tuple[str, str | None]]) -> list[str]:
    """The lines of one component of the job. Its tasks are the node agents, one on each node."""
    return [syntax.directive(*option) for option in (*options, ("ntasks-per-node", "1"))]
