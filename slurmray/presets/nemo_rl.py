"""NeMo-RL: Hydra overrides of `cluster` and of the placement of generation.

Sources: NeMo-RL 0.7.0, nemo_rl/algorithms/grpo.py (how it divides the nodes between training and generation)
and examples/configs/grpo_math_1B.yaml.
"""

from __future__ import annotations

from slurmray.agent.job_log import counted
from slurmray.presets import verl
from slurmray.presets.context import PresetContext

_NODES, _GPUS = "cluster.num_nodes", "cluster.gpus_per_node"
_COLOCATED = "policy.generation.colocated.enabled"
_OF_GENERATION = "policy.generation.colocated.resources"
# Program -> CPUs beside each GPU, where training and generation share it, and where training has it alone.
_CPUS = {"run_grpo": (2, 1), "run_ppo": (3, 2), "run_distillation": (3, 3), "run_xtoken": (3, 3)}


def advise(context: PresetContext) -> None:
    """Fill in the number of nodes and GPUs, and check them and those of generation."""
    verl.fill_single_pool(context, _NODES, _GPUS)
    colocated = context.command.override(_COLOCATED)
    is_apart = bool(colocated and (colocated.value or "").lower() == "false")
    if is_apart:
        _check_generation(context)
    _ask(context, is_apart)


def _ask(context: PresetContext, is_apart: bool) -> None:
    """Note the groups: bundles of as many CPUs beside each GPU as groups of workers may share it.

    Then a CPU on each node, for what builds the workers' virtual environments: it comes while the groups are
    there, and waits without a message.
    """
    program = next((each for each in context.command.argv if each.endswith(".py")), "").rpartition("/")[2]
    nodes, gpus = context.override_count(_NODES, context.nodes), context.override_count(_GPUS, context.gpus)
    if not program or nodes is None or gpus is None:
        return
    shared, apart = next((cpus for name, cpus in _CPUS.items() if program.startswith(name)), (1, 1))
    backend, unless = context.command.override("policy.generation.backend"), ""
    if backend and backend.value == "megatron":
        shared = 1
    elif shared > 1 and not backend and context.command.flag("--config"):
        unless = "with policy.generation.backend megatron it is 1: the file that --config names says which"
    option = context.command.override(_GPUS)
    for _ in range(nodes):
        context.ask("training", [(apart if is_apart else shared, 1)] * gpus, at=option, unless=unless)
    context.ask("virtual environments", [(1, 0)] * context.spec.ray_nodes, "STRICT_SPREAD", stays=False)


def _check_generation(context: PresetContext) -> None:
    """Check the nodes, or on one node the GPUs, that generation has for itself."""
    if context.nodes > 1:
        name, most, noun = f"{_OF_GENERATION}.num_nodes", context.nodes - 1, "node"
    else:
        name, most, noun = f"{_OF_GENERATION}.gpus_per_node", context.gpus - 1, "GPU"
    option, number = context.command.override(name), context.override_count(name)
    if option is None:
        text = f"{name} is not set in run, and NeMo-RL fails without it"
        context.remarks.append(f"{text}, if the file that --config names does not have it")
    elif number is not None and not 1 <= number <= most:
        text = f"{name}={number}: {context.allocation}, and training needs at least 1 {noun}"
        context.add_problem(option, f"{text}: write {counted(most, noun)} or less, at least 1")
    gpus_name = f"{_OF_GENERATION}.gpus_per_node"
    number = context.override_count(gpus_name) if context.nodes > 1 else None
    if number is not None and number != context.gpus:
        text = f"{gpus_name}={number}: with several nodes generation has whole ones"
        context.add_problem(context.command.override(gpus_name), f"{text}: write {context.gpus}")
