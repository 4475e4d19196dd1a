"""verl: Hydra overrides of `trainer`, `actor_rollout_ref` and so on.

Facts from verl 0.9.1: verl/trainer/ppo/v1/trainer_base.py (resource pools), verl/workers/rollout/replica.py
(an engine's GPUs) and verl/trainer/config; older keys from its tags v0.1 to v0.7.0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from slurmray.presets.command_line import Said
from slurmray.presets.context import Case, counted

NODES, GPUS = "trainer.nnodes", "trainer.n_gpus_per_node"
_ROLLOUT = "actor_rollout_ref.rollout"
_ENGINE = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")

# Pools besides the trainer's own: what switches them on (a pool without a switch is on with its nodes), and
# verl's default for the GPUs of a node (None: as many as the trainer has).
_POOLS: dict[str, tuple[str | None, int | None]] = {
    _ROLLOUT: (None, None),
    "rollout": (None, 8),
    "reward.reward_model": ("reward.reward_model.enable_resource_pool", 8),
    "reward_model": ("reward_model.enable_resource_pool", 8),
    "distillation": ("distillation.enabled", 8),
}

# Keys that are gone, from which release on, and what to write instead.
_GONE = (
    ("actor_rollout_ref.actor.fsdp_config.grad_offload", (0, 3), "leave it out"),
    ("critic.model.fsdp_config.grad_offload", (0, 3), "leave it out"),
    ("critic.model.fsdp_config.", (0, 8), "write critic.fsdp.{rest}"),
)
# Keys that had to be added with + before that release, and what Hydra says to that now.
_KNOWN = "verl's configuration has this key, and Hydra adds none twice: leave the + out"
_NEW = {"trainer.val_before_train": (0, 4), "trainer.val_only": (0, 4, 1)}


class _Pool(NamedTuple):
    """Nodes, and GPUs on each. None: only known when the job runs, or refused."""

    name: str
    nodes: int | None
    gpus: int | None


def advise(case: Case) -> None:
    """Fill in the number of nodes and GPUs, and check them."""
    pools = _pools(case)
    if pools:
        _several_pools(case, pools)
    else:
        whole_cluster(case)
    engine(case, next((pool for pool in pools if pool.name.endswith("rollout")), None))
    _changed_keys(case)
    if case.words.override("trainer.resume_mode") is None:
        case.resume.append("trainer.resume_mode=auto")


def whole_cluster(case: Case) -> None:
    """The trainer takes the job's nodes with all of their GPUs: say so, or check what is said."""
    said = {NODES: case.words.override(NODES), GPUS: case.words.override(GPUS)}
    facts = {
        NODES: (case.nodes, "NNODES"),
        GPUS: (case.gpus, "GPUS_PER_NODE"),
    }
    numbers = {key: _number(case, key) for key in said}
    nodes, gpus = (facts[key][0] if number is None else number for key, number in numbers.items())
    asked = f"{counted(nodes, 'node')} x {gpus} = {nodes * gpus} GPUs, {case.allocation}"
    for key, word in said.items():
        here, variable = facts[key]
        if word is None:
            case.add(key, here, variable)
        elif word.prefix == "+":
            case.refuse(word, f"+{key}: {_KNOWN}")
        elif (number := numbers[key]) is not None and number != here:
            wanted = f"set slurm.nodes: {number}" if key == NODES else case.gpus_remedy(number)
            remedy = f"leave {key} out, then it is {here}, or {wanted}"
            case.refuse(word, f"{key}={number}: {asked}: {remedy}")


def engine(case: Case, pool: _Pool | None = None) -> None:
    """An inference engine must divide its pool, and lie within nodes. pool: not set, the whole job."""
    parts = {name: said for name in _ENGINE if (said := case.words.override(f"{_ROLLOUT}.{name}"))}
    numbers = {name: _number(case, f"{_ROLLOUT}.{name}") for name in parts}
    zero = [name for name, number in numbers.items() if number == 0]
    for name in zero:
        case.refuse(parts[name], f"rollout.{name}=0: an engine has at least one: write 1, or more")
    if zero or _ENGINE[0] not in parts or None in numbers.values():
        return
    said = parts[_ENGINE[0]]
    size = math.prod(number or 1 for number in numbers.values())
    name = "rollout." + " x ".join(f"{part}={number}" for part, number in numbers.items())
    nodes, gpus = (pool.nodes, pool.gpus) if pool else (case.nodes, case.gpus)
    if not nodes or not gpus:
        return
    taken = "" if pool else case.taken
    if nodes * gpus % size:
        asked = f"{counted(nodes, 'node')} x {gpus} = {nodes * gpus} GPUs{taken}"
        case.refuse(said, f"{name}: engines of {size} do not divide {asked}: choose a divisor of {gpus}")
    elif gpus % size and size % gpus:
        text = f"an engine of {size} would lie across nodes of {gpus} GPUs{taken}: choose a divisor of {gpus}"
        case.refuse(said, f"{name}: {text}")


