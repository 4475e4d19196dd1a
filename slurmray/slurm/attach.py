"""The command line that runs a command in the container of a running job's node."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from slurmray.errors import SlurmError, UsageError
from slurmray.slurm.states import Event


def attach_argv(
    events: Iterable[Event], command: Sequence[str], node: str | None, *, is_terminal: bool
) -> list[str]:
    """Return the argv. events: of the running attempt. For the rest see Job.attach_argv, also for errors."""
    found = {event["event"]: event for event in events}
    start, attach = found.get("start"), found.get("attach")
    if not (start and attach):
        raise SlurmError("cluster not ready; see the job's log")
    if "argv" not in attach:
        raise SlurmError(f"rendered by an older version of slurmray: use {attach['command']}")
    head = start["head"]
    node = node or head
    if node not in start["nodes"]:
        raise UsageError(f"--node: no node {node}; its nodes are {', '.join(start['nodes'][:8])}")
    # The rest is the same on all nodes.
    names = {
        head: node,
        _container(start, head): _container(start, node),
        _component(start, head): _component(start, node),
    }
    argv = [names.get(argument, argument) for argument in attach["argv"]]
    if is_terminal:
        argv.insert(1, "--pty")
    if "exec" in argv:  # of Podman and Docker
        argv.insert(argv.index("exec") + 1, "--interactive")
        if is_terminal:
            argv.insert(argv.index("exec") + 1, "--tty")
    return [*argv, *command]


def _container(start: Event, node: str) -> str:
    return f"slurmray-{start['job']}-{start['attempt']}-{node}"


def _component(start: Event, node: str) -> str:
    """srun's option for the component of a heterogeneous job that has a node."""
    rank = start["nodes"].index(node)
    ends = itertools.accumulate(start["components"])
    return f"--het-group={next(number for number, end in enumerate(ends) if rank < end)}"
