"""Presets and the trainers' own code agree on generated jobs, except for the differences listed here.

Search-R1 and ROLL publish no package, so only tests/unit covers their presets.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmray.plan import Advice
from slurmray.presets import advise
from slurmray.presets.packer import Bundle, Group, place
from slurmray.spec.job_spec import JobSpec
from tests.judges import documents, stale
from tests.judges.environments import ask

pytestmark = pytest.mark.usefixtures("current_folder")


def is_refused(advice: Advice) -> bool:
    return bool(advice.problems or advice.config_problems)


def idle_gpus(advice: Advice) -> int:
    """The number of idle GPUs in the preset's remarks."""
    match = re.search(r"([0-9]+) (GPUs? )?(stay )?idle", " ".join(advice.remarks))
    return int(match[1]) if match else 0


# -- RLinf -----------------------------------------------------------------------------------------

NODE = 8  # GPUs
RLINF_RUN = ["python", "examples/reasoning/main_grpo.py", "--config-name", "x"]


def rlinf(config: dict[str, Any], nodes: int = 4) -> Advice:
    Path("x.yaml").write_text(yaml.safe_dump(config))
    return advise(
        JobSpec.model_validate(
            {
                "preset": {"name": "rlinf", "config": "x.yaml"},
                "slurm": {"nodes": nodes, "gpus_per_node": NODE},
                "run": RLINF_RUN,
            }
        )
    )


def placement(components: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"cluster": {"component_placement": components}, **more}


def make_case(config: dict[str, Any], advice: Advice, nodes: int) -> dict[str, Any]:
    """A case for the judge: the configuration, with the arguments that the preset added."""
    assert isinstance(advice.run, list)
    added = advice.run[len(RLINF_RUN) :]
    assert added == [f"cluster.num_nodes={nodes}"]
    cluster = {**config["cluster"], "num_nodes": nodes}
    components = cluster["component_placement"]
    hybrid = any("env" in key.split(",") for key in components)
    return {"nodes": nodes, "gpus_per_node": NODE, "config": {**config, "cluster": cluster}, "hybrid": hybrid}


def used_gpus(verdict: dict[str, Any]) -> set[int]:
    return {
        node * NODE + gpu
        for processes in (verdict["placed"] or {}).values()
        for node, gpus in processes
        for gpu in gpus
    }


def gpu_beyond_its_node(verdict: dict[str, Any]) -> str | None:
    """RLinf's packed.py compares a process's last GPU with `<=` the node's count: one too many passes."""
    processes = itertools.chain.from_iterable((verdict["placed"] or {}).values())
    return next((f"GPU {max(gpus)} of a node" for _, gpus in processes if max(gpus) >= NODE), None)


def span(draw: random.Random, total: int, processes: bool) -> str:
    """Return random GPUs for a component: mostly aligned, sometimes wrong."""
    step = draw.choice((1, 4, 4, 8, 8))
    first = draw.randrange(0, total, step)
    last = min(first + step * draw.randint(1, 3) - 1, total - 1 + (draw.random() < 0.05))
    text = f"{first}-{last}" if draw.random() < 0.97 else f"{last}-{first}"
    if processes and draw.random() < 0.4:
        text += f":0-{draw.choice((1, 2, 4, 8)) - 1}"
    return text


