"""verl: Hydra overrides of `trainer`, `actor_rollout_ref` and so on.

Sources: verl 0.9.1, verl/trainer/ppo/v1/trainer_base.py (resource pools), verl/workers/rollout/replica.py
(an engine's GPUs) and verl/trainer/config; older keys: its tags v0.1 to v0.7.0.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from slurmray.agent.job_log import counted
from slurmray.presets.command_line import ParsedOption
from slurmray.presets.context import PresetContext
from slurmray.presets.verl_modes import ENGINE, ROLLOUT, Mode, ask, check_numbers, find_mode, is_on

NODES, GPUS = "trainer.nnodes", "trainer.n_gpus_per_node"

# Pools of other models than the trainer's -> the key that enables it. Their default is 8 GPUs on each node.
_POOLS = {
    "reward.reward_model": "reward.reward_model.enable_resource_pool",
    "reward_model": "reward_model.enable_resource_pool",
    "distillation": "distillation.enabled",
}

# Removed keys, the release that removed them, and what to do instead.
_REMOVED = (
    ("actor_rollout_ref.actor.fsdp_config.grad_offload", (0, 3), "leave it out"),
    ("critic.model.fsdp_config.grad_offload", (0, 3), "leave it out"),
    ("critic.model.fsdp_config.", (0, 8), "write critic.fsdp.{rest}"),
)
# Keys that needed a + before that release. Since then Hydra refuses it.
_PLUS_REFUSED = (
    "the trainer's configuration already has this key, and Hydra adds only new ones: leave the + out"
)
_ADDED = {"trainer.val_before_train": (0, 4), "trainer.val_only": (0, 4, 1)}


class _Pool(NamedTuple):
    """A resource pool: nodes, and GPUs on each. None: only known when the job runs, or wrong."""

    name: str
    nodes: int | None
    gpus: int | None


def advise(context: PresetContext) -> None:
    """Fill in the number of nodes and GPUs, and check them."""
    mode = find_mode(context)
    check_numbers(context, mode)
    pools = _read_pools(context, mode)
    if pools:
        _check_pools(context, pools)
    else:
        fill_single_pool(context)
    check_engine(context, next((pool for pool in pools if pool.name.endswith("rollout")), None))
    _check_keys(context)
    _ask(context, mode, pools)
    if context.command.override("trainer.resume_mode") is None:
        context.resume.append("trainer.resume_mode=auto")


def fill_single_pool(context: PresetContext, nodes_key: str = NODES, gpus_key: str = GPUS) -> None:
    """Set the trainer's nodes and GPUs to those of the job, or check them if the user has set them."""
    available = {nodes_key: (context.nodes, "NNODES"), gpus_key: (context.gpus, "GPUS_PER_NODE")}
    options = {key: context.command.override(key) for key in available}
    numbers = {key: context.override_count(key) for key in options}
    nodes, gpus = (available[key][0] if number is None else number for key, number in numbers.items())
    text = f"{counted(nodes, 'node')} x {gpus} = {nodes * gpus} GPUs, {context.allocation}"
    for key, option in options.items():
        expected, variable = available[key]
        if option is None:
            context.add_argument(key, expected, variable)
        elif option.prefix == "+":
            context.add_problem(option, f"+{key}: {_PLUS_REFUSED}")
        elif (number := numbers[key]) is not None and number != expected:
            other_fix = context.nodes_fix(number) if key == nodes_key else context.gpus_fix(number)
            fix = f"leave {key} out, then it is {expected}, or {other_fix}"
            context.add_problem(option, f"{key}={number}: {text}: {fix}")


def check_engine(context: PresetContext, pool: _Pool | None = None) -> None:
    """Check that the size of an inference engine divides its pool, and fits the nodes.

    pool: None is the whole job.
    """
    options = {name: option for name in ENGINE if (option := context.command.override(f"{ROLLOUT}.{name}"))}
    numbers = {name: context.override_count(f"{ROLLOUT}.{name}") for name in options}
    zero = [name for name, number in numbers.items() if number == 0]
    for name in zero:
        context.add_problem(options[name], f"rollout.{name}=0: expected 1 or more")
    if zero or ENGINE[0] not in options or None in numbers.values():
        return
    option = options[ENGINE[0]]
    size = math.prod(number or 1 for number in numbers.values())
    name = "rollout." + " x ".join(f"{part}={number}" for part, number in numbers.items())
    nodes, gpus = (pool.nodes, pool.gpus) if pool else (context.nodes, context.gpus)
    if not nodes or not gpus:
        return
    note = "" if pool else context.services_text
    if nodes * gpus % size:
        total = f"{counted(nodes, 'node')} x {gpus} = {nodes * gpus} GPUs{note}"
        context.add_problem(
            option, f"{name}: engines of {size} do not divide {total}: choose a divisor of {gpus}"
        )
    elif gpus % size and size % gpus:
        text = f"an engine of {size} would lie across nodes of {gpus} GPUs{note}"
        context.add_problem(option, f"{name}: {text}: choose a divisor of {gpus}")


