"""The tasks of a sweep: each combination of the parameters' values is a task of the job's array."""

import re

from . import paths
from .job_errors import JobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Match, Sequence


def count(sweep: "Mapping[str, Sequence[str]]") -> int:
    """The number of combinations; 0 without a sweep."""
    number = int(bool(sweep))
    for values in sweep.values():
        number *= len(values)
    return number


def combination(sweep: "Mapping[str, Sequence[str]]", task: int) -> "Dict[str, str]":
    """The values of a task. task: SLURM_ARRAY_TASK_ID; the last parameter varies fastest. {}: it has none."""
    values, rest = {}, task
    for name in reversed(list(sweep)):
        rest, place = divmod(rest, len(sweep[name]))
        values[name] = sweep[name][place]
    return {} if rest else {name: values[name] for name in sweep}


def describe(values: "Mapping[str, str]") -> str:
    """`lr=1e-6 batch=32`."""
    return " ".join("%s=%s" % item for item in values.items())


def choose(sweep: "Mapping[str, Sequence[str]]", name: str) -> "Dict[str, str]":
    """The values of a task. name: ARRAY_TASK. JobError for a job that is no task of the sweep."""
    _, is_task, task = name.partition("_")
    values = combination(sweep, int(task)) if is_task else {}
    if not values:
        message = (
            "%s is no task of the sweep, which has %d: submit the script with --array=0-%d or a part of it"
        )
        raise JobError("config", message % (name, count(sweep), count(sweep) - 1))
    return values


def fill_in(command: "List[str]", values: "Mapping[str, str]") -> "List[str]":
    """Replace $NAME and ${NAME} of parameters in the arguments of a command; but a shell does that itself."""
    if re.match(r"(?:\S*/)?(?:ba|da|z)?sh -[a-z]*c$", " ".join(command[:2])):
        return command

    def value(match: "Match[str]") -> str:
        return values.get(match.group(1) or match.group(2), match.group())

    return [re.sub(paths.VARIABLE, value, argument) for argument in command]