def placements(seed: int, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number of nodes and configuration, for language models and for embodied agents."""
    draw = random.Random(seed)
    for _ in range(count):
        nodes = draw.choice((1, 2, 4))
        total = nodes * NODE
        components: dict[str, str] = {}
        more: dict[str, Any] = {}
        auto = False
        if draw.random() < 0.3:
            for name in ("actor", "env", "rollout"):
                parts = [span(draw, total, processes=True) for _ in range(draw.choice((1, 1, 2)))]
                components[name] = draw.choice(("all", ",".join(parts), ",".join(parts)))
        elif draw.random() < 0.4:  # all on one set
            where = draw.choice(("all", span(draw, total, processes=False)))
            components["actor,rollout,reward"] = where
            if draw.random() < 0.2:
                components["inference"] = span(draw, total, processes=False)
        else:  # side by side, mostly
            names = ["rollout", *["inference"] * (draw.random() < 0.8), "actor"]
            if auto := draw.random() < 0.3:
                names = names if draw.random() < 0.3 else ["actor", *names[:-1]]
            cuts = sorted(draw.sample(range(1, total // 4), len(names) - 1)) if total > 8 else [1, 1]
            edges = [0, *(4 * cut for cut in cuts), total]
            for name, first, last in zip(names, edges, edges[1:], strict=False):
                end = max(first, last - 1 - draw.choice((0, 0, 0, 4)) + draw.choice((0, 0, 0, 1)))
                components[name] = f"{first}-{end}"
            components["reward"] = draw.choice(("all", components["actor"], span(draw, total, False)))
        if "env" not in components and draw.random() < 0.7:
            more["rollout"] = {"tensor_parallel_size": draw.choice((1, 2, 4, 8))}
            more["actor"] = {"model": {"tensor_model_parallel_size": draw.choice((1, 1, 2, 4))}}
        config = placement(components, **more)
        yield nodes, {**config, "cluster": {**config["cluster"], "auto_scheduler": auto}}


def compare_rlinf(cases: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    ours = [rlinf(config, nodes) for nodes, config in cases]
    asked = [make_case(config, advice, nodes) for (nodes, config), advice in zip(cases, ours, strict=True)]
    verdicts = ask("rlinf", asked)
    for case, advice, verdict in zip(cases, ours, verdicts, strict=True):
        if re.search("(Actor|Inference) TP size [0-9]+ must be less", verdict["error"] or ""):
            continue  # the preset reads only the sizes of the rollout's engines
        theirs = verdict["error"] or gpu_beyond_its_node(verdict)
        assert is_refused(advice) == bool(theirs), f"{case}: ours {advice}, theirs {theirs}"
        if not theirs:
            assert idle_gpus(advice) == case[0] * NODE - len(used_gpus(verdict)), case
    return verdicts


def test_rlinf_s_placement_and_the_preset_agree() -> None:
    texts = [row.instead for row in stale.RLINF]
    guide = [(4, placement(dict(part.split(": ") for part in text.split(", ")))) for text in texts]
    assert [verdict["error"] for verdict in compare_rlinf(guide)] == [None, None]
    compare_rlinf([*placements(seed=1, count=30)])


@pytest.mark.full
def test_rlinf_s_placement_and_the_preset_agree_on_many() -> None:
    verdicts = compare_rlinf([*placements(seed=2, count=2000)])
    accepted = sum(verdict["error"] is None for verdict in verdicts)
    assert 400 < accepted < 1600, "the cases must not all have the same verdict"


@pytest.mark.parametrize(
    ("config", "theirs", "ours", "unused"),
    [
        (placement({"actor,rollout": "all"}), "Reward GPUs must be specified", False, 0),
        # The guide's rule that the GPUs must add up to the job's is checked by neither any more.
        (
            placement({"rollout": "0-15", "inference": "20-23", "actor,reward": "24-31"}),
            None,
            False,
            4,
        ),
        # One GPU too many for its node, by `<=` in packed.py.
        (
            placement({"rollout": "1-8", "actor,reward": "16-23"}, rollout={"tensor_parallel_size": 8}),
            None,
            True,
            16,
        ),
        # RLinf gives each engine 4 GPUs, of which it uses 3.
        (
            placement({"rollout": "0-7", "actor,reward": "16-23"}, rollout={"tensor_parallel_size": 3}),
            None,
            True,
            16,
        ),
        # More processes of the actor's model than GPUs; the preset does not read their number.
        (
            placement(
                {"rollout": "0-23", "actor,reward": "24-31"},
                actor={"model": {"tensor_model_parallel_size": 16}},
            ),
            "Actor TP size 16",
            False,
            0,
        ),
    ],
    ids=["no reward", "sum", "one too many", "not a divisor", "actor's size"],
)
def test_where_rlinf_and_the_preset_differ(
    config: dict[str, Any], theirs: str | None, ours: bool, unused: int
) -> None:
    advice = rlinf(config)
    (verdict,) = ask("rlinf", [make_case(config, advice, 4)])
    assert (theirs or "") in (verdict["error"] or "")
    assert bool(verdict["error"]) == bool(theirs)
    assert (is_refused(advice), idle_gpus(advice)) == (ours, unused)
    assert ("names no reward" in " ".join(advice.remarks)) == ("Reward GPUs" in (theirs or ""))


# -- OpenRLHF --------------------------------------------------------------------------------------

OPENRLHF_RUN = ["python3", "-m", "openrlhf.cli.train_ppo_ray"]
DOTTED = {row.refused: row.instead for row in stale.OPENRLHF}
GENERATIONS = {"openrlhf-old": "0.6.4", "openrlhf-new": "0.11.2"}


def openrlhf(flags: dict[str, str], generation: str, nodes: int = 2) -> Advice:
    names = DOTTED if generation == "openrlhf-new" else {}
    args = [arg for flag, value in flags.items() for arg in (names.get(flag, flag), value) if arg]
    return advise(
        JobSpec.model_validate(
            {
                "preset": {"name": "openrlhf", "version": GENERATIONS[generation]},
                "slurm": {"nodes": nodes, "gpus_per_node": NODE},
                "run": [*OPENRLHF_RUN, *args],
            }
        )
    )


def draw_flags(draw: random.Random, nodes: int) -> dict[str, str]:
    """Return random flags. Each model and engine fits into the job, all together often do not."""
    flags = {"--pretrain": "m", "--n_samples_per_prompt": "2"}
    for model in ("actor", "ref", "critic", "reward"):
        if draw.random() < 0.8:
            flags[f"--{model}_num_nodes"] = str(draw.choice([count for count in (1, 2, 4) if count <= nodes]))
            flags[f"--{model}_num_gpus_per_node"] = str(draw.choice((1, 2, 4, 4, 8)))
    flags["--vllm_num_engines"] = str(draw.choice((0, 1, 2, 4, 8)))
    flags["--vllm_tensor_parallel_size"] = str(draw.choice((1, 2, 4)))
    flags |= {"--advantage_estimator": "rloo"} if draw.random() < 0.5 else {}
    flags |= {"--init_kl_coef": "0"} if draw.random() < 0.3 else {}
    flags |= draw.choice(({"--remote_rm_url": "http://x"}, {"--reward_pretrain": "r"}))
    shared = draw.choice(("", "", "--colocate_actor_ref", "--colocate_all_models"))
    flags |= {shared: ""} if shared else {}
    flags |= {"--colocate_critic_reward": ""} if draw.random() < 0.3 else {}
    if shared == "--colocate_all_models" and draw.random() < 0.7:  # else most cases would be wrong
        for model in ("ref", "critic", "reward"):
            for count in ("num_nodes", "num_gpus_per_node"):
                flags.pop(f"--{model}_{count}", None)
                if value := flags.get(f"--actor_{count}"):
                    flags[f"--{model}_{count}"] = value
    return flags


def is_any_model_larger_than_the_actor(flags: dict[str, str]) -> bool:
    """OpenRLHF fails only later, when the placement group that all models share has no GPU left."""
    sizes = {
        model: int(flags.get(f"--{model}_num_nodes", 1)) * int(flags.get(f"--{model}_num_gpus_per_node", 8))
        for model in ("actor", "critic", "reward")
    }
    return "--colocate_all_models" in flags and max(sizes.values()) > sizes["actor"]


def compare_openrlhf(cases: list[tuple[int, dict[str, str]]], generation: str) -> list[dict[str, Any]]:
    ours = [openrlhf(flags, generation, nodes) for nodes, flags in cases]
    lists = [advice.run[len(OPENRLHF_RUN) :] for advice in ours if isinstance(advice.run, list)]
    verdicts = ask(generation, lists)
    for (nodes, flags), advice, verdict in zip(cases, ours, verdicts, strict=True):
        if is_any_model_larger_than_the_actor(flags) or "divisible" in (verdict["error"] or ""):
            continue  # presets do not check batch sizes
        total = nodes * NODE
        theirs = verdict["error"] or (f"{verdict['gpus']} GPUs" if verdict["gpus"] > total else None)
        assert is_refused(advice) == bool(theirs), f"{nodes}, {flags}: ours {advice}, theirs {theirs}"
        if not theirs:
            assert idle_gpus(advice) == total - verdict["gpus"], (nodes, flags)
    return verdicts


def test_openrlhf_and_the_preset_agree() -> None:
    draw = random.Random(3)
    guide = {"--pretrain": "m", "--remote_rm_url": "http://x", "--n_samples_per_prompt": "2"}
    guide |= {"--advantage_estimator": "rloo", **documents.XDAN_RL}
    cases = [(2, guide), (2, {**guide, "--colocate_actor_ref": ""})]
    cases += [(nodes, draw_flags(draw, nodes)) for nodes in (1, 2, 3) for _ in range(3)]
    for generation in GENERATIONS:
        alone, together, *_ = compare_openrlhf(cases, generation)
        assert (alone["gpus"], together["gpus"]) == (24, 16)


def test_openrlhf_accepts_the_arguments_of_the_preset() -> None:
    flags = {"--pretrain": "m", "--reward_pretrain": "r", "--colocate_all_models": ""}
    flags |= {"--vllm_num_engines": "6", "--vllm_tensor_parallel_size": "4"}
    for generation, separator in (("openrlhf-old", "_"), ("openrlhf-new", ".")):
        advice = openrlhf(flags, generation, nodes=3)
        assert isinstance(advice.run, list)
        assert not is_refused(advice)
        (verdict,) = ask(generation, [[*advice.run[len(OPENRLHF_RUN) :]]])
        if generation == "openrlhf-new":  # the old one refuses batch sizes that 24 does not divide
            assert (verdict["error"], verdict["gpus"]) == (None, 24)
        for model in ("actor", "ref", "critic", "reward"):
            passed = [
                verdict["args"][f"{model}{separator}{count}"] for count in ("num_nodes", "num_gpus_per_node")
            ]
            assert passed == [3, NODE], model


@pytest.mark.full
@pytest.mark.parametrize("generation", GENERATIONS)
def test_openrlhf_and_the_preset_agree_on_many(generation: str) -> None:
    draw = random.Random(4)
    cases = [(nodes, draw_flags(draw, nodes)) for nodes in (1, 2, 3, 4) for _ in range(75)]
    verdicts = compare_openrlhf(cases, generation)
    accepted = sum(
        verdict["error"] is None and verdict["gpus"] <= nodes * NODE
        for (nodes, _), verdict in zip(cases, verdicts, strict=True)
    )
    assert 40 < accepted < 260, "the cases must not all have the same verdict"


@pytest.mark.parametrize(
    ("flags", "gpus"),
    [
        # OpenRLHF divides a model that is larger than a node between two nodes.
        ({"--actor_num_gpus_per_node": "16", "--init_kl_coef": "0"}, 16),
        ({"--actor_num_nodes": "16", "--actor_num_gpus_per_node": "1", "--init_kl_coef": "0"}, 16),
    ],
    ids=["more than a node", "more nodes"],
)
def test_placements_that_only_the_preset_refuses(flags: dict[str, str], gpus: int) -> None:
    common = {"--pretrain": "m", "--remote_rm_url": "http://x", "--n_samples_per_prompt": "2"}
    advice = openrlhf({**common, "--advantage_estimator": "rloo", **flags}, "openrlhf-new")
    assert isinstance(advice.run, list)
    (verdict,) = ask("openrlhf-new", [advice.run[len(OPENRLHF_RUN) :]])
    assert (verdict["error"], verdict["gpus"]) == (None, gpus)
    assert is_refused(advice)


# -- verl ------------------------------------------------------------------------------------------

VERL_RUN = ["python3", "-m", "verl.trainer.main_ppo"]
CLUSTER = ("trainer.nnodes", "trainer.n_gpus_per_node")


def verl(nodes: int, gpus: int, overrides: list[str]) -> Advice:
    return advise(
        JobSpec.model_validate(
            {
                "preset": {"name": "verl", "version": "0.9.1"},
                "slurm": {"nodes": nodes, "gpus_per_node": gpus},
                "run": [*VERL_RUN, *overrides],
                "requeue": {"max": 1},
            }
        )
    )


def compare_verl(cases: list[tuple[int, int, list[str]]]) -> list[dict[str, Any]]:
    ours = [verl(*case) for case in cases]
    lists = [
        [*advice.run[len(VERL_RUN) :], *advice.resume] for advice in ours if isinstance(advice.run, list)
    ]
    verdicts = ask("verl", lists)
    for (nodes, gpus, overrides), advice, verdict in zip(cases, ours, verdicts, strict=True):
        assert verdict["refused"] == {}, overrides
        asked = sum(sum(pool) for pool in verdict["pools"].values())
        groups = [
            Group(name, [Bundle(3, 1)] * size, "STRICT_PACK")
            for name, pool in verdict["pools"].items()
            for size in pool
        ]
        theirs = not groups or bool(place(groups, [Bundle(99, gpus)] * nodes).waiting)
        exact = len(verdict["pools"]) > 1 or verdict["pools"].get("global_pool") == [gpus] * nodes
        assert is_refused(advice) == (theirs or not exact), (
            f"{overrides}: ours {advice}, theirs {verdict['pools']}"
        )
        if not is_refused(advice):
            assert idle_gpus(advice) == nodes * gpus - asked, overrides
    return verdicts


def guide_without(*names: str) -> list[str]:
    return [override for override in documents.VERL_DSTACK if override.partition("=")[0] not in names]


def test_verl_and_the_preset_agree() -> None:
    plain = guide_without(*CLUSTER, "trainer.resume_mode")
    odd = ["trainer.logger=['console','wandb']", "+ray_kwargs.ray_init.runtime_env.env_vars.A='x y'"]
    (verdict, *_) = compare_verl(
        [(2, 8, [*plain, *odd]), (4, 4, guide_without(*CLUSTER)), (3, 8, documents.VERL_DSTACK)]
    )
    assert verdict["error"] is None
    assert verdict["pools"] == {"global_pool": [8, 8]}
    assert verdict["config"]["trainer"]["resume_mode"] == "auto"
    assert verdict["config"]["trainer"]["logger"] == ["console", "wandb"]


@pytest.mark.full
def test_verl_and_the_preset_agree_on_default_pool_sizes() -> None:
    reward, distillation = "reward.reward_model", "distillation"
    own = [
        *guide_without(*CLUSTER),
        *(f"{name}=4" for name in CLUSTER),
        f"{reward}.enable_resource_pool=True",
    ]
    fits, wide, empty, _ = compare_verl(
        [
            (5, 8, [*own, f"{reward}.nnodes=1"]),
            (5, 4, [*own, f"{reward}.nnodes=1"]),
            (5, 8, own),
            (6, 8, [*own, f"{reward}.nnodes=1", f"{distillation}.enabled=true", f"{distillation}.nnodes=1"]),
        ]
    )
    assert fits["pools"] == wide["pools"] == {"global_pool": [4] * 4, "reward_pool": [8]}
    assert "nnodes must be greater than 0" in empty["error"]


@pytest.mark.full
def test_verl_and_the_preset_agree_on_many() -> None:
    draw = random.Random(5)
    plain, cases = guide_without(*CLUSTER), []
    for _ in range(60):
        nodes, gpus = draw.choice((1, 2, 3, 8)), draw.choice((1, 4, 8))
        more: list[str] = []
        if draw.random() < 0.3:
            more = [f"{name}={draw.choice((1, 2, 4, 8))}" for name in CLUSTER]
        elif draw.random() < 0.5:
            pool = draw.choice(("reward.reward_model", "distillation"))
            switch = {"distillation": "enabled"}.get(pool, "enable_resource_pool")
            given = [name for name in (f"{pool}.nnodes", f"{pool}.n_gpus_per_node") if draw.random() < 0.7]
            sizes = [f"{name}={draw.choice((1, 2, 4))}" for name in (*CLUSTER, *given)]
            more = [*sizes, f"{pool}.{switch}=True"]
        cases.append((nodes, gpus, [*plain, *more]))
    compare_verl(cases)


# -- SkyRL -----------------------------------------------------------------------------------------


def test_skyrl_and_its_preset_agree_on_engines() -> None:
    """Engines share the policy's GPUs, all of them; with enable_pd some of them, and not all, prefill."""
    run = ["python3", "-m", "skyrl.train.entrypoints.main_base", "trainer.policy_mini_batch_size=32"]
    run.append("trainer.train_batch_size=32")
    keys = ("num_engines", "tensor_parallel_size", "data_parallel_size", "enable_pd", "num_prefill")
    sizes = list(itertools.product((1, 2, 4, 16), (1, 2, 4, 16), (1, 2), ("true", "false"), (0, 1, 2)))
    results = []
    for values in sizes:
        given = zip(keys, values, strict=True)
        options = [f"generator.inference_engine.{key}={value}" for key, value in given]
        slurm = {"nodes": 2, "gpus_per_node": 8, "cpus_per_task": 64}
        spec = {"preset": "skyrl", "slurm": slurm, "run": [*run, *options]}
        results.append(advise(JobSpec.model_validate(spec)))
    cases = [[*advice.run[3:]] for advice in results if isinstance(advice.run, list)]
    for size, advice, verdict in zip(sizes, results, ask("skyrl", cases), strict=True):
        assert is_refused(advice) == bool(verdict["error"]), (size, advice.problems, verdict)
