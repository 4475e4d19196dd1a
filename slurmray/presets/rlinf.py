"""RLinf: the section `cluster` of its YAML file, and Hydra overrides of it.

Sources: rlinf 0.3.0, rlinf/utils/placement.py (which components may share GPUs), rlinf/scheduler/cluster
(num_nodes, RLINF_NODE_RANK), rlinf/scheduler/worker/worker.py (RLINF_COMM_NET_DEVICES); in its repository
ray_utils/start_ray.sh (RANK) and rlinf/runners/reasoning_runner.py (resume_dir: auto, since v0.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from slurmray.presets.command_line import ParsedOption
from slurmray.presets.context import PresetContext
from slurmray.presets.ranks import Ranks, Span, parse_ranks, spans
from slurmray.yaml_source import Path

_NODES, _GPUS = "cluster.num_nodes", "cluster.num_gpus_per_node"
_PLACEMENT = "cluster.component_placement"
_AUTO = "cluster.auto_scheduler"
_ENGINE, _STAGES = "rollout.tensor_parallel_size", "rollout.pipeline_parallel_size"
_ACTOR = "actor.model.tensor_model_parallel_size"

# In pipelines for language models these pairs share no GPUs, unless actor and rollout share all of theirs.
# With an `env` or several kinds of rollout, every component may share.
_EXCLUSIVE = (
    ("actor", "rollout"),
    ("actor", "inference"),
    ("rollout", "inference"),
    ("critic", "actor"),
    ("critic", "rollout"),
    ("critic", "critic_inference"),
    ("rollout", "critic_inference"),
)
_Setting = tuple[ParsedOption | Path, str | None]
_IN_ORDER = ("actor", "rollout", "inference")  # on all GPUs, for cluster.auto_scheduler
_CONSECUTIVE = ("actor", "rollout", "inference", "critic", "critic_inference")


@dataclass(frozen=True)
class _Placement:
    """Components with one placement. at: where it is set. ranks: None if only known when the job runs."""

    key: str
    text: str
    at: ParsedOption | Path
    ranks: Ranks | None = None

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.key.split(",")]

    @property
    def summary(self) -> str:
        return f"{self.key} {self.text} ({self.ranks.size if self.ranks else '?'})"


def advise(context: PresetContext) -> None:
    """Fill in the number of nodes, and check the placement of the components."""
    context.node_env |= {"RLINF_NODE_RANK": "rank", "RANK": "rank"}
    if not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} & set(context.spec.env):
        context.node_env["RLINF_COMM_NET_DEVICES"] = "interface"
    if not context.command.argv:
        return
    _fill_cluster(context)
    _check_placement(context)
    if set(context.spec.restart.exit_codes) - {1, 255}:
        text = "RLinf after 0.3.0 turns each code of sys.exit into 0; an exception is 1, a failed worker 255"
        context.remarks.append(f"restart.exit_codes: {text}")
    # Its actors hold no CPU, but go only to nodes that have one.
    context.ask("an actor on each node", [(1, 0)] * context.spec.ray_nodes, "STRICT_SPREAD", stays=False)
    is_resumable = any(argument.endswith("main_grpo.py") for argument in context.command.argv)
    if is_resumable and context.preset.since(0, 2) is not False:
        if context.command.override("runner.resume_dir") is None:
            context.resume.append("runner.resume_dir=auto")
    elif context.spec.may_resume and context.command.override("runner.resume_dir") is None:
        context.remarks.append(
            "after a restart RLinf starts from the beginning: set runner.resume_dir to a checkpoint's folder"
        )


def _fill_cluster(context: PresetContext) -> None:
    """Set the number of nodes, or check it; check the GPUs, which RLinf ignores since v0.1."""
    nodes, gpus = _find_setting(context, _NODES), _find_setting(context, _GPUS)
    if nodes and (isinstance(nodes[0], ParsedOption) or not context.command.is_extensible):
        _check_equal(context, _NODES, nodes, context.nodes)
    else:
        context.add_argument(_NODES, context.nodes, "NNODES")
    if gpus:
        _check_equal(context, _GPUS, gpus, context.gpus)


def _find_setting(context: PresetContext, key: str) -> _Setting | None:
    """Return where a key is set, in the command or else in the file, and its value; None if it is not set."""
    if option := context.command.override(key):
        return option, option.value
    path: Path = tuple(key.split("."))
    return (path, value) if isinstance(value := context.lookup(path), str) else None


def _check_equal(context: PresetContext, key: str, setting: _Setting, expected: int) -> None:
    """Check that a key is set to the job's number."""
    at, value = setting
    number = context.parse_count(at, key, value)
    if number is None or number == expected:
        return
    fix = context.gpus_fix(number) if key == _GPUS else context.nodes_fix(number)
    context.add_problem(at, f"{key} is {value}, {context.allocation}: write {expected}, or {fix}")


