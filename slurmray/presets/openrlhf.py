"""OpenRLHF: flags set the nodes and GPUs of each model. Since 0.10.2 they have dots, before underscores.

Sources: openrlhf/cli/train_ppo_ray.py of openrlhf 0.6.4 and 0.11.2 (which models a job has, and which of them
share GPUs), openrlhf/trainer/ray (placement groups of single GPUs, packed), and its tags (names of flags).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slurmray.presets.command_line import ParsedOption
from slurmray.presets.context import PresetContext

_MODELS = ("actor", "ref", "critic", "reward")
_COUNTS = {"num_nodes": 1, "num_gpus_per_node": 8}  # OpenRLHF's defaults

# Purpose of a flag -> its name before 0.10.2, and since then.
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
# Names that 0.11.2 no longer has.
_RENAMED = {
    "--algo.advantage.is_correction_enable": "--algo.advantage.is_correction_level token",
    "--algo.advantage.is_correction_type": "--algo.advantage.is_correction_mode",
}


class _Size(NamedTuple):
    """GPUs of a model, or of all engines. option: a flag that sets them."""

    name: str
    nodes: int
    gpus: int
    option: ParsedOption | None

    @property
    def total(self) -> int:
        return self.nodes * self.gpus

    @property
    def text(self) -> str:
        engines = " engines" if self.name == "vllm" else ""
        return f"{self.name} {self.nodes}{engines} x {self.gpus} ({self.total})"


class _UnknownValue(Exception):
    """A value is only known when the job runs, or is wrong; nothing that depends on it can be checked."""


class _Flags:
    """The flags of the trainer's command, by purpose (a key of _FLAGS)."""

    def __init__(self, context: PresetContext):
        self.context = context
        is_since_dots = context.preset.since(0, 10, 2)
        has_dots = any(re.match(r"--[a-z_]+\.[a-z]", argument) for argument in context.command.argv)
        self.uses_dots = has_dots if is_since_dots is None else is_since_dots

    def name(self, purpose: str) -> str:
        return _FLAGS[purpose][self.uses_dots]

    def option(self, purpose: str) -> ParsedOption | None:
        return self.context.command.flag(self.name(purpose))

    def number(self, purpose: str, default: int) -> int:
        number = self.context.option_count(self.option(purpose), self.name(purpose), default)
        if number is None:
            raise _UnknownValue
        return number

    def text(self, purpose: str, default: str) -> str:
        if (option := self.option(purpose)) is None:
            return default
        if option.value is None:
            raise _UnknownValue
        return option.value


def advise(context: PresetContext) -> None:
    """Check that models and engines fit the job. If all models share GPUs, give each the whole job."""
    flags = _Flags(context)
    is_script = context.command.is_list and not context.command.is_extensible  # the flags are in the script
    if is_script or not any("ppo_ray" in argument for argument in context.command.argv):
        return
    _check_flag_names(context, flags)
    if not flags.option("resume"):
        context.resume.append(flags.name("resume"))
    try:
        others_share = flags.option("async") or flags.option("critic and reward")
        models = _read_models(context, flags, fill=bool(flags.option("all") and not others_share))
        engines = _read_engines(context, flags)
        _check_shared_gpus(context, flags, models, engines)
        _check_total(context, flags, models, engines)
        _ask(context, flags, models, engines)
    except (_UnknownValue, ValueError):
        return


def _check_flag_names(context: PresetContext, flags: _Flags) -> None:
    """Refuse flags that this version of OpenRLHF does not have."""
    version = context.preset.version
    release = f"OpenRLHF {version}" if version else "the OpenRLHF of your other flags"
    for names in _FLAGS.values():
        if option := context.command.flag(names[not flags.uses_dots]):
            text = f"{names[not flags.uses_dots]}: {release} calls it {names[flags.uses_dots]}"
            context.add_problem(option, text)
    for name, instead in _RENAMED.items() if context.preset.since(0, 11, 2) else ():
        if option := context.command.flag(name):
            context.add_problem(option, f"{name}: OpenRLHF {version} has none: write {instead}")


def _read_models(context: PresetContext, flags: _Flags, fill: bool) -> dict[str, _Size]:
    """Return the size of each model of the job. fill: add arguments for sizes that are not set."""
    names = ["actor"]
    if float(flags.text("kl", "0.01")) > 0:
        names.append("ref")
    if flags.text("estimator", "gae") == "gae":
        names.append("critic")
    remote = flags.option("remote") or flags.option("agent")
    # If it shares GPUs with the critic, OpenRLHF checks its flags even with a remote reward model.
    if not remote or ("critic" in names and flags.option("critic and reward")):
        names.append("reward")
    available = {
        "num_nodes": (context.nodes, "NNODES"),
        "num_gpus_per_node": (context.gpus, "GPUS_PER_NODE"),
    }
    sizes = {}
    for model in names:
        numbers = []
        for count, (most, variable) in available.items():
            default = _COUNTS[count]
            if fill and not flags.option(f"actor {count}"):
                default = most
                if not flags.option(f"{model} {count}"):
                    context.add_argument(flags.name(f"{model} {count}"), most, variable, separator=" ")
            number = flags.number(f"{model} {count}", default)
            option = flags.option(f"{model} {count}")
            if option and number > most:
                fix = context.nodes_fix(number) if count == "num_nodes" else context.gpus_fix(number)
                text = f"{flags.name(f'{model} {count}')} {number}, {context.allocation}"
                context.add_problem(option, f"{text}: write {most} or less, or {fix}")
                raise _UnknownValue
            numbers.append(number)
        option = flags.option(f"{model} num_nodes") or flags.option(f"{model} num_gpus_per_node")
        sizes[model] = _Size(model, numbers[0], numbers[1], option)
    return sizes


