"""The `#SBATCH` lines of a job."""

from __future__ import annotations

from collections.abc import Iterable

from slurmray.agent.combinations import count
from slurmray.slurm import syntax
from slurmray.spec.job_spec import JobSpec

ONE_TASK = syntax.directive("ntasks-per-node", "1")


def make_directives(spec: JobSpec) -> list[str]:
    """Return the `#SBATCH` lines, quoted for sbatch."""
    first, *others = spec.slurm.components
    options = [*spec.slurm.given()]
    if spec.sweep:
        limit = dict(options).get("array") or ""
        options = [option for option in options if option[0] != "array"]
        options.append(("array", f"0-{count(spec.sweep) - 1}{limit}"))
    given = dict(options)
    if "dependency" in given and "kill-on-invalid-dep" not in given:  # else the job waits for ever
        options.append(("kill-on-invalid-dep", "yes"))
    if others:
        options = [option for option in options if option[0] in syntax.OF_WHOLE_JOB] + [*first.given()]
    lines = [
        syntax.directive("job-name", spec.name),
        *_component(options, first.nodes + spec.spares_of(first)),
    ]
    lines += make_section_lines(spec.stop.lead, spec.outlives_nodes, spec.requeue.is_possible)
    for group in others:
        lines += [syntax.NEXT_COMPONENT, *_component(group.given(), group.nodes + spec.spares_of(group))]
    return lines


def make_section_lines(lead: object, goes_on: bool, is_requeued: bool) -> list[str]:
    """Return the lines that follow from the sections `stop` and `requeue`. lead: seconds.

    goes_on: whether the job outlives its nodes.
    """
    # B: only to the batch script. Not TERM, which Slurm sends when it cancels a job; nor one with which
    # somebody may ask the trainer for something: see WARNING of agent/signals.py.
    lines = [syntax.directive("signal", f"B:URG@{lead}")] if lead else []
    if goes_on:
        lines.append(syntax.directive("no-kill", None))
    if is_requeued:
        return [*lines, syntax.directive("requeue", None), syntax.directive("open-mode", "append")]
    return [*lines, syntax.directive("no-requeue", None)]


def _component(options: Iterable[tuple[str, str | None]], nodes: int) -> list[str]:
    """The lines of one component of the job. Its tasks are the node agents, one on each node."""
    lines = [syntax.directive(name, str(nodes) if name == "nodes" else value) for name, value in options]
    return [*lines, ONE_TASK]