def _check_placement(context: PresetContext) -> None:
    if context.config is None and not context.command.overrides_below(_PLACEMENT):
        context.remarks.append("the placement is not checked: set preset.config to RLinf's YAML file")
        return
    entries = _read_entries(context)
    if not entries and context.config and not context.command.override(_PLACEMENT):
        context.note_unplaced(_PLACEMENT)
    placements = []
    for entry in entries:
        try:
            ranks = None if "$" in entry.text else parse_ranks(entry.text, context.total)
        except ValueError as error:
            context.add_problem(entry.at, f"{entry.key}: {error}")
        else:
            placements.append(_Placement(entry.key, entry.text, entry.at, ranks))
    _check_unique(context, placements)
    known = [placement for placement in placements if placement.ranks]
    if not context.check_range(
        [(entry.summary, entry.ranks.size, entry.ranks.last, entry.at) for entry in known if entry.ranks]
    ):
        return
    by_name = {name: placement for placement in known for name in placement.names}
    all_may_share = "env" in by_name or any(name.startswith("rollout_") for name in by_name)
    if {"actor", "rollout"} <= set(by_name) and not all_may_share:
        _check_reward(context, entries)
        _check_language_model(context, by_name)
        if len(known) == len(placements):
            _check_order(context, by_name)
    else:
        for placement in known:
            _check_within_nodes(context, placement)
    if placements and len(known) == len(placements):
        used = {number for entry in known if entry.ranks for number in entry.ranks.numbers}
        context.note_idle([entry.summary for entry in known], used)


def _read_entries(context: PresetContext) -> list[_Placement]:
    """Return the placements without ranks. Those on node groups are left out: only RLinf can resolve them."""
    path: Path = tuple(_PLACEMENT.split("."))
    section = context.lookup(path)
    entries = {}
    for key, value in section.items() if isinstance(section, dict) else []:
        text = value.get("placement") if isinstance(value, dict) and "node_group" not in value else value
        entries[key] = _Placement(key, text if isinstance(text, str) else "$", (*path, key))
    for key, option in context.command.overrides_below(_PLACEMENT):
        entries[key] = _Placement(key, "$" if option.value is None else option.value, option)
        if option.prefix == "~":
            del entries[key]
    return [] if context.command.override(_PLACEMENT) else list(entries.values())


def _check_unique(context: PresetContext, placements: list[_Placement]) -> None:
    """Check that each component has one placement."""
    names: set[str] = set()
    for placement in placements:
        for name in placement.names:
            if name in names:
                text = f"{name} is placed twice: leave it out of {placement.key!r}, or of the other"
                context.add_problem(placement.at, text)
            names.add(name)


