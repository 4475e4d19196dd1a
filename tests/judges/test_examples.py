"""The trainers' code accepts the options of the examples, with the arguments that the presets add."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmray.loading.load import load_plan
from slurmray.presets import advise
from tests.judges.environments import ask


def trainer_args(example: str) -> list[str]:
    """The trainer's arguments, without `python3 -m MODULE`."""
    run = advise(load_plan(Path("examples", f"{example}.yaml")).spec).run
    assert isinstance(run, list)
    return run[3:]


@pytest.mark.usefixtures("in_checkout")
@pytest.mark.parametrize("example", ["verl", "amd"])
def test_verl(example: str) -> None:
    (verdict,) = ask("verl", [trainer_args(example)])
    assert (verdict["refused"], verdict["error"]) == ({}, None)
    assert verdict["pools"] == {"global_pool": [8, 8]}
    assert verdict["config"]["trainer"]["logger"] == ["console", "wandb"]


@pytest.mark.usefixtures("in_checkout")
def test_openrlhf() -> None:
    (verdict,) = ask("openrlhf-old", [trainer_args("openrlhf")])
    assert (verdict["error"], verdict["gpus"]) == (None, 16)


@pytest.mark.usefixtures("in_checkout")
def test_skyrl() -> None:
    (verdict,) = ask("skyrl", [trainer_args("skyrl")])
    assert verdict["error"] is None
    for model in ("policy", "ref"):
        assert verdict["placement"][f"{model}_num_nodes"] == 2
        assert verdict["placement"][f"{model}_num_gpus_per_node"] == 8


def test_rlinf(in_checkout: Path) -> None:
    """The placement, and the alternative one in the comments."""
    text = (in_checkout / "examples/rlinf.config.yaml").read_text()
    shared = yaml.safe_load(text)["cluster"]
    lines = [line.partition("#   ")[2] for line in text.splitlines() if "#   " in line]
    apart = {"component_placement": yaml.safe_load("\n".join(lines))}
    assert set(apart["component_placement"]) == {"rollout", "inference", "actor", "reward"}

    def case(cluster: dict[str, Any]) -> dict[str, Any]:
        return {"nodes": 4, "gpus_per_node": 8, "config": {"cluster": {"num_nodes": 4, **cluster}}}

    for verdict in ask("rlinf", [case(shared), case(apart)]):
        assert verdict["error"] is None
        used = {
            (node, gpu)
            for name in verdict["placed"]
            for node, gpus in verdict["placed"][name]
            for gpu in gpus
        }
        assert len(used) == 32