def _pools(case: Case) -> list[_Pool]:
    """Return the pools besides the trainer's own."""
    said = case.words.override(GPUS)
    trainers = said.number if said else case.gpus
    found = []
    for name, (switch, default) in _POOLS.items():
        on = case.words.override(switch or f"{name}.nnodes")
        if on is None or (switch and (on.text or "").lower() != "true"):
            continue
        nodes = _number(case, f"{name}.nnodes", 0)
        gpus = _number(case, f"{name}.n_gpus_per_node", default or trainers)
        if switch or nodes != 0:
            found.append(_Pool(name, nodes, gpus))
    return found


def _number(case: Case, key: str, default: int | None = None) -> int | None:
    """Return the number that is said; None if it is only known when the job runs, or was refused."""
    said = case.words.override(key)
    return case.number(said, key, said.text) if said else default


def _several_pools(case: Case, pools: list[_Pool]) -> None:
    """Only the user knows how the nodes are divided, so nothing is filled in; together they must fit."""
    missing = [key for key in (NODES, GPUS) if case.words.override(key) is None]
    if missing:
        text = f"{pools[0].name} has GPUs of its own: say with {' and '.join(missing)} what the trainer has"
        case.refuse(None, text)
        return
    trainer = _Pool("trainer", _number(case, NODES), _number(case, GPUS))
    parts = [
        (name, nodes, gpus)
        for name, nodes, gpus in (trainer, *pools)
        if nodes is not None and gpus is not None
    ]
    if len(parts) == 1 + len(pools):
        _side_by_side(case, parts)


def _side_by_side(case: Case, parts: list[tuple[str, int, int]]) -> None:
    """Each pool has GPUs, no more of a node than there are, and all of them fit into the job."""
    shown = " + ".join(f"{name} {nodes} x {gpus}" for name, nodes, gpus in parts)
    asked = sum(nodes * gpus for _, nodes, gpus in parts)
    empty = [
        f"{name}.{'n_gpus_per_node' if nodes else 'nnodes'}"
        for name, nodes, gpus in parts
        if not nodes * gpus
    ]
    wide = [f"{name}.n_gpus_per_node" for name, _, gpus in parts if gpus > case.gpus]
    if empty:
        case.refuse(case.words.override(empty[0]), f"{shown}: a pool without GPUs: set {empty[0]}, 1 or more")
    elif wide:
        text = f"{shown}: a node of the job has {case.gpus} GPUs{case.taken}"
        remedy = f"set {wide[0]}, {case.gpus} or less"
        case.refuse(case.words.override(wide[0]), f"{text}: {remedy}")
    elif asked > case.total:
        remedy = f"make a pool smaller, or set slurm.nodes: {case.nodes_for(asked)}"
        case.refuse(case.words.override(NODES), f"{shown} = {asked} GPUs, {case.allocation}: {remedy}")
    elif asked < case.total:
        case.notes.append(f"{shown} = {asked} GPUs, {case.allocation}: {case.total - asked} stay idle")


def _changed_keys(case: Case) -> None:
    """Only with a version: without one, the keys are taken for those of the version that is used."""
    for at, word in enumerate(case.words.words):
        name = word.lstrip("+~").partition("=")[0]
        for key, release, instead in _GONE:
            if name.startswith(key) and case.preset.since(*release):
                remedy = instead.format(rest=name.removeprefix(key))
                case.refuse(Said(at, None), f"{name}: verl {case.preset.version} has no such key: {remedy}")
                break
        if word.startswith(f"+{name}=") and name in _NEW and case.preset.since(*_NEW[name]):
            case.refuse(Said(at, None), f"+{name}: {_KNOWN}")