def _check_within_nodes(context: PresetContext, placement: _Placement) -> None:
    """Check that no process with several GPUs lies across nodes. Not so for language models."""
    ranks = placement.ranks
    for span, processes in zip(ranks.gpus, ranks.processes, strict=True) if ranks else ():
        if across := _find_across_nodes(span, span.size // processes, context.gpus):
            cause = f"a process on GPUs {across} would lie across nodes of {context.gpus}"
            text = f"{placement.key} {placement.text}: {cause}: give it more processes"
            context.add_problem(placement.at, text)
            return


def _find_across_nodes(span: Span, size: int, gpus: int) -> str | None:
    """Return the first group of GPUs that lies across nodes, e.g. `6-9`; None if there is none.

    span: GPUs that are divided into groups of `size`. gpus: on each node.
    """
    for first in range(span.first, span.last + 1, max(size, 1)):
        last = first + size - 1
        if size > 1 and first // gpus != last // gpus:
            return f"{first}-{last}"
    return None


def _check_reward(context: PresetContext, entries: list[_Placement]) -> None:
    """Add a remark if a pipeline for language models has no reward: RLinf's own guide has such placements."""
    if not any("reward" in entry.names for entry in entries):
        text = f"{_PLACEMENT} names no reward, so RLinf ends with 'Reward GPUs must be specified'"
        context.remarks.append(f"{text}: place it, e.g. `actor,rollout,reward: all`; it may share GPUs")


def _check_language_model(context: PresetContext, by_name: dict[str, _Placement]) -> None:
    """Check who shares GPUs with whom in a pipeline for language models."""
    sets = {name: placement.ranks.numbers for name, placement in by_name.items() if placement.ranks}
    if "actor_inference" in sets and "inference" not in sets:
        sets["inference"], by_name["inference"] = sets["actor_inference"], by_name["actor_inference"]
    for name in _CONSECUTIVE:
        if name in sets and len(sets[name]) != max(sets[name]) - min(sets[name]) + 1:
            text = f"{name} has GPUs {spans(sets[name])}: RLinf needs them without a gap"
            context.add_problem(by_name[name].at, text)
    rollout = by_name["rollout"]
    if rollout.ranks:
        _check_engine(context, rollout, rollout.ranks, is_shared=sets["actor"] == sets["rollout"])
    if sets["actor"] == sets["rollout"]:
        for name in ("inference", "critic_inference"):
            if name in sets:
                text = "actor and rollout, which share their GPUs, do it themselves: leave it out"
                context.add_problem(by_name[name].at, f"{name}: {text}")
        return
    for first, second in _EXCLUSIVE:
        if both := sets.get(first, frozenset()) & sets.get(second, frozenset()):
            pair = f"{first} {by_name[first].text} and {second} {by_name[second].text}"
            fix = "let actor and rollout share all of their GPUs, or no component share any"
            context.add_problem(by_name[second].at, f"{pair} both have {spans(both)}: {fix}")


def _check_order(context: PresetContext, by_name: dict[str, _Placement]) -> None:
    """Check that cluster.auto_scheduler finds the components on all GPUs in its order, each on its own."""
    auto = _find_setting(context, _AUTO)
    if not auto or (auto[1] or "").lower() != "true" or "critic" in by_name:  # with a critic it has no effect
        return
    ranks = {name: by_name[name].ranks for name in _IN_ORDER if name in by_name}
    sets = {name: sorted(known.numbers) for name, known in ranks.items() if known}
    if [*chain(*sets.values())] != [*range(context.total)]:
        found = ", ".join(f"{name} {spans(numbers)}" for name, numbers in sets.items())
        fix = f"place {', then '.join(sets)}, which together are GPUs 0 to {context.total - 1} without a gap"
        context.add_problem(auto[0], f"{_AUTO}: {found}: {fix}")


def _check_engine(context: PresetContext, rollout: _Placement, ranks: Ranks, is_shared: bool) -> None:
    """Check that the rollout's engines divide its GPUs, and that each is within a node.

    is_shared: with the actor. Then engines that are smaller than a group of the actor are spread over one
    group (`stride` in RLinf).
    """
    tensor, stages, actor = (_read_parallel_size(context, key) for key in (_ENGINE, _STAGES, _ACTOR))
    if not (tensor and stages and actor):
        return
    size, name = tensor, f"{_ENGINE} {tensor}"
    if not is_shared and stages > 1:
        size, name = tensor * stages, f"{name} x {_STAGES} {stages}"
    elif is_shared and actor > tensor:
        size, name = actor, f"{name} and {_ACTOR} {actor}"
    name = f"{rollout.summary}: {name}"
    if size % tensor:
        context.add_problem(rollout.at, f"{name}: the first does not divide the second: choose a divisor")
    elif ranks.size % size:
        text = f"engines of {size} do not divide {ranks.size} GPUs: choose a divisor"
        context.add_problem(rollout.at, f"{name}: {text}")
    elif across := _find_across_nodes(Span(ranks.gpus[0].first, ranks.last), size, context.gpus):
        text = f"an engine on GPUs {across} would lie across nodes of {context.gpus}"
        context.add_problem(rollout.at, f"{name}: {text}: choose a smaller one, or other GPUs")


def _read_parallel_size(context: PresetContext, key: str) -> int | None:
    """Return a parallel size, 1 if it is not set; None if it is only known when the job runs."""
    if (setting := _find_setting(context, key)) is None:
        return 1
    at, value = setting
    return context.parse_count(at, key, value)
