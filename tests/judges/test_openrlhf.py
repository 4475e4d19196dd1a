"""OpenRLHF's parsers, before and after the renaming of flags, read the flags of xDAN-RL's guide."""

from __future__ import annotations

from typing import Any

import pytest

from tests.judges import documents, stale
from tests.judges.environments import ask

OPENRLHF_BASE = {
    "--pretrain": "m",
    "--remote_rm_url": "http://127.0.0.1:1",  # so no reward model takes GPUs
    "--n_samples_per_prompt": "2",
    "--vllm_num_engines": "0",
}


def old_and_new(cases: list[dict[str, str]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the verdicts of both generations on the same flags. cases: with the old names."""
    successors = {row.refused: row.instead for row in stale.OPENRLHF}
    full = [{**OPENRLHF_BASE, **case} for case in cases]
    renamed = [{successors[flag]: value for flag, value in case.items()} for case in full]
    return ask("openrlhf-old", [*map(join_flags, full)]), ask("openrlhf-new", [*map(join_flags, renamed)])


def test_openrlhf_0_11_2_has_other_names_for_a_correction() -> None:
    for row in stale.OPENRLHF_0_11_2:
        flags = {"--actor.model_name_or_path": "m", "--reward.remote_url": "http://127.0.0.1:1"}
        old, new = ask(
            "openrlhf-new", [join_flags({**flags, name: row.value}) for name in (row.refused, row.instead)]
        )
        assert "unrecognized arguments" in old["error"], row
        assert new["args"][row.instead.removeprefix("--")] == row.value, row


def join_flags(flags: dict[str, str]) -> list[str]:
    return [arg for pair in flags.items() for arg in pair if arg]


def test_openrlhf_s_generations_request_the_same_gpus() -> None:
    """The guide counts 16 GPUs, which is true only if two of the three share theirs."""
    no_critic = {**documents.XDAN_RL, "--advantage_estimator": "rloo"}
    for verdicts in old_and_new(
        [
            no_critic,
            {**no_critic, "--colocate_actor_ref": ""},
            {**no_critic, "--colocate_all_models": ""},
            {**no_critic, "--init_kl_coef": "0"},  # no reference model then
            {**documents.XDAN_RL, "--critic_num_nodes": "1", "--critic_num_gpus_per_node": "1"},
        ]
    ):
        assert [verdict["error"] for verdict in verdicts] == [None] * 5
        assert [verdict["gpus"] for verdict in verdicts] == [24, 16, 8, 16, 25]


def test_openrlhf_accepts_each_flag_only_in_its_own_generation() -> None:
    rows = stale.OPENRLHF
    assert {row.refused for row in rows} >= set(documents.XDAN_RL)
    (plain_old, *old), (plain_new, *new) = old_and_new([{}, *({row.refused: row.value} for row in rows)])
    refused = ask("openrlhf-new", [join_flags({row.refused: row.value}) for row in rows])
    for row, in_old, in_new, verdict in zip(rows, old, new, refused, strict=True):
        assert "unrecognized arguments" in verdict["error"], row
        old_name, new_name = row.refused.removeprefix("--"), row.instead.removeprefix("--")
        assert in_old["args"][old_name] != plain_old["args"][old_name], row
        assert in_new["args"][new_name] != plain_new["args"][new_name], row
        assert in_old["args"][old_name] == in_new["args"][new_name], row


@pytest.mark.parametrize(
    ("flags", "refusal"),
    [
        (
            {"--colocate_actor_ref": "", "--ref_num_nodes": "2"},
            "must be the same when colocate actor and ref",
        ),
        (
            {"--colocate_critic_reward": "", "--reward_num_nodes": "2"},
            "must be the same when colocate critic and reward",
        ),
        (
            {"--colocate_all_models": "", "--vllm_num_engines": "4"},
            "must be equal to vllm_num_engines * vllm_tensor_parallel_size, got 8 and 4",
        ),
        (
            {"--advantage_estimator": "rloo", "--n_samples_per_prompt": "1"},
            "requires n_samples_per_prompt > 1",
        ),
        ({"--actor_num_nodes": "two"}, "invalid int value: 'two'"),
    ],
)
def test_openrlhf_refuses(flags: dict[str, str], refusal: str) -> None:
    for (verdict,) in old_and_new([flags]):
        assert refusal in verdict["error"]
