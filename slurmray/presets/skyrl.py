"""SkyRL: overrides of `trainer.placement` and of the number and size of inference engines.

Sources: SkyRL 0.4.0, skyrl/train/utils/utils.py (validate_cfg), trainer.py (build_models), sft_trainer.py and
config.
"""

from __future__ import annotations

import math
import re
from itertools import chain

from slurmray.presets import verl
from slurmray.presets.context import PresetContext

_PLACEMENT = "trainer.placement"
_ENGINES = "generator.inference_engine"
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def advise(context: PresetContext) -> None:
    """Fill in the number of nodes and GPUs, and check them and the inference engines."""
    if any(re.search(r"\bmain_sft\b", argument) for argument in context.command.argv):
        verl.fill_single_pool(context, "placement.num_nodes", "placement.num_gpus_per_node")
        context.ask("training", [(context.gpus, context.gpus)] * context.nodes)
        return
    critic = ["critic"] * bool(context.command.override("trainer.critic.model.path"))
    colocate = context.command.override(f"{_PLACEMENT}.colocate_all")
    if colocate and (colocate.value or "").lower() != "true":
        if (colocate.value or "").lower() == "false":
            _check_apart(context, ["policy", *critic])
        return  # only the user knows how to divide the nodes
    for model in ("policy", "ref", *critic):
        keys = (f"{_PLACEMENT}.{model}_num_nodes", f"{_PLACEMENT}.{model}_num_gpus_per_node")
        verl.fill_single_pool(context, *keys)
    # Not those of a script, of a text that is not parsed, or of older versions, which have another name.
    if context.command.is_parsed and not context.command.override("generator.num_inference_engines"):
        _check_engines(context)
    if context.command.is_parsed:
        context.ask("policy and engines", [(1, 1)] * context.total)
        # At each checkpoint, while that group is there.
        context.ask("checkpoints", [(0.25, 0)] * context.nodes, "STRICT_SPREAD", stays=False)


def _check_apart(context: PresetContext, models: list[str]) -> None:
    """Check engines with GPUs of their own, which come first. The reference model shares the policy's."""
    command, count = context.command, context.override_count
    others = (f"{_PLACEMENT}.colocate_policy_ref", f"{_ENGINES}.run_engines_locally")
    engines = [count(f"{_ENGINES}.{name}", 1) for name in ("num_engines", *_SIZES)]
    sizes = {
        model: [count(f"{_PLACEMENT}.{model}_{name}", 1) for name in ("num_nodes", "num_gpus_per_node")]
        for model in models
    }
    if any(map(command.override, others)) or None in [*engines, *chain(*sizes.values())]:
        return
    number, size = engines[0] or 0, math.prod(count or 0 for count in engines[1:])
    prefill = _count_prefill(context, number)
    for name, group in (("engines for prefill", prefill), ("engines", number - prefill)):
        if group:
            context.ask(name, [(1, 1)] * group * size, at=command.override(f"{_ENGINES}.num_engines"))
    used = number * size
    parts = [f"engines ({used})"]
    for model, numbers in sizes.items():
        nodes, gpus = (number or 0 for number in numbers)
        parts.append(f"{model} {nodes} x {gpus} ({nodes * gpus})")
        used += nodes * gpus
        at = command.override(f"{_PLACEMENT}.{model}_num_gpus_per_node")
        context.ask(model, [(gpus, gpus)] * nodes, at=at)
    option = command.override(f"{_PLACEMENT}.policy_num_nodes")
    context.check_total(" + ".join(parts), used, option, "make engines or models smaller")


def _count_prefill(context: PresetContext, engines: int) -> int:
    """Return how many engines only prefill, in a placement group of their own; 0 if that is unknown."""
    key, enabled = f"{_ENGINES}.num_prefill", context.command.override(f"{_ENGINES}.enable_pd")
    number = context.override_count(key, 0)
    if not enabled or (enabled.value or "").lower() != "true" or number is None:
        return 0
    if 0 < number < engines:
        return number
    text = f"enable_pd: some engines prefill, the others decode: set {key} to 1 or more, below {engines}"
    context.add_problem(context.command.override(key) or enabled, text)
    return 0


def _check_engines(context: PresetContext) -> None:
    """Check that the engines use as many GPUs as the policy, whose GPUs they share."""
    keys = [f"{_ENGINES}.{name}" for name in ("num_engines", *_SIZES)]
    options = [context.command.override(key) for key in keys]
    numbers = [context.override_count(key, 1) for key in keys]
    if None in numbers or context.problems:
        return
    count, *sizes = (number or 0 for number in numbers)
    size = math.prod(sizes)
    if count * size == context.total:
        _count_prefill(context, count)
        return
    whole = size and context.total % size == 0
    fix = f"set {keys[0]}={context.total // size}" if whole else f"choose sizes that divide {context.total}"
    text = f"{keys[0]}={count}: {count} engines x {size} = {count * size} GPUs, {context.allocation}"
    context.add_problem(options[0] or next(filter(None, options), None), f"{text}: {fix}")
