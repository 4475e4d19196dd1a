"""The tasks of a sweep: each combination of the parameters' values is a task of the job's array."""

import itertools
import re

from . import paths
from .job_errors import JobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Match, Sequence


def combinations(sweep: "Mapping[str, Sequence[str]]") -> "List[Dict[str, str]]":
    """The values of each task, in the order of SLURM_ARRAY_TASK_ID. The last parameter varies fastest."""
    return [dict(zip(sweep, values)) for values in itertools.product(*sweep.values())]


def describe(values: "Mapping[str, str]") -> str:
    """`lr=1e-6 batch=32`."""
    return " ".join("%s=%s" % item for item in values.items())


def choose(sweep: "Mapping[str, Sequence[str]]", name: str) -> "Dict[str, str]":
    """The values of a task. name: ARRAY_TASK. JobError for a job that is no task of the sweep."""
    rows = combinations(sweep)
    _, is_task, task = name.partition("_")
    if not is_task or int(task) >= len(rows):
        message = (
            "%s is no task of the sweep, which has %d: submit the script with --array=0-%d or a part of it"
        )
        raise JobError("config", message % (name, len(rows), len(rows) - 1))
    return rows[int(task)]


def fill_in(command: "List[str]", values: "Mapping[str, str]") -> "List[str]":
    """Replace $NAME and ${NAME} of parameters in the arguments of a command; but a shell does that itself."""
    if re.match(r"(?:\S*/)?(?:ba|da|z)?sh -[a-z]*c$", " ".join(command[:2])):
        return command

    def value(match: "Match[str]") -> str:
        return values.get(match.group(1) or match.group(2), match.group())

    return [re.sub(paths.VARIABLE, value, argument) for argument in command]
