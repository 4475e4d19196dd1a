"""OpenRLHF's own parser and placement read argument lists: cases from stdin, verdicts to stdout, as JSON.

openrlhf.cli.train_ppo_ray runs as it is, as `__main__`, with Ray, PyTorch and the engines replaced. So its
assertions about flags and about placement are its own, and each placement group that it asks Ray for is
counted.

A case is an argument list. Its verdict has `args`, what the parser made of them after the trainer's own
rewrites (names with dots stay flat), `gpus`, how many it asks Ray for, and `error`, null where it has none.
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
    """Return what will hold the GPUs of each request to Ray; an actor in a placement group adds none."""
    asked: list[float] = []

    class Actor(stand_ins.Anything):
        @staticmethod
        def options(num_gpus: float = 0, scheduling_strategy: Any = None, **_: Any) -> Any:
            if scheduling_strategy is None:
                asked.append(num_gpus)
            return stand_ins.Anything

    def remote(*targets: Any, **_: Any) -> Any:
        return Actor if targets else remote

    def placement_group(bundles: list[dict[str, int]], **_: Any) -> Any:
        asked.append(sum(bundle["GPU"] for bundle in bundles))
        return stand_ins.Anything

    vars(sys.modules["ray"])["remote"] = remote
    vars(sys.modules["ray.util.placement_group"])["placement_group"] = placement_group
    return asked


def judge(program: Any, words: list[str]) -> dict[str, Any]:
    asked = count_gpus()
    for module in list(sys.modules):  # they took names from Ray when they were imported
        if module.startswith("openrlhf"):
            del sys.modules[module]
    sys.argv = [MODULE, *words]
    names: dict[str, Any] = {"__name__": "__main__"}
    said = io.StringIO()
    error = None
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            exec(program, names)  # noqa: S102 - it is a program, run as `__main__`
    except SystemExit:
        error = said.getvalue().strip().splitlines()[-1]
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    args = flat(names["args"]) if "args" in names else {}
    return {"args": args, "gpus": sum(asked), "error": error}


def main() -> None:
    stand_ins.install(*ABSENT)
    importlib.import_module("ray.util.placement_group")
    spec = importlib.util.find_spec(MODULE)
    assert spec and spec.origin
    program = compile(Path(spec.origin).read_text(), spec.origin, "exec")
    json.dump([judge(program, words) for words in json.load(sys.stdin)], sys.stdout)


main()
