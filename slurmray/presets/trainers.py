"""Which command is the trainer, and its preset."""

from __future__ import annotations

import re

# Preset -> the arguments that it adds: numbers of nodes, and of GPUs on each node.
NUMBERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "verl": (("trainer.nnodes",), ("trainer.n_gpus_per_node",)),
    "search-r1": (("trainer.nnodes",), ("trainer.n_gpus_per_node",)),
    "nemo-rl": (("cluster.num_nodes",), ("cluster.gpus_per_node",)),
    "rlinf": (("cluster.num_nodes",), ()),
    "skyrl": (
        ("trainer.placement.policy_num_nodes", "trainer.placement.ref_num_nodes"),
        ("trainer.placement.policy_num_gpus_per_node", "trainer.placement.ref_num_gpus_per_node"),
    ),
}
# Preset -> what its trainers' command lines have; the first one counts.
_COMMANDS: dict[str, str] = {
    "search-r1": r"verl\.trainer\.main_ppo\w* .*\bretriever\.",
    "verl": r"(?:verl\.(?:trainer|experimental\.\w+)|recipe(?:\.\w+)*)\.(?:main_\w+|\w+_main|sft_trainer_ray)"
    r"|verl/trainer/main_ppo\.py",
    "openrlhf": r"openrlhf\.cli\.train_ppo_ray",
    "nemo-rl": r"(?:^|[\s/])run_(?:grpo|ppo|dpo|sft|rm|distillation|vlm_|xtoken)\w*\.py",
    "roll": r"(?:^|[\s/])start_\w+_pipeline\.py .*--config_name",
    "rlinf": r"examples/\w+/main_\w+\.py .*--config-name",
    "skyrl": r"skyrl(?:_train|\.train)\.(?:entrypoints\.\w+|main_sft)",
    "slime": r"(?:^|[\s/])train(?:_async)?\.py .*--actor-num-gpus-per-node",
}
# Arguments of trainers whose nodes only the user can divide: their presets add no numbers then.
OWN_PLACEMENT = re.compile(
    r"fully_async_main|one_step_off_policy|separate_async|enable_resource_pool=|colocated\.enabled="
    r"|rollout\.nnodes=|distillation\.enabled=|colocate_all=(?!(?i:true))"
)
# Trainers without a preset: programs that start training on many nodes or GPUs.
_TRAINERS = re.compile(
    r"(?:^|[\s/_.])(?:main_ppo|train\w*|finetune\w*|torchrun|accelerate launch|deepspeed)(?:[\s._]|$)"
)


def find_preset(text: str) -> str | None:
    """Return the preset of a command line; None if none fits."""
    return next((name for name, form in _COMMANDS.items() if re.search(form, text, re.DOTALL)), None)


def other_preset(text: str, preset: str) -> str | None:
    """Return the preset of a command line that is not one of this preset's trainer; None if it may be."""
    if re.search(_COMMANDS[preset], text, re.DOTALL):
        return None
    other = find_preset(text)
    return None if (preset, other) == ("search-r1", "verl") else other  # its retriever may be in a file


def looks_like_trainer(text: str) -> bool:
    """Whether a command line is probably a trainer's."""
    return find_preset(text) is not None or bool(_TRAINERS.search(text))
