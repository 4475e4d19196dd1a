"""The tasks of an array: what Slurm, its accounting and the run directories know of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from slurmray.agent.combinations import count
from slurmray.diagnosis import pending
from slurmray.slurm import slurm_commands, syntax
from slurmray.slurm.run_directories import last_attempts
from slurmray.slurm.states import Event, parse_events, recorded_end
from slurmray.sweeps import MAX_TASKS

if TYPE_CHECKING:
    from slurmray.slurm.submitted_job import Job


class Task(NamedTuple):
    """A task of an array.

    number: SLURM_ARRAY_TASK_ID. job: the task as a job. state: Slurm's name of it; UNKNOWN if nothing knows
    it. reason: why it waits or never started; else "". text: the last line of its log; "" without
    one. parameters: those of the sweep, with their values; {} in another array.
    """

    number: int
    job: Job
    state: str
    reason: str
    text: str
    parameters: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**self._asdict(), "job": self.job.name}


def list_tasks(job: Job, runs: Path, make_job: Callable[[int], Job], *, has_all: bool) -> list[Task]:
    """Return the tasks of an array, by their numbers.

    runs: the folder of their run directories. make_job: returns a task as a job. has_all: whether the array
    has all tasks of the sweep.
    """
    queued = _queue(job)
    events = _read_events(job, runs)
    names = {f"{job.id}_{number}" for number in range(count(job.sweep))} if has_all else set[str]()
    accounted = _account(job) if not queued or names - queued.keys() else {}
    numbers = sorted(map(_number_of, {*names, *queued, *events, *accounted}))
    tasks = []
    for number in numbers:
        name = f"{job.id}_{number}"
        known, end = queued.get(name), recorded_end(events.get(name, []))
        state = known.state if known else accounted.get(name, end.state if end else "UNKNOWN")
        reason = pending.explain(known.state, known.reason, known.dependency) if known else ""
        last = next(
            (event["text"] for event in reversed(events.get(name, [])) if event["event"] == "end"), ""
        )
        task = make_job(number)
        tasks.append(Task(number, task, state, reason, last, task.parameters))
    return tasks


def _queue(job: Job) -> dict[str, slurm_commands.Queued]:
    """The tasks that Slurm knows."""
    queued: dict[str, slurm_commands.Queued] = {}
    for names, known in slurm_commands.squeue_tasks(job.id, job.host, job.cluster).items():
        with suppress(ValueError):
            queued |= dict.fromkeys(expand_tasks(job.id, names), known)
    return queued


def expand_tasks(number: int, names: str) -> list[str]:
    """Return the tasks of an array that a name of squeue has: those that never started may be `1234_[3-5%2]`.

    number: the array's id. ValueError if squeue has cut the name off.
    """
    listed = syntax.expand_host_list(re.sub("%[0-9]+]", "]", names), MAX_TASKS)
    return [name for name in listed if re.fullmatch(f"{number}_[0-9]{{1,7}}", name)]


def _number_of(name: str) -> int:
    return int(name.partition("_")[2])


def _read_events(job: Job, runs: Path) -> dict[str, list[Event]]:
    """The events of the last attempt of each task that has a run directory."""
    own = re.compile(f"{job.id}_[0-9]{{1,7}}")
    attempts = {name: last for name, last in last_attempts(runs, job.host).items() if own.fullmatch(name)}
    paths = {name: runs / f"{name}-{last}" / "events.jsonl" for name, last in attempts.items()}
    texts = job.host.read_all([*paths.values()])
    return {name: parse_events(texts.get(path, b"").decode(errors="replace")) for name, path in paths.items()}


def _account(job: Job) -> dict[str, str]:
    """The states of the tasks that have ended, from the accounting."""
    option = slurm_commands.cluster_option(job.cluster)
    output = slurm_commands.sacct("JobID,State", *option, f"--jobs={job.id}", host=job.host)
    return dict(re.findall(rf"^({job.id}_[0-9]{{1,7}})\|([A-Z_]+)", output, re.MULTILINE))
