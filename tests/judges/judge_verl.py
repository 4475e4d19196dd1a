"""verl's own configuration reads overrides: cases from stdin, verdicts to stdout, as JSON.

A case is a list of Hydra overrides for verl.trainer.main_ppo. Its verdict has `config`, what Hydra composes
of them and verl's own files, or null; `refused`, from each override that Hydra refuses by itself to what it
says; `error`, what verl's validation finds wrong with the composed configuration (the number of GPUs against
batch sizes among it), or else with its pools, null where that is nothing; and `pools`, from each of its
resource pools to the GPUs that it asks Ray for, node by node (but for the standalone rollouts of
`separate_async`), empty where it refuses them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.judges import stand_ins

stand_ins.install(
    *("ray", "torch", "torchdata", "tensordict", "transfer_queue", "transformers", "peft", "datasets"),
    *("numpy", "pandas", "PIL", "aiohttp", "fastapi", "uvicorn", "pydantic", "orjson", "regex", "tqdm"),
    *("codetiming", "cachetools", "accelerate", "psutil"),
)

import hydra  # noqa: E402
from hydra.errors import HydraException  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from omegaconf.errors import OmegaConfBaseException  # noqa: E402
from verl.trainer.ppo.utils import need_critic, need_reference_policy  # noqa: E402
from verl.trainer.ppo.v1.trainer_base import PPOTrainer  # noqa: E402
from verl.utils.config import validate_config  # noqa: E402
from verl.workers.config.model import HFModelConfig  # noqa: E402

REFUSALS = (HydraException, OmegaConfBaseException)


def said(problem: Exception) -> str:
    return " ".join(str(problem).split())


@functools.cache
def refusal(override: str) -> str | None:
    try:
        hydra.compose("ppo_trainer", [override])
    except REFUSALS as problem:
        return said(problem)
    return None


def invalid(config: Any) -> str | None:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            validate_config(config, need_reference_policy(config), need_critic(config))
    except (*REFUSALS, AssertionError, ValueError) as problem:
        return said(problem)
    return None


def pools(config: Any) -> dict[str, list[int]]:
    trainer: Any = SimpleNamespace(config=config)
    PPOTrainer._init_resource_pool_mgr(trainer)
    asked: dict[str, list[int]] = trainer.resource_pool_manager.resource_pool_spec
    return asked


def placed(config: Any) -> tuple[dict[str, list[int]], str | None]:
    try:
        return pools(config), None
    except ValueError as problem:
        return {}, said(problem)


def judge(overrides: list[str]) -> dict[str, Any]:
    try:
        config = hydra.compose("ppo_trainer", overrides)
    except REFUSALS:
        found = {override: refusal(override) for override in overrides}
        refused = {override: words for override, words in found.items() if words}
        return {"config": None, "refused": refused, "error": None, "pools": {}}
    error = invalid(config)
    asked, wrong = placed(config)
    return {
        "config": OmegaConf.to_container(config),
        "refused": {},
        "error": error or wrong,
        "pools": asked,
    }


def main() -> None:
    HFModelConfig.__post_init__ = lambda _: None  # it opens the model's files
    spec = importlib.util.find_spec("verl")
    assert spec and spec.origin
    folder = Path(spec.origin).parent / "trainer/config"
    with hydra.initialize_config_dir(str(folder), version_base=None):
        json.dump([judge(overrides) for overrides in json.load(sys.stdin)], sys.stdout)


main()
