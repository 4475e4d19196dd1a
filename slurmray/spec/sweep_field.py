"""The field `sweep` of the job spec: what is wrong with it, also beside other fields."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from slurmray.spec.slurm_section import SlurmOptions
from slurmray.spec.types import find_duplicates, shown
from slurmray.sweeps import MAX_TASKS, MAX_VALUE


def check_values(sweep: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what is wrong with the values of a sweep."""
    for name, values in sweep.items():
        if not values:
            yield f"{name} is empty; give it values, or leave it out"
        for text in find_duplicates(values):
            yield f"{name}: {shown(text)} is there twice; leave it out"
        for text in (text for text in values if len(text) > MAX_VALUE):
            yield f"{name}: {shown(text)} has more than {MAX_VALUE} characters; write it to a file"
    count = math.prod(map(len, sweep.values()))
    if count > MAX_TASKS:
        yield f"has {count} combinations; a sweep has at most {MAX_TASKS}"


def check_slurm(slurm: SlurmOptions, *, has_sweep: bool) -> Iterator[str]:
    """Yield what a job with or without a sweep must not have in `slurm`."""
    if not has_sweep:
        if slurm.array and slurm.array.startswith("%"):
            yield f"not set, and slurm.array, {slurm.array}, has no indexes; write e.g. 0-19{slurm.array}"
        return
    if slurm.groups:
        yield "Slurm has no arrays of jobs with groups; leave sweep or slurm.groups out"
    if slurm.array and not slurm.array.startswith("%"):
        yield f"sets the indexes of slurm.array, {slurm.array}; leave it out, or set a limit such as %4"
    for name, value in (("output", slurm.output), ("error", slurm.error)):
        if value and not re.search("%[0-9]*[ajJ]", value):
            yield f"slurm.{name}: all tasks would write to {value}; add %A_%a to its name"
