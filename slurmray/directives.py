"""The `#SBATCH` lines of a job."""

from __future__ import annotations

from slurmray import slurm
from slurmray.spec import JobSpec


def directives_of(spec: JobSpec) -> list[str]:
    """Return the `#SBATCH` lines, quoted for sbatch."""
    lines = [slurm.directive("job-name", spec.name)]
    lines += [slurm.directive(option, value) for option, value in spec.slurm.given()]
    lines.append(slurm.directive("ntasks-per-node", "1"))  # the node agent
    if spec.stop.lead:
        # B: to the batch script alone. Not TERM, with which Slurm cancels a job.
        lines.append(slurm.directive("signal", f"B:USR1@{spec.stop.lead}"))
    if spec.on_node_loss == "continue":
        lines.append(slurm.directive("no-kill", None))
    if spec.requeue.possible:
        return [*lines, slurm.directive("requeue", None), slurm.directive("open-mode", "append")]
    return [*lines, slurm.directive("no-requeue", None)]
