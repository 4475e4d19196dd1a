"""Composes and validates verl's configuration: reads cases from stdin and writes verdicts to stdout, as JSON.

A case is a list of Hydra overrides for verl.trainer.main_ppo. Its verdict has
- `config`: what Hydra composes of them and verl's files, or null;
- `refused`: {override: message}, for each override that Hydra refuses on its own;
- `error`: from verl's validation, e.g. of GPUs and batch sizes, or from its resource pools; null if none;
- `pools`: {resource pool: GPUs that it requests on each node}, without the standalone rollouts of
  `separate_async`; empty if verl refuses them.
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


def message(problem: Exception) -> str:
    return " ".join(str(problem).split())


@functools.cache
def refusal(override: str) -> str | None:
    try:
        hydra.compose("ppo_trainer", [override])
    except REFUSALS as problem:
        return message(problem)
    return None


def invalid(config: Any) -> str | None:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            validate_config(config, need_reference_policy(config), need_critic(config))
    except (*REFUSALS, AssertionError, ValueError) as problem:
        return message(problem)
    return None


def pools(config: Any) -> dict[str, list[int]]:
    trainer: Any = SimpleNamespace(config=config)
    PPOTrainer._init_resource_pool_mgr(trainer)
    requested: dict[str, list[int]] = trainer.resource_pool_manager.resource_pool_spec
    return requested


def placed(config: Any) -> tuple[dict[str, list[int]], str | None]:
    try:
        return pools(config), None
    except ValueError as problem:
        return {}, message(problem)


def judge(overrides: list[str]) -> dict[str, Any]:
    try:
        config = hydra.compose("ppo_trainer", overrides)
    except REFUSALS:
        refusals = {override: refusal(override) for override in overrides}
        refused = {override: text for override, text in refusals.items() if text}
        return {"config": None, "refused": refused, "error": None, "pools": {}}
    error = invalid(config)
    requested, wrong = placed(config)
    return {
        "config": OmegaConf.to_container(config),
        "refused": {},
        "error": error or wrong,
        "pools": requested,
    }


def main() -> None:
    HFModelConfig.__post_init__ = lambda _: None  # it would open the model's files
    spec = importlib.util.find_spec("verl")
    assert spec and spec.origin
    folder = Path(spec.origin).parent / "trainer/config"
    with hydra.initialize_config_dir(str(folder), version_base=None):
        json.dump([judge(overrides) for overrides in json.load(sys.stdin)], sys.stdout)


main()
