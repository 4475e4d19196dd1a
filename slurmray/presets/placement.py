"""Whether what a trainer asks of Ray can be placed on the job's nodes, where it would wait for ever."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from slurmray.agent.job_log import counted
from slurmray.plan import Finding
from slurmray.presets.context import PresetContext
from slurmray.presets.packer import Bundle, Group, Node, place


def check_placement(context: PresetContext) -> None:
    """Add a problem if Ray could never place a demand, with the number to write."""
    resources = context.spec.ray_resources
    groups = [demand.group for demand in context.demands]
    is_known = all(cpus is not None for cpus, _ in resources)
    nodes = [Bundle(cpus or 0, gpus) for cpus, gpus in resources]
    short = place(groups, nodes).waiting if is_known else None
    if is_known and not short:
        return
    waiting, free = place(groups, [Bundle(math.inf, gpus) for _, gpus in resources])
    if waiting:
        at = next(demand.at for demand in context.demands if demand.group is waiting)
        context.add_problem(at, _gpus_text(context, waiting, free))
    elif short:
        _add_too_few_cpus(context, groups, short, nodes)
    elif (least := _least_cpus(context, groups)) and least > 1:
        text = f"slurm.cpus_per_task is not set, often it is 1 then: {_cpus_text(context, groups, least)}"
        context.remarks.append(f"{text}: set it to {least} or more")


def _gpus_text(context: PresetContext, group: Group, free: Counter[Node]) -> str:
    left = Counter[float]()
    for node, count in free.items():
        left[node.gpus] += count
    rest = ", ".join(
        f"{gpus:g} on {counted(left[gpus], 'node')}" for gpus in sorted(left, reverse=True) if left[gpus]
    )
    if group.strategy == "STRICT_PACK":
        wanted = f"{sum(bundle.gpus for bundle in group.bundles):g} GPUs on one node"
    else:
        wanted = f"{len(group.bundles)} x {max(bundle.gpus for bundle in group.bundles):g} GPUs"
    text = f"{group.name} asks Ray for {wanted}, {context.allocation}, of which {rest} are free for it"
    return f"{text}: make a pool smaller, or request more nodes"


def _add_too_few_cpus(
    context: PresetContext, groups: Sequence[Group], waiting: Group, nodes: Sequence[Bundle]
) -> None:
    """Add the problem of a group that finds too few CPUs; a remark if the trainer may not ask for all."""
    problem, sure = _too_few_cpus(context, groups, waiting), [group for group in groups if not group.unless]
    if len(sure) < len(groups) and not place(sure, nodes).waiting:
        path = ".".join(map(str, problem.path))
        reason = next(group.unless for group in groups if group.unless)
        context.remarks.append(f"{path}: {problem.text}; {reason}")
    else:
        context.problems.append(problem)


def _too_few_cpus(context: PresetContext, groups: Sequence[Group], waiting: Group) -> Finding:
    """The problem of a group that finds too few CPUs."""
    spec, least = context.spec, _least_cpus(context, groups)
    if least is None:
        text = f"ray.head.cpus is {spec.ray.head.cpus}, and {waiting.name} needs more on the head node"
        return Finding(("ray", "head", "cpus"), f"{text}: raise it, or leave it out")
    given = max(cpus or 0 for cpus, _ in spec.ray_resources)
    text = (
        f"{_cpus_text(context, groups, least)}, the job has {given}, and {waiting.name} would wait for ever"
    )
    groups_too = " in the groups, too" if spec.slurm.groups else ""
    return Finding(("slurm", "cpus_per_task"), f"{text}: set it to {least} or more{groups_too}")


def _least_cpus(context: PresetContext, groups: Sequence[Group]) -> int | None:
    """The fewest CPUs of each node with which all groups are placed; None if no number helps.

    The head node has what ray.head.cpus says.
    """
    head, resources = context.spec.ray.head.cpus, context.spec.ray_resources

    def fits(cpus: int) -> bool:
        nodes = [Bundle(cpus, gpus) for _, gpus in resources]
        nodes[0] = Bundle(cpus if head is None else head, nodes[0].gpus)
        return not place(groups, nodes).waiting

    low, high = 0, math.ceil(sum(bundle.cpus for group in groups for bundle in group.bundles))
    if not fits(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low


def _cpus_text(context: PresetContext, groups: Sequence[Group], least: int) -> str:
    """For example `verl asks Ray for 24 CPUs on a node (trainer: 3 with each GPU)`."""
    shapes = dict.fromkeys(f"{group.name}: {_shape(group)}" for group in groups)
    return f"{context.preset.name} asks Ray for {counted(least, 'CPU')} on a node ({', '.join(shapes)})"


def _shape(group: Group) -> str:
    kinds = dict.fromkeys(group.bundles)
    return " and ".join(f"{cpus:g} with {gpus:g} GPU" if gpus else f"{cpus:g}" for cpus, gpus in kinds)
