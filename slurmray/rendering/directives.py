"""The `#SBATCH` lines of a job."""

from __future__ import annotations

from slurmray.slurm import syntax
from slurmray.spec.job import JobSpec


def directives_of(spec: JobSpec) -> list[str]:
    """Return the `#SBATCH` lines, quoted for sbatch."""
    lines = [syntax.directive("job-name", spec.name)]
    lines += [syntax.directive(option, value) for option, value in spec.slurm.given()]
    lines.append(syntax.directive("ntasks-per-node", "1"))  # the node agent
    if spec.stop.lead:
        # B: only to the batch script. Not TERM, which Slurm sends when it cancels a job.
        lines.append(syntax.directive("signal", f"B:USR1@{spec.stop.lead}"))
    if spec.on_node_loss == "continue":
        lines.append(syntax.directive("no-kill", None))
    if spec.requeue.is_possible:
        return [*lines, syntax.directive("requeue", None), syntax.directive("open-mode", "append")]
    return [*lines, syntax.directive("no-requeue", None)]
