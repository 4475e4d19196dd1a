"""The events of a job: what each line of `events.jsonl` in the run directory has, for programs."""

from __future__ import annotations

import re
from typing import Any, TypeAlias, TypeGuard

from slurmray.agent.inherited import LOGIN_SESSION
from slurmray.agent.node.runtimes import RUNTIMES

_TEXT: dict[str, Any] = {"type": "string", "maxLength": 65536}
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
_COUNT: dict[str, Any] = {**_NUMBER, "minimum": 0}
_COUNTS: dict[str, Any] = {"type": "array", "items": _COUNT, "maxItems": 65536}
_FIGURE: dict[str, Any] = {"type": "number", "minimum": -1, "maximum": 2**63}
_FIGURES: dict[str, Any] = {"type": "array", "items": _FIGURE, "maxItems": 65536}
_NAME: dict[str, Any] = {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}$"}  # of a host
_NAMES: dict[str, Any] = {"type": "array", "items": _NAME, "maxItems": 65536}
_NODES: dict[str, Any] = {**_NAMES, "minItems": 1}
# Of each event; until the year 6325.
TIME: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 2**37}

Event: TypeAlias = tuple[str, dict[str, tuple[dict[str, Any], str]]]  # meaning, field -> (JSON type, meaning)


def _event(meaning: str, **fields: tuple[dict[str, Any], str]) -> Event:
    return meaning, fields


# Their log lines are in agent/job_log.py, as each script carries that file, but not the meanings.
EVENTS: dict[str, Event] = {
    "start": _event(
        "The batch script has begun.",
        job=(_NAME, "Slurm's job id; ARRAY_TASK for a task of an array"),
        attempt=(_COUNT, "how often Slurm has restarted the job"),
        nodes=(_NODES, "names of all nodes but the spare ones, the head node first"),
        spares=(_NAMES, "names of the spare nodes"),
        spares_of_components=(_COUNTS, "how many of `spares` each component has, in this order"),
        nodes_text=(_TEXT, "the number of `nodes`, for people"),
        components=(
            _COUNTS,
            "how many of `nodes` each component of a heterogeneous job has, in order; else one number",
        ),
        ray_nodes=(_COUNT, "how many of `nodes`, from the first one on, are to be in Ray"),
        head=(_NAME, "name of the head node"),
        run_dir=(_TEXT, "run directory of this attempt, absolute"),
    ),
    "attempt": _event(
        "The job was restarted.",
        attempt=(_NUMBER, "how often"),
        chances=(_NUMBER, "requeues that are left, after lost nodes or preemption"),
    ),
    "grace": _event(
        "`stop.grace` is longer than the cluster's KillWait allows.",
        seconds=(_NUMBER, "the grace period in force"),
        kill_wait=(_NUMBER, "KillWait, seconds"),
    ),
    "phase": _event(
        "Progress.",
        phase=(
            _TEXT,
            "preflight, leftovers, image, container, ray, probe, burn-in, prepare, services or end",
        ),
        text=(_TEXT, "one line"),
    ),
    "nodes": _event(
        "Nodes are done with a step of their bring-up. Those of many nodes are recorded up to a second late.",
        step=(
            _TEXT,
            "agent: their agent runs; checks: preflight checks outside the container are done; "
            "image: the container starts; container: Ray starts in it (on the head node: has started); "
            "ray: they are in Ray with all their GPUs",
        ),
        nodes=(_NAMES, "their names"),
        gpus=(_COUNT, "for the step ray the GPUs of each of them in Ray; else 0"),
    ),
    "burn_in": _event(
        "The GPUs of a node were measured, see `checks.burn_in`.",
        node=(_NAME, "the node"),
        kind=(_TEXT, "name of its GPUs, or `CPU`"),
        products=(_FIGURES, "TFLOP/s of each GPU; -1: could not be measured"),
        copies=(_FIGURES, "bandwidth of each GPU's memory, GB/s; -1: could not be measured"),
        within=(_FIGURE, "bandwidth of an all-reduce within the node, GB/s; 0: it has one GPU"),
        pairs=(_FIGURE, "likewise with another node, the better one of two; 0: there is none"),
        all=(_FIGURE, "likewise over all of more than two nodes; 0: there are none"),
    ),
    "dashboard": _event(
        "A process of the job listens on the port of Ray's dashboard.",
        node=(_NAME, "the head node"),
        address=(_TEXT, "where it listens there"),
        port=({"type": "integer", "minimum": 1, "maximum": 65535}, "its port"),
    ),
    "attach": _event(
        "The cluster is ready, and commands can be run in its containers from outside.",
        runtime=({"enum": [*RUNTIMES]}, "what runs the containers"),
        folder=(
            {"type": "string", "pattern": r"^/[A-Za-z0-9_./-]{0,255}$"},
            "the job's folder on the nodes; its program `attach` sets Ray's environment and RAY_ADDRESS",
        ),
        unset=(
            {"type": "array", "items": {"enum": [*LOGIN_SESSION]}, "maxItems": 2},
            "variables of the login session that are not valid on the nodes",
        ),
        command=(_TEXT, "an example, as a shell command"),
    ),
    "finding": _event(
        "A preflight check has found something on a node.",
        node=(_NAME, "its name"),
        kind=(_TEXT, "config, preflight or image, which end the job; or warn"),
        check=(_TEXT, "what was checked"),
        found=(_TEXT, "what is there"),
        wanted=(_TEXT, "what should be there"),
        fix=(_TEXT, "what to do about it"),
    ),
    "trainer": _event("The trainer starts.", command=(_TEXT, "its first 200 characters")),
    "node_loss": _event(
        "A node is lost, and the job continues without it; or the head node is, and this is the last event.",
        node=(_NAME, "its name"),
        text=(_TEXT, "why"),
    ),
    "replacement": _event(
        "A spare node joins Ray in place of a lost one, while the trainer runs.",
        node=(_NAME, "its name"),
        lost=(_NAME, "the lost node"),
    ),
    "set_aside": _event(
        "A spare node failed; the job goes on without it.", node=(_NAME, "its name"), text=(_TEXT, "why")
    ),
    "stall": _event(
        "The trainer no longer gets anywhere: see `watch.stall` in the job spec.",
        number=(_COUNT, "of this stall, from 1"),
        text=(_TEXT, "how that shows, and where processes are"),
        folder=(_TEXT, "with what the nodes have found out"),
    ),
    "unplaceable": _event(
        "For a minute, a demand of Ray has been pending that no node could hold even if it were empty.",
        text=(_TEXT, "what is asked for, how often, and what the largest node has"),
        fix=(_TEXT, "what to do about it"),
    ),
    "unplaceable_end": _event(
        "Such a demand is no longer pending, or there is a node for it.",
        text=(_TEXT, "that of the event `unplaceable`"),
        fix=(_TEXT, "likewise"),
    ),
    "failure": _event(
        "Nodes have failed with on_node_loss: restart, and the trainer has got stop.signal.",
        nodes=(_NODES, "names of the nodes to blame"),
        text=(_TEXT, "what has happened"),
        seconds=(_NUMBER, "until the trainer gets SIGKILL"),
    ),
    "restart": _event(
        "Ray and trainer start again in the same allocation: a node failed, or the trainer asked for it.",
        restart=(_COUNT, "how often a trainer was started again"),
        nodes=(_NODES, "names of the nodes from now on, the head node first"),
        spares=(_NAMES, "names of the spare nodes that are left"),
        failed=(_NAMES, "nodes to blame; none if the trainer asked for it, or srun failed"),
        text=(_TEXT, "why, and which node takes whose place"),
    ),
    "stop": _event("Slurm ends the job: scancel, preemption, the time limit or a lost node."),
    "stop_now": _event("The grace period ends, by `slurmray cancel --now`."),
    "time_limit": _event(
        "The time limit or preemption is near.",
        signal=(_TEXT, "what the trainer gets"),
        seconds=(_NUMBER, "until it gets SIGKILL"),
    ),
    "requeue": _event(
        "Slurm is asked to start the job again.",
        reason=(_TEXT, "why"),
        attempt=(_NUMBER, "the number of the next attempt"),
        without=(_NAMES, "nodes that Slurm is asked to leave out of it"),
    ),
    "end": _event(
        "The job's end.",
        exit_code=({"type": "integer", "minimum": 0, "maximum": 255}, "of the batch script"),
        source=(_TEXT, "whose exit code it is: trainer, slurmray or slurm"),
        kind=(_TEXT, "for slurmray the kind of error, for example node_lost; else empty"),
        node=(_TEXT, "host list of the nodes to blame; empty where none is"),
        text=(_TEXT, "the last line of the job's log"),
    ),
}


