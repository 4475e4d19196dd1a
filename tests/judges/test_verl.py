"""verl's configuration and validation read the overrides of its guide and of Search-R1's guide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judges import documents, stale
from tests.judges.environments import ask

BY_VALIDATION = "critic.ppo_micro_batch_size"  # Hydra accepts it


def cut_name(override: str) -> str:
    return override.partition("=")[0]


def at(config: dict[str, Any], path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = value[name]
    return value


def test_verl_reads_the_overrides_of_its_guide() -> None:
    (verdict,) = ask("verl", [documents.VERL_DSTACK])
    assert (verdict["refused"], verdict["error"]) == ({}, None)
    assert verdict["pools"] == {"global_pool": [8, 8]}
    for path, value in (
        ("trainer.resume_mode", "disable"),
        ("actor_rollout_ref.actor.optim.lr", 1e-6),
        ("actor_rollout_ref.rollout.gpu_memory_utilization", 0.4),
    ):
        assert at(verdict["config"], path) == value, path


def test_verl_s_validation_counts_the_gpus() -> None:
    (verdict,) = ask("verl", [[*documents.VERL_DSTACK, "trainer.nnodes=3"]])
    assert "(256) must be divisible by minimal possible batch size (24)" in verdict["error"]


def test_verl_s_validation_refuses_what_hydra_accepts() -> None:
    base = [override for override in documents.VERL_DSTACK if "critic.ppo_micro_batch_size" not in override]
    (verdict,) = ask("verl", [[*base, f"{BY_VALIDATION}=64"]])
    assert "critic" in verdict["error"]
    assert "the former is deprecated" in verdict["error"]


@pytest.mark.full
def test_verl_refuses_the_overrides_on_the_page() -> None:
    known_stale = {row.refused for row in stale.VERL} - {BY_VALIDATION}
    names = set()
    amd, search_r1 = ask("verl", [documents.VERL_AMD, documents.SEARCH_R1])
    for verdict in (amd, search_r1):
        names |= {cut_name(override) for override in verdict["refused"]}
    assert names - documents.SEARCH_R1_OWN == known_stale
    assert names >= documents.SEARCH_R1_OWN


@pytest.mark.full
def test_verl_accepts_the_replacements_on_the_page() -> None:
    successors = {row.refused: row.instead for row in stale.VERL}
    cases = []
    for overrides in (documents.VERL_AMD, documents.SEARCH_R1):
        kept = [override for override in overrides if cut_name(override) not in documents.SEARCH_R1_OWN]
        renamed = [(successors.get(cut_name(override), cut_name(override)), override) for override in kept]
        cases.append([f"{name}={override.partition('=')[2]}" for name, override in renamed if name])
    replaced = [row for row in stale.VERL if row.instead]
    cases.append([*documents.VERL_DSTACK, *(f"{row.instead}={row.value}" for row in replaced)])
    verdicts = ask("verl", cases)
    assert [verdict["error"] for verdict in verdicts] == [None, None, None], verdicts[0]["refused"]
    for row in replaced:
        assert str(at(verdicts[-1]["config"], row.instead)) == row.value, row
