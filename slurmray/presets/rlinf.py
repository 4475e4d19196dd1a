"""RLinf: `cluster` in its YAML file, with Hydra overrides over it.

Facts from rlinf 0.3.0: rlinf/utils/placement.py (which components may share GPUs), rlinf/scheduler/cluster
(num_nodes, RLINF_NODE_RANK), rlinf/scheduler/worker/worker.py (RLINF_COMM_NET_DEVICES); from its repository
ray_utils/start_ray.sh (RANK) and rlinf/runners/reasoning_runner.py (resume_dir: auto, since v0.2).
"""

from __future__ import annotations

from dataclasses import dataclass

from slurmray.presets.command_line import Said
from slurmray.presets.context import Case
from slurmray.presets.ranks import Ranks, Span, parse, spans
from slurmray.yaml_source import Path

_NODES, _GPUS = "cluster.num_nodes", "cluster.num_gpus_per_node"
_PLACEMENT = "cluster.component_placement"
_ENGINE, _STAGES = "rollout.tensor_parallel_size", "rollout.pipeline_parallel_size"
_ACTOR = "actor.model.tensor_model_parallel_size"

# In pipelines for language models these share all GPUs or none; with an `env`, or several kinds of rollout,
# all may share.
_APART = (
    ("actor", "rollout"),
    ("actor", "inference"),
    ("rollout", "inference"),
    ("critic", "actor"),
    ("critic", "rollout"),
    ("critic", "critic_inference"),
    ("rollout", "critic_inference"),
)
_CONSECUTIVE = ("actor", "rollout", "inference", "critic", "critic_inference")


@dataclass(frozen=True)
class _Placed:
    """Components with one placement. at: where it stands. ranks: None if only known when it runs."""

    key: str
    text: str
    at: Said | Path
    ranks: Ranks | None = None

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.key.split(",")]

    @property
    def shown(self) -> str:
        return f"{self.key} {self.text} ({self.ranks.size if self.ranks else '?'})"