def _read_engines(context: PresetContext, flags: _Flags) -> _Size | None:
    """Return the size of vLLM's engines; None without vLLM."""
    count, size = flags.number("engines", 0), flags.number("engine", 1)
    if not count or not size:
        return None
    if context.gpus % size:
        # OpenRLHF places them so, without a word; vLLM only warns (ran, with Ray 2.60 and 2 x 8 GPUs).
        text = (
            f"engines of {size} lie across nodes of {context.gpus} GPUs{context.services_text}, which is slow"
        )
        context.remarks.append(f"{flags.name('engine')} {size}: {text}: a divisor of {context.gpus} does not")
    return _Size("vllm", count, size, flags.option("engines"))


def _check_shared_gpus(
    context: PresetContext, flags: _Flags, models: dict[str, _Size], engines: _Size | None
) -> None:
    """Check that models and engines which share GPUs have the same sizes."""
    actor = models["actor"]
    for purpose, first_name, second_name in (
        ("actor and ref", "actor", "ref"),
        ("critic and reward", "critic", "reward"),
    ):
        shares_all = purpose == "actor and ref" and flags.option("all")
        shares = flags.option(purpose) or shares_all
        if shares and first_name in models and second_name in models:
            first, second = models[first_name], models[second_name]
            if (first.nodes, first.gpus) != (second.nodes, second.gpus):
                cause = f"they share GPUs because of {flags.name('all' if shares_all else purpose)}"
                text = f"{first.text} and {second.text}: {cause}: give both the same numbers"
                context.add_problem(second.option or first.option, text)
    if not flags.option("all"):
        return
    for name in ("critic", "reward"):
        shares_with_other = flags.option("critic and reward") and "critic" in models
        if name in models and not shares_with_other and models[name].total > actor.total:
            text = f"{models[name].text} shares the GPUs of {actor.text} because of {flags.name('all')}"
            context.add_problem(models[name].option, f"{text}: give it no more than the actor")
    if engines and not flags.option("async") and engines.total != actor.total:
        cause = f"the engines use the actor's GPUs because of {flags.name('all')}"
        count, rest = divmod(actor.total, engines.gpus)
        fix = "choose another size of engine" if rest else f"write {flags.name('engines')} {count}"
        context.add_problem(engines.option, f"{engines.text} and {actor.text}: {cause}: {fix}")


def _ask(context: PresetContext, flags: _Flags, models: dict[str, _Size], engines: _Size | None) -> None:
    """Note the placement groups: one CPU beside each GPU. Models with one GPU on each node have none."""
    shares_all = bool(flags.option("all"))
    shares_actor = shares_all or bool(flags.option("actor and ref"))
    pair = bool(flags.option("critic and reward")) and "critic" in models
    own = [name for name in ("critic", "reward") if not (shares_all or pair)] + ["critic"] * pair
    order = ["actor"] * shares_actor + ["vllm"] + ["actor", "ref"] * (not shares_actor) + own
    sizes = dict(models)
    if engines and (not shares_all or flags.option("async")):
        sizes["vllm"] = engines
    for name in order:
        if name in sizes:
            context.ask(name, [(1, 1)] * sizes[name].total, at=sizes[name].option)


def _check_total(
    context: PresetContext, flags: _Flags, models: dict[str, _Size], engines: _Size | None
) -> None:
    """Check that models and engines which share no GPUs fit into the job together."""
    groups = dict(models)
    if flags.option("all") or flags.option("actor and ref"):
        groups.pop("ref", None)
    if flags.option("critic and reward") and "critic" in models:
        groups.pop("reward", None)
    elif flags.option("all"):
        groups.pop("critic", None)
        groups.pop("reward", None)
    if engines and (not flags.option("all") or flags.option("async")):
        groups["vllm"] = engines
    total = sum(size.total for size in groups.values())
    fix = f"make them smaller, let some share by {flags.name('actor and ref')} or {flags.name('all')}"
    option = next((size.option for size in groups.values() if size.option), None)
    context.check_total(" + ".join(size.text for size in groups.values()), total, option, fix)
