"""verl: Hydra overrides of `trainer`, `actor_rollout_ref` and so on.

Facts from verl 0.9.1: verl/trainer/ppo/v1/trainer_base.py (resource pools), verl/workers/rollout/replica.py
(an engine's GPUs) and verl/trainer/config; older keys from its tags v0.1 to v0.7.0.
"""

from __future__ import annotations

import math

from slurmray.presets.case import Case, counted
from slurmray.presets.words import Said

NODES, GPUS = "trainer.nnodes", "trainer.n_gpus_per_node"
_ROLLOUT = "actor_rollout_ref.rollout"
_ENGINE = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")

# Pools besides the trainer's own, and what switches them on; a pool without a switch is on with its nodes.
_POOLS = {
    _ROLLOUT: None,
    "rollout": None,
    "reward.reward_model": "reward.reward_model.enable_resource_pool",
    "reward_model": "reward_model.enable_resource_pool",
    "distillation": "distillation.enabled",
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


def advise(case: Case) -> None:
    """Fill in the number of nodes and GPUs, and check them."""
    pools = list(_pools(case))
    if pools:
        _several_pools(case, pools)
    else:
        whole_cluster(case)
    engine(case, next((size for name, size in pools if name.endswith("rollout")), None))
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
    numbers = {key: word.number if word else None for key, word in said.items()}
    nodes, gpus = (facts[key][0] if number is None else number for key, number in numbers.items())
    asked = f"{counted(nodes, 'node')} x {gpus} = {nodes * gpus} GPUs, {case.allocation}"
    for key, word in said.items():
        here, variable = facts[key]
        if word is None:
            case.add(key, here, variable)
        elif word.prefix == "+":
            case.refuse(word, f"+{key}: {_KNOWN}")
        elif word.number is not None and word.number != here:
            wanted = f"set slurm.nodes: {word.number}" if key == NODES else case.gpus_remedy(word.number)
            remedy = f"leave {key} out, then it is {here}, or {wanted}"
            case.refuse(word, f"{key}={word.number}: {asked}: {remedy}")


def engine(case: Case, pool: tuple[int, int] | None = None) -> None:
    """An inference engine must divide its pool, and lie within nodes. pool: nodes, and GPUs on each."""
    parts = {name: said for name in _ENGINE if (said := case.words.override(f"{_ROLLOUT}.{name}"))}
    zero = [name for name, factor in parts.items() if factor.number == 0]
    for name in zero:
        case.refuse(parts[name], f"rollout.{name}=0: an engine has at least one: write 1, or more")
    numbers = {name: factor.number for name, factor in parts.items()}
    if zero or _ENGINE[0] not in parts or None in numbers.values():
        return
    said = parts[_ENGINE[0]]
    size = math.prod(number or 1 for number in numbers.values())
    name = "rollout." + " x ".join(f"{part}={number}" for part, number in numbers.items())
    nodes, gpus = pool or (case.nodes, case.gpus)
    taken = "" if pool else case.taken
    if nodes * gpus % size:
        asked = f"{counted(nodes, 'node')} x {gpus} = {nodes * gpus} GPUs{taken}"
        case.refuse(said, f"{name}: engines of {size} do not divide {asked}: choose a divisor of {gpus}")
    elif gpus % size and size % gpus:
        text = f"an engine of {size} would lie across nodes of {gpus} GPUs{taken}: choose a divisor of {gpus}"
        case.refuse(said, f"{name}: {text}")


def _pools(case: Case) -> list[tuple[str, tuple[int, int]]]:
    """Return the pools besides the trainer's own that can be read: name, (nodes, GPUs on each)."""
    found = []
    for name, switch in _POOLS.items():
        on = case.words.override(switch) if switch else None
        nodes = case.words.override(f"{name}.nnodes")
        gpus = case.words.override(f"{name}.n_gpus_per_node")
        if nodes and nodes.number and (not switch or (on and (on.text or "").lower() == "true")):
            found.append((name, (nodes.number, (gpus and gpus.number) or case.gpus)))
    return found


def _several_pools(case: Case, pools: list[tuple[str, tuple[int, int]]]) -> None:
    """Only the user knows how the nodes are divided, so nothing is filled in; together they must fit."""
    own: list[Said | None] = [case.words.override(NODES), case.words.override(GPUS)]
    missing = [key for key, word in zip((NODES, GPUS), own, strict=True) if word is None]
    if missing:
        text = f"{pools[0][0]} has GPUs of its own: say with {' and '.join(missing)} what the trainer has"
        case.refuse(None, text)
        return
    numbers = [word.number for word in own if word]
    if None in numbers:
        return
    parts = [("trainer", (numbers[0] or 0, numbers[1] or 0)), *pools]
    shown = " + ".join(f"{name} {nodes} x {gpus}" for name, (nodes, gpus) in parts)
    asked = sum(nodes * gpus for _, (nodes, gpus) in parts)
    wide = [name for name, (_, gpus) in parts if gpus > case.gpus]
    if wide:
        text = f"{shown}: a node of the job has {case.gpus} GPUs{case.taken}: lower {wide[0]}.n_gpus_per_node"
        case.refuse(case.words.override(f"{wide[0]}.n_gpus_per_node"), text)
    elif asked > case.total:
        remedy = f"make a pool smaller, or set slurm.nodes: {case.nodes_for(asked)}"
        case.refuse(own[0], f"{shown} = {asked} GPUs, {case.allocation}: {remedy}")
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
