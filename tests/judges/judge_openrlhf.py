"""Runs OpenRLHF's parser and placement: reads cases from stdin and writes verdicts to stdout, as JSON.

openrlhf.cli.train_ppo_ray runs unchanged, as `__main__`, with stand-ins for Ray, PyTorch and the engines. So
OpenRLHF's own assertions check flags and placement, and the placement groups that it requests are counted.

A case is an argument list. Its verdict has `args`, the parsed arguments after the trainer's own changes
(names with dots stay flat), `gpus`, how many it requests from Ray, and `error`, or null.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import sys
from pathlib import Path
from typing import Any

from tests.judges import stand_ins

ABSENT = (
    *("ray", "torch", "transformers", "deepspeed", "vllm", "peft", "datasets", "tqdm", "flash_attn"),
    *("requests", "numpy", "sympy", "pylatexenc", "torchdata", "aiohttp", "PIL"),
)
MODULE = "openrlhf.cli.train_ppo_ray"


def flat(args: Any, prefix: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in vars(args).items():
        if hasattr(value, "__dict__"):
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = value
    return values


def count_gpus() -> list[float]:
    """Return a list that will get the GPUs of each request to Ray; actors in placement groups add none."""
    requested: list[float] = []

    class Actor(stand_ins.Anything):
        @staticmethod
        def options(num_gpus: float = 0, scheduling_strategy: Any = None, **_: Any) -> Any:
            if scheduling_strategy is None:
                requested.append(num_gpus)
            return stand_ins.Anything

    def remote(*targets: Any, **_: Any) -> Any:
        return Actor if targets else remote

    def placement_group(bundles: list[dict[str, int]], **_: Any) -> Any:
        requested.append(sum(bundle["GPU"] for bundle in bundles))
        return stand_ins.Anything

    vars(sys.modules["ray"])["remote"] = remote
    vars(sys.modules["ray.util.placement_group"])["placement_group"] = placement_group
    return requested


def judge(program: Any, argv: list[str]) -> dict[str, Any]:
    requested = count_gpus()
    for module in list(sys.modules):  # they imported names from Ray
        if module.startswith("openrlhf"):
            del sys.modules[module]
    sys.argv = [MODULE, *argv]
    names: dict[str, Any] = {"__name__": "__main__"}
    output = io.StringIO()
    error = None
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            exec(program, names)  # noqa: S102 - it is a program, run as `__main__`
    except SystemExit:
        error = output.getvalue().strip().splitlines()[-1]
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    args = flat(names["args"]) if "args" in names else {}
    return {"args": args, "gpus": sum(requested), "error": error}


def main() -> None:
    stand_ins.install(*ABSENT)
    importlib.import_module("ray.util.placement_group")
    spec = importlib.util.find_spec(MODULE)
    assert spec and spec.origin
    program = compile(Path(spec.origin).read_text(), spec.origin, "exec")
    json.dump([judge(program, argv) for argv in json.load(sys.stdin)], sys.stdout)


main()