def fits(event: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value is an event with the fields that slurmray uses: a job's programs can write the file.

    A field that a later version adds must be optional here, as jobs of earlier ones do not write it.
    """
    name = event.get("event") if isinstance(event, dict) else None
    if not (isinstance(name, str) and _fits(event.get("time"), TIME)):
        return False
    if name not in EVENTS:  # of a later version
        return True
    fields = EVENTS[name][1].items()
    return all(field in event and _fits(event[field], kind) for field, (kind, _) in fields)


def _fits(value: Any, kind: dict[str, Any]) -> bool:
    """Whether a value fits a JSON Schema, of which this knows the keywords above."""
    if "enum" in kind:
        return isinstance(value, str) and value in kind["enum"]
    if kind["type"] == "array":
        is_list = isinstance(value, list) and kind.get("minItems", 0) <= len(value) <= kind["maxItems"]
        return is_list and all(_fits(item, kind["items"]) for item in value)
    if kind["type"] == "string":
        if not isinstance(value, str) or len(value) > kind.get("maxLength", 256):
            return False
        return re.fullmatch(kind.get("pattern", ".*").strip("^$"), value, re.DOTALL) is not None
    numbers = (int, float) if kind["type"] == "number" else (int,)
    is_number = isinstance(value, numbers) and not isinstance(value, bool)
    return is_number and kind["minimum"] <= value <= kind["maximum"]  # also not for NaN