def _read_pools(context: PresetContext, mode: Mode) -> list[_Pool]:
    """Return the enabled pools other than the trainer's own."""
    pools = [
        _Pool(
            name,
            context.override_count(f"{name}.nnodes", 0),
            context.override_count(f"{name}.n_gpus_per_node", 8),
        )
        for name, switch in _POOLS.items()
        if is_on(context, switch)
    ]
    if not mode.rollout:
        if mode.name and (option := context.command.override(f"{ROLLOUT}.nnodes")) and option.number:
            context.remarks.append(
                f"{ROLLOUT}.nnodes has no effect: only trainer.v1.trainer_mode=separate_async has such a pool"
            )
        return pools
    option = context.command.override(GPUS)
    default = option.number if option and mode.rollout == ROLLOUT else mode.gpus
    nodes = context.override_count(f"{mode.rollout}.nnodes", mode.rollout_nodes)
    own = _Pool(mode.rollout, nodes, context.override_count(f"{mode.rollout}.n_gpus_per_node", default))
    return [own, *pools] if nodes != 0 else pools


def _ask(context: PresetContext, mode: Mode, pools: list[_Pool]) -> None:
    """Note what the trainer asks of Ray, if all numbers are known."""
    numbers = [
        (pool.name, pool.nodes, pool.gpus)
        for pool in pools
        if pool.nodes is not None and pool.gpus is not None
    ]
    nodes, gpus = context.override_count(NODES, context.nodes), context.override_count(GPUS, context.gpus)
    if context.command.is_parsed and nodes is not None and gpus is not None and len(numbers) == len(pools):
        ask(context, mode, (nodes, gpus), numbers)


def _check_pools(context: PresetContext, pools: list[_Pool]) -> None:
    """Check that all pools fit. Nothing is filled in: only the user knows how to divide the nodes."""
    missing = [key for key in (NODES, GPUS) if context.command.override(key) is None]
    if missing:
        fix = f"set {' and '.join(missing)} to what the trainer uses"
        context.add_problem(None, f"{pools[0].name} has its own GPUs: {fix}")
        return
    trainer = _Pool("trainer", context.override_count(NODES), context.override_count(GPUS))
    parts = [
        (name, nodes, gpus)
        for name, nodes, gpus in (trainer, *pools)
        if nodes is not None and gpus is not None
    ]
    if len(parts) == 1 + len(pools):
        _check_pool_sizes(context, parts)


def _check_pool_sizes(context: PresetContext, parts: list[tuple[str, int, int]]) -> None:
    """Check that each pool has GPUs and fits the nodes, and that all of them fit into the job."""
    text = " + ".join(f"{name} {nodes} x {gpus}" for name, nodes, gpus in parts)
    total = sum(nodes * gpus for _, nodes, gpus in parts)
    empty = [
        f"{name}.{'n_gpus_per_node' if nodes else 'nnodes'}"
        for name, nodes, gpus in parts
        if not nodes * gpus
    ]
    too_wide = [f"{name}.n_gpus_per_node" for name, _, gpus in parts if gpus > context.gpus]
    if empty:
        option = context.command.override(empty[0])
        context.add_problem(option, f"{text}: a pool without GPUs: set {empty[0]} to 1 or more")
    elif too_wide:
        cause = f"a node of the job has {context.gpus} GPUs{context.services_text}"
        fix = f"set {too_wide[0]} to {context.gpus} or less"
        context.add_problem(context.command.override(too_wide[0]), f"{text}: {cause}: {fix}")
    else:
        context.check_total(text, total, context.command.override(NODES), "make a pool smaller")


def _check_keys(context: PresetContext) -> None:
    """Check for keys that the version of the job spec does not have; without a version, check nothing."""
    for index, argument in enumerate(context.command.argv):
        name = argument.lstrip("+~").partition("=")[0]
        for key, release, instead in _REMOVED:
            if name.startswith(key) and context.preset.since(*release):
                fix = instead.format(rest=name.removeprefix(key))
                text = f"{name}: verl {context.preset.version} has no such key: {fix}"
                context.add_problem(ParsedOption(index, None), text)
                break
        if re.search(r"(?:^|\.)ray_init\.num_[cg]pus$", name) and not argument.endswith(("=null", "=None")):
            fix = "leave it out, Ray has what the job requests"
            context.add_problem(
                ParsedOption(index, None), f"{name}: refused by a Ray that runs already: {fix}"
            )
        if argument.startswith(f"+{name}=") and name in _ADDED and context.preset.since(*_ADDED[name]):
            context.add_problem(ParsedOption(index, None), f"+{name}: {_PLUS_REFUSED}")
