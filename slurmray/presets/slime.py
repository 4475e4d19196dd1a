"""slime: flags for the GPUs of training and of rollouts, which share them with --colocate.

Sources: slime 0.3.1, slime/utils/arguments.py (flags, defaults), slime/ray/placement_group.py and rollout.py.
"""

from __future__ import annotations

from slurmray.agent.job_log import counted
from slurmray.presets.command_line import ParsedOption
from slurmray.presets.context import PresetContext

_NODES, _GPUS = "--actor-num-nodes", "--actor-num-gpus-per-node"
_ROLLOUT, _ENGINE, _ROLLOUT_NODE = (
    "--rollout-num-gpus",
    "--rollout-num-gpus-per-engine",
    "--num-gpus-per-node",
)
_DEFAULTS = {_NODES: 1, _GPUS: 8, _ROLLOUT: 0, _ENGINE: 1, _ROLLOUT_NODE: 8}
# With these, other processes have the GPUs than the ones that are counted here.
_OTHER_PLACEMENT = (
    "--debug-train-only",
    "--debug-rollout-only",
    "--rollout-external-engine-addrs",
    "--release-train",
)


def advise(context: PresetContext) -> None:
    """Fill in the number of nodes and GPUs if training and rollouts share them, and check them."""
    command = context.command
    # The flags are in the script, or in a text that is not parsed.
    if not command.is_parsed or any(command.flag(name) for name in _OTHER_PLACEMENT):
        return
    shares = command.flag("--colocate") is not None
    if shares:
        for name, value, variable in (
            (_NODES, context.nodes, "NNODES"),
            (_GPUS, context.gpus, "GPUS_PER_NODE"),
        ):
            if command.flag(name) is None:
                context.add_argument(name, value, variable, separator=" ")
    if command.flag(_ROLLOUT_NODE) is None and context.gpus != _DEFAULTS[_ROLLOUT_NODE]:
        context.add_argument(_ROLLOUT_NODE, context.gpus, "GPUS_PER_NODE", separator=" ")
    defaults = {**_DEFAULTS, **({_NODES: context.nodes, _GPUS: context.gpus} if shares else {})}
    flag = context.command.flag
    numbers = {name: context.option_count(flag(name), name, default) for name, default in defaults.items()}
    if None not in numbers.values():
        _check_placement(context, {name: number or 0 for name, number in numbers.items()}, shares)


def _check_placement(context: PresetContext, numbers: dict[str, int], shares: bool) -> None:
    """Check that training and rollouts fit into the job, and the engines into the nodes."""
    if numbers[_GPUS] > context.gpus:
        text = f"{_GPUS} {numbers[_GPUS]}, {context.allocation}"
        fix = f"write {context.gpus} or less, or {context.gpus_fix(numbers[_GPUS])}"
        context.add_problem(_find_option(context, _GPUS, _NODES), f"{text}: {fix}")
        return
    actor, rollout = numbers[_NODES] * numbers[_GPUS], numbers[_ROLLOUT]
    parts = f"actor {counted(numbers[_NODES], 'node')} x {numbers[_GPUS]} ({actor})"
    if rollout:
        parts += f" {'shared with' if shares else '+'} rollout ({rollout})"
    used = max(actor, rollout) if shares else actor + rollout
    option = _find_option(context, _NODES, _GPUS, _ROLLOUT)
    context.check_total(parts, used, option, f"lower {_NODES} or {_ROLLOUT}")
    size, engines = numbers[_ENGINE], rollout or actor
    if not shares and rollout and actor % context.gpus and size > 1:
        text = f"rollout's engines begin at GPU {actor}, in the middle of a node of {context.gpus}"
        fix = f"let training have whole nodes, e.g. {_GPUS} {context.gpus}"
        context.add_problem(_find_option(context, _GPUS, _NODES), f"{_ENGINE} {size}: {text}: {fix}")
    _ask(context, used)
    if not size or engines % size or (context.gpus % size and size % context.gpus):
        text = f"{_ENGINE} {size}: engines of {size} do not divide {engines} GPUs on nodes of {context.gpus}"
        context.add_problem(_find_option(context, _ENGINE), f"{text}: choose a divisor of {context.gpus}")


def _ask(context: PresetContext, used: int) -> None:
    """Note slime's one group, and the actors outside of it that hold a CPU each: RolloutManager and Lock."""
    option = _find_option(context, _NODES, _GPUS, _ROLLOUT)
    context.ask("training and rollouts", [(1, 1)] * used, at=option)
    for name in ("RolloutManager", "Lock"):
        context.ask(name, [(1, 0)], "ACTOR")
    if context.command.flag("--use-distributed-post"):
        context.ask("distributed post", [(0.001 * context.gpus, 0)] * context.spec.ray_nodes, "STRICT_SPREAD")


def _find_option(context: PresetContext, *names: str) -> ParsedOption | None:
    """The first of these flags that is in the command."""
    return next(filter(None, map(context.command.flag, names)), None)
