"""Parses and validates SkyRL's configuration: reads cases from stdin and writes verdicts to stdout, as JSON.

A case is a list of overrides for skyrl.train.entrypoints.main_base. Its verdict has
- `placement`: the fields of `trainer.placement`, or null if SkyRL refuses an override;
- `error`: why, or what its validation refuses; null if nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

from tests.judges import stand_ins

stand_ins.install(
    *("ray", "torch", "loguru", "skyrl_gym", "transformers", "numpy", "tensordict", "jaxtyping"),
    *("cloudpathlib", "cloudpickle", "pydantic", "pybase64", "aiohttp", "fastapi", "uvicorn", "httpx"),
    *("orjson", "rich"),
)

from skyrl.train.config import SkyRLTrainConfig  # noqa: E402
from skyrl.train.utils.utils import validate_cfg  # noqa: E402


def judge(overrides: list[str]) -> dict[str, Any]:
    placement = None
    try:
        config = SkyRLTrainConfig.from_cli_overrides(overrides)
        placement = dataclasses.asdict(config.trainer.placement)
        validate_cfg(config)
    except (AssertionError, ValueError, TypeError) as problem:
        return {"placement": placement, "error": " ".join(str(problem).split())}
    return {"placement": placement, "error": None}


os.environ["WANDB_API_KEY"] = "none"  # its logger asks for one
json.dump([judge(overrides) for overrides in json.load(sys.stdin)], sys.stdout)
