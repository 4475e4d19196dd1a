"""OpenRLHF: nodes and GPUs of each model by flags, with an underscore before 0.10.2 and a dot since then.

Facts from openrlhf/cli/train_ppo_ray.py of openrlhf 0.6.4 and 0.11.2 (which models there are, who shares
GPUs), and openrlhf/trainer/ray (placement groups of single GPUs, packed); the change of flags from its tags.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slurmray.presets.command_line import Said
from slurmray.presets.context import Case

_MODELS = ("actor", "ref", "critic", "reward")
_COUNTS = {"num_nodes": 1, "num_gpus_per_node": 8}  # with OpenRLHF's defaults

# By what a flag is for: its name before 0.10.2, and since then.
_FLAGS = {
    **{
        f"{model} {count}": (f"--{model}_{count}", f"--{model}.{count}")
        for model in _MODELS
        for count in _COUNTS
    },
    "all": ("--colocate_all_models", "--train.colocate_all"),
    "actor and ref": ("--colocate_actor_ref", "--train.colocate_actor_ref"),
    "critic and reward": ("--colocate_critic_reward", "--train.colocate_critic_reward"),
    "engines": ("--vllm_num_engines", "--vllm.num_engines"),
    "engine": ("--vllm_tensor_parallel_size", "--vllm.tensor_parallel_size"),
    "kl": ("--init_kl_coef", "--algo.kl.init_coef"),
    "estimator": ("--advantage_estimator", "--algo.advantage.estimator"),
    "remote": ("--remote_rm_url", "--reward.remote_url"),
    "agent": ("--agent_func_path", "--train.agent_func_path"),
    "async": ("--async_train", "--train.async_enable"),
    "resume": ("--load_checkpoint", "--ckpt.load_enable"),
    "model": ("--pretrain", "--actor.model_name_or_path"),
    "reward's model": ("--reward_pretrain", "--reward.model_name_or_path"),
    "critic's model": ("--critic_pretrain", "--critic.model_name_or_path"),
    "samples": ("--n_samples_per_prompt", "--rollout.n_samples_per_prompt"),
    "checkpoints": ("--ckpt_path", "--ckpt.path"),
}


class _Size(NamedTuple):
    """GPUs of a model, or of all engines. at: a flag that says so."""

    name: str
    nodes: int
    gpus: int
    at: Said | None

    @property
    def all(self) -> int:
        return self.nodes * self.gpus

    @property
    def shown(self) -> str:
        engines = " engines" if self.name == "vllm" else ""
        return f"{self.name} {self.nodes}{engines} x {self.gpus} ({self.all})"


class _Stop(Exception):
    """No more can be judged: a value is only known when the job runs, or was refused."""


class _Flags:
    """The flags of one generation."""

    def __init__(self, case: Case):
        self.case = case
        dotted = case.preset.since(0, 10, 2)
        form = any(re.match(r"--[a-z_]+\.[a-z]", word) for word in case.words.words)
        self.dotted = form if dotted is None else dotted

    def name(self, use: str) -> str:
        return _FLAGS[use][self.dotted]

    def said(self, use: str) -> Said | None:
        return self.case.words.flag(self.name(use))

    def number(self, use: str, default: int) -> int:
        if (said := self.said(use)) is None:
            return default
        if (number := self.case.number(said, self.name(use), said.text)) is None:
            raise _Stop
        return number

    def text(self, use: str, default: str) -> str:
        if (said := self.said(use)) is None:
            return default
        if said.text is None:
            raise _Stop
        return said.text


def advise(case: Case) -> None:
    """Check that the models and engines fit, and place them on the whole job where all share its GPUs."""
    flags = _Flags(case)
    script = case.words.listed and not case.words.open  # its flags are inside
    if script or not any("ppo_ray" in word for word in case.words.words):
        return
    _generation(case, flags)
    if not flags.said("resume"):
        case.resume.append(flags.name("resume"))
    try:
        everybody = flags.said("all") and not flags.said("async") and not flags.said("critic and reward")
        models = _models(case, flags, fill=bool(everybody))
        engines = _engines(case, flags)
        _together(case, flags, models, engines)
        _apart(case, flags, models, engines)
    except (_Stop, ValueError):
        return


def _generation(case: Case, flags: _Flags) -> None:
    """A flag of the other generation is none that this OpenRLHF knows."""
    release = f"OpenRLHF {case.preset.version}" if case.preset.version else "the OpenRLHF of your other flags"
    for names in _FLAGS.values():
        if said := case.words.flag(names[not flags.dotted]):
            case.refuse(said, f"{names[not flags.dotted]}: {release} calls it {names[flags.dotted]}")


def _models(case: Case, flags: _Flags, fill: bool) -> dict[str, _Size]:
    """Return what each model that there is takes. fill: say what is not said, as much as the job has."""
    there = ["actor"]
    if float(flags.text("kl", "0.01")) > 0:
        there.append("ref")
    if flags.text("estimator", "gae") == "gae":
        there.append("critic")
    remote = flags.said("remote") or flags.said("agent")
    if not remote or ("critic" in there and flags.said("critic and reward")):  # its numbers count even then
        there.append("reward")
    own = {"num_nodes": (case.nodes, "NNODES"), "num_gpus_per_node": (case.gpus, "GPUS_PER_NODE")}
    found = {}
    for model in there:
        numbers = []
        for count, (here, variable) in own.items():
            default = _COUNTS[count]
            if fill and not flags.said(f"actor {count}"):
                default = here
                if not flags.said(f"{model} {count}"):
                    case.add(flags.name(f"{model} {count}"), here, variable, separator=" ")
            number = flags.number(f"{model} {count}", default)
            said = flags.said(f"{model} {count}")
            if said and number > here:
                wanted = f"set slurm.nodes: {number}" if count == "num_nodes" else case.gpus_remedy(number)
                text = f"{flags.name(f'{model} {count}')} {number}, {case.allocation}"
                case.refuse(said, f"{text}: write {here} or less, or {wanted}")
                raise _Stop
            numbers.append(number)
        at = flags.said(f"{model} num_nodes") or flags.said(f"{model} num_gpus_per_node")
        found[model] = _Size(model, numbers[0], numbers[1], at)
    return found


def _engines(case: Case, flags: _Flags) -> _Size | None:
    """Return what vLLM takes; each engine lies within a node."""
    count, size = flags.number("engines", 0), flags.number("engine", 1)
    if not count or not size:
        return None
    if case.gpus % size:
        divided = f"the {case.gpus} GPUs of a node{case.taken}"
        text = f"engines of {size} do not divide {divided}: choose a divisor of {case.gpus}"
        case.refuse(flags.said("engine"), f"{flags.name('engine')} {size}: {text}")
        raise _Stop
    return _Size("vllm", count, size, flags.said("engines"))


def _together(case: Case, flags: _Flags, models: dict[str, _Size], engines: _Size | None) -> None:
    """Those that share GPUs have the same numbers."""
    actor = models["actor"]
    for use, one, other in (("actor and ref", "actor", "ref"), ("critic and reward", "critic", "reward")):
        everybody = use == "actor and ref" and flags.said("all")
        if (flags.said(use) or everybody) and one in models and other in models:
            first, second = models[one], models[other]
            if (first.nodes, first.gpus) != (second.nodes, second.gpus):
                why = f"they share GPUs, by {flags.name('all' if everybody else use)}"
                text = f"{first.shown} and {second.shown}: {why}: give both the same numbers"
                case.refuse(second.at or first.at, text)
    if not flags.said("all"):
        return
    for name in ("critic", "reward"):
        own = flags.said("critic and reward") and "critic" in models
        if name in models and not own and models[name].all > actor.all:
            text = f"{models[name].shown} shares the GPUs of {actor.shown}, by {flags.name('all')}"
            case.refuse(models[name].at, f"{text}: give it no more than the actor")
    if engines and not flags.said("async") and engines.all != actor.all:
        text = f"{engines.shown} and {actor.shown}: by {flags.name('all')} the engines have the actor's GPUs"
        wanted, rest = divmod(actor.all, engines.gpus)
        remedy = "choose another size of engine" if rest else f"write {flags.name('engines')} {wanted}"
        case.refuse(engines.at, f"{text}: {remedy}")


def _apart(case: Case, flags: _Flags, models: dict[str, _Size], engines: _Size | None) -> None:
    """Those that share no GPUs fit into the job side by side."""
    groups = dict(models)
    if flags.said("all") or flags.said("actor and ref"):
        groups.pop("ref", None)
    if flags.said("critic and reward") and "critic" in models:
        groups.pop("reward", None)
    elif flags.said("all"):
        groups.pop("critic", None)
        groups.pop("reward", None)
    if engines and (not flags.said("all") or flags.said("async")):
        groups["vllm"] = engines
    asked = sum(size.all for size in groups.values())
    added = f"{' + '.join(size.shown for size in groups.values())} = {asked} GPUs, {case.allocation}"
    if asked > case.total:
        remedy = f"make them smaller, let some share by {flags.name('actor and ref')} or {flags.name('all')}"
        at = next((size.at for size in groups.values() if size.at), None)
        case.refuse(at, f"{added}: {remedy}, or set slurm.nodes: {case.nodes_for(asked)}")
    elif asked < case.total and not case.problems:
        case.notes.append(f"{added}: {case.total - asked} idle")