def advise(case: Case) -> None:
    """Fill in the number of nodes, and check the placement of the components."""
    case.node_env |= {"RLINF_NODE_RANK": "rank", "RANK": "rank"}
    if not {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"} & set(case.spec.env):
        case.node_env["RLINF_COMM_NET_DEVICES"] = "interface"
    if not case.words.words:
        return
    _cluster(case)
    _placement(case)
    if (
        any(word.endswith("main_grpo.py") for word in case.words.words)
        and case.preset.since(0, 2) is not False
    ):
        if case.words.override("runner.resume_dir") is None:
            case.resume.append("runner.resume_dir=auto")
    elif case.spec.requeue.max and case.words.override("runner.resume_dir") is None:
        case.notes.append(
            "after a requeue RLinf starts anew: this trainer needs the folder in runner.resume_dir"
        )


def _cluster(case: Case) -> None:
    """num_nodes is the job's, whoever says it; num_gpus_per_node has been a note for people since v0.1."""
    nodes, gpus = _said(case, _NODES), _said(case, _GPUS)
    if isinstance(nodes, Said) or (nodes and not case.words.open):
        _same(case, _NODES, nodes, case.nodes)
    else:
        case.add(_NODES, case.nodes, "NNODES")
    if gpus:
        _same(case, _GPUS, gpus, case.gpus)


def _said(case: Case, key: str) -> Said | tuple[Path, str] | None:
    """Return an override, or else the path and text in the file."""
    if said := case.words.override(key):
        return said
    path: Path = tuple(key.split("."))
    return (path, value) if isinstance(value := case.lookup(path), str) else None


def _same(case: Case, key: str, said: Said | tuple[Path, str], here: int) -> None:
    at, text = (said, said.text) if isinstance(said, Said) else said
    number = case.number(at, key, text)
    if number is None or number == here:
        return
    wanted = case.gpus_remedy(number) if key == _GPUS else f"set slurm.nodes: {number}"
    case.refuse_at(at, f"{key} is {text}, {case.allocation}: write {here}, or {wanted}")


def _placement(case: Case) -> None:
    if case.config is None and not case.words.below(_PLACEMENT):
        case.notes.append("the placement is not checked: name RLinf's YAML file in preset.config")
        return
    placed = []
    entries = _entries(case)
    if not entries and case.config and not case.words.override(_PLACEMENT):
        case.note_unplaced(_PLACEMENT)
    for one in entries:
        try:
            ranks = None if "$" in one.text else parse(one.text, case.total)
        except ValueError as error:
            case.refuse_at(one.at, f"{one.key}: {error}")
        else:
            placed.append(_Placed(one.key, one.text, one.at, ranks))
    _once(case, placed)
    known = [one for one in placed if one.ranks]
    if not _fits(case, known):
        return
    by_name = {name: one for one in known for name in one.names}
    free = "env" in by_name or any(name.startswith("rollout_") for name in by_name)
    if {"actor", "rollout"} <= set(by_name) and not free:
        _reward(case, entries)
        _language_model(case, by_name)
    else:
        for one in known:
            _within_nodes(case, one)
    _idle(case, placed)


def _entries(case: Case) -> list[_Placed]:
    """Return the placements as they are written; those on node groups are RLinf's own affair."""
    path: Path = tuple(_PLACEMENT.split("."))
    written = case.lookup(path)
    found = {}
    for key, value in written.items() if isinstance(written, dict) else []:
        text = value.get("placement") if isinstance(value, dict) and "node_group" not in value else value
        found[key] = _Placed(key, text if isinstance(text, str) else "$", (*path, key))
    for key, said in case.words.below(_PLACEMENT):
        found[key] = _Placed(key, "$" if said.text is None else said.text, said)
        if said.prefix == "~":
            del found[key]
    return [] if case.words.override(_PLACEMENT) else list(found.values())


def _once(case: Case, placed: list[_Placed]) -> None:
    names: set[str] = set()
    for one in placed:
        for name in one.names:
            if name in names:
                case.refuse_at(
                    one.at, f"{name} is placed twice: leave it out of {one.key!r}, or of the other"
                )
            names.add(name)


def _fits(case: Case, known: list[_Placed]) -> bool:
    """Every GPU is one of the job's; if not, the message adds up what is asked for."""
    beyond = [one for one in known if one.ranks and one.ranks.last >= case.total]
    if not beyond:
        return True
    highest = max(one.ranks.last for one in beyond if one.ranks)
    asked = sum(one.ranks.size for one in known if one.ranks)
    case.refuse_at(beyond[0].at, case.too_far([one.shown for one in known], asked, highest))
    return False


def _within_nodes(case: Case, one: _Placed) -> None:
    """A process that has several GPUs has them on one node; language models are spread out in another way."""
    for span, processes in zip(one.ranks.gpus, one.ranks.processes, strict=True) if one.ranks else ():
        if across := _across(span, span.size // processes, case.gpus):
            text = f"a process on GPUs {across} would lie across nodes of {case.gpus}: give it more processes"
            case.refuse_at(one.at, f"{one.key} {one.text}: {text}")
            return


def _across(span: Span, each: int, gpus: int) -> str | None:
    """Return the first so many GPUs of a span that do not lie within one node of `gpus`."""
    for first in range(span.first, span.last + 1, max(each, 1)):
        last = first + each - 1
        if each > 1 and first // gpus != last // gpus:
            return f"{first}-{last}"
    return None


def _reward(case: Case, entries: list[_Placed]) -> None:
    """Pipelines for language models need one. A note, for the guide's own placements have none."""
    if not any("reward" in one.names for one in entries):
        text = f"{_PLACEMENT} names no reward, so RLinf ends with 'Reward GPUs must be specified'"
        case.notes.append(f"{text}: place it, as in `actor,rollout,reward: all`; it may share GPUs")


def _language_model(case: Case, by_name: dict[str, _Placed]) -> None:
    sets = {name: one.ranks.numbers for name, one in by_name.items() if one.ranks}
    if "actor_inference" in sets and "inference" not in sets:
        sets["inference"], by_name["inference"] = sets["actor_inference"], by_name["actor_inference"]
    for name in _CONSECUTIVE:
        if name in sets and len(sets[name]) != max(sets[name]) - min(sets[name]) + 1:
            text = f"{name} has GPUs {spans(sets[name])}: RLinf wants them without a gap"
            case.refuse_at(by_name[name].at, text)
    rollout = by_name["rollout"]
    if rollout.ranks:
        _engine(case, rollout, rollout.ranks, shared=sets["actor"] == sets["rollout"])
    if sets["actor"] == sets["rollout"]:
        for name in ("inference", "critic_inference"):
            if name in sets:
                text = "actor and rollout share their GPUs, then they do it themselves: leave it out"
                case.refuse_at(by_name[name].at, f"{name}: {text}")
        return
    for one, other in _APART:
        if both := sets.get(one, frozenset()) & sets.get(other, frozenset()):
            pair = f"{one} {by_name[one].text} and {other} {by_name[other].text} both have {spans(both)}"
            text = f"{pair}: actor and rollout share all of their GPUs, or no component shares any"
            case.refuse_at(by_name[other].at, text)


def _engine(case: Case, rollout: _Placed, ranks: Ranks, shared: bool) -> None:
    """The rollout's engines divide its GPUs, and each lies within a node.

    Where it shares them, engines smaller than a group of the actor are spread over one (`stride` there).
    """
    tensor, stages, actor = (_size(case, key) for key in (_ENGINE, _STAGES, _ACTOR))
    if not (tensor and stages and actor):
        return
    each, name = tensor, f"{_ENGINE} {tensor}"
    if not shared and stages > 1:
        each, name = tensor * stages, f"{name} x {_STAGES} {stages}"
    elif shared and actor > tensor:
        each, name = actor, f"{name} and {_ACTOR} {actor}"
    name = f"{rollout.shown}: {name}"
    if each % tensor:
        case.refuse_at(rollout.at, f"{name}: the first does not divide the second: choose a divisor")
    elif ranks.size % each:
        text = f"engines of {each} do not divide {ranks.size} GPUs: choose a divisor"
        case.refuse_at(rollout.at, f"{name}: {text}")
    elif across := _across(Span(ranks.gpus[0].first, ranks.last), each, case.gpus):
        text = f"an engine on GPUs {across} would lie across nodes of {case.gpus}"
        case.refuse_at(rollout.at, f"{name}: {text}: choose a smaller one, or other GPUs")


def _size(case: Case, key: str) -> int | None:
    """Return a parallel size, which is 1 where it is not said; None if only known when it runs."""
    if (said := _said(case, key)) is None:
        return 1
    at, text = (said, said.text) if isinstance(said, Said) else said
    return case.number(at, key, text)


def _idle(case: Case, placed: list[_Placed]) -> None:
    if not placed or any(one.ranks is None for one in placed):
        return
    used = {number for one in placed if one.ranks for number in one.ranks.numbers}
    case.note_idle([one.shown for one in placed], used)
