# ruff: noqa: E501 - one line for one mistake
"""RLinf's preset, with the placements of RLinf's guide and many that RLinf refuses."""

from pathlib import Path
from typing import Any

import pytest

from slurmray.errors import SpecError
from slurmray.loading.load import load_plan
from slurmray.presets import advise
from slurmray.spec.job_spec import JobSpec

PYTHON = ["python", "examples/reasoning/main_grpo.py", "--config-name", "math"]
SCRIPT = ["bash", "examples/math/run_main_math_grpo_megatron.sh", "math"]
NODE_ENV = {"RLINF_NODE_RANK": "rank", "RANK": "rank", "RLINF_COMM_NET_DEVICES": "interface"}
NO_REWARD = (
    "cluster.component_placement names no reward, so RLinf ends with 'Reward GPUs must be specified': "
    "place it, e.g. `actor,rollout,reward: all`; it may share GPUs"
)
GUIDE = "rollout: 0-19\n    inference: 20-23\n    actor: 24-31"
WITH_REWARD = GUIDE.replace("actor", "actor,reward")
SCRIPT_NOTE = "run is a script, so nothing is added to it: pass cluster.num_nodes=$NNODES"


pytestmark = pytest.mark.usefixtures("current_folder")


def job(placement: str, *overrides: str, nodes: int = 4, head: str = "", **fields: Any) -> JobSpec:
    """A job of RLinf on nodes with 8 GPUs each. placement: below cluster.component_placement. head: above it."""
    Path("math.yaml").write_text(f"cluster:\n{head}  component_placement:\n    {placement}\n")
    spec = {
        "preset": {"name": "rlinf", "config": "math.yaml"},
        "slurm": {"nodes": nodes, "gpus_per_node": 8},
        "run": [*PYTHON, *overrides],
    }
    return JobSpec.model_validate({**spec, **fields})


def mistakes(spec: JobSpec) -> list[str]:
    advice = advise(spec)
    return [finding.text for finding in advice.problems] + [
        str(problem) for problem in advice.config_problems
    ]


# -- what is filled in -----------------------------------------------------------------------------


def test_what_is_filled_in() -> None:
    advice = advise(job(WITH_REWARD, "actor.model.path=${oc.env:M}", "+x=['a','b']", head="  num_nodes: 1\n"))
    assert advice.run == [*PYTHON, "actor.model.path=${oc.env:M}", "+x=['a','b']", "cluster.num_nodes=4"]
    assert (advice.env, advice.node_env) == ({}, NODE_ENV)
    assert (advice.problems, advice.config_problems, advice.remarks, advice.resume) == ([], [], [], [])


def test_a_head_node_that_offers_no_gpus() -> None:
    spec = job(GUIDE, nodes=5, ray={"head": {"gpus": 0}})
    assert mistakes(spec) == ["rlinf places its parts on all nodes in Ray: leave ray.head.gpus out"]


def test_the_user_s_own_interface_wins() -> None:
    spec = job(GUIDE, env={"NCCL_SOCKET_IFNAME": "ib0"})
    assert advise(spec).node_env == {"RLINF_NODE_RANK": "rank", "RANK": "rank"}
    assert advise(job(GUIDE, env={"RLINF_COMM_NET_DEVICES": "ib0"})).problems == []


def test_the_user_s_own_rank_is_refused() -> None:
    [finding] = advise(job(GUIDE, env={"RLINF_NODE_RANK": "0"})).problems
    assert finding.text == "RLINF_NODE_RANK: slurmray sets it on each node for rlinf: leave it out"


def test_a_file_that_takes_its_placement_from_another() -> None:
    Path("other.yaml").write_text("defaults: [base]\n")
    spec = job(GUIDE, preset={"name": "rlinf", "config": "other.yaml"})
    assert [note for note in advise(spec).remarks if "placement" in note] == [
        "the placement is not checked: other.yaml has no cluster.component_placement: "
        "copy it there from the file that `defaults` names"
    ]


def test_a_script_gets_a_note_with_the_arguments() -> None:
    advice = advise(job(WITH_REWARD, run=SCRIPT))
    assert (advice.run, advice.remarks, mistakes(job(WITH_REWARD, run=SCRIPT))) == (SCRIPT, [SCRIPT_NOTE], [])
    assert advise(job(WITH_REWARD, run=SCRIPT, head="  num_nodes: 4\n")).remarks == []


def test_without_its_file_the_placement_is_not_known() -> None:
    advice = advise(job(GUIDE, preset="rlinf"))
    assert (advice.run, advice.node_env) == ([*PYTHON, "cluster.num_nodes=4"], NODE_ENV)
    assert advice.remarks == ["the placement is not checked: set preset.config to RLinf's YAML file"]


def test_the_built_in_check_gets_the_variables() -> None:
    advice = advise(job("rollout: 0-99", run=None))
    assert (advice.run, advice.node_env, advice.config_problems) == (None, NODE_ENV, [])


@pytest.mark.parametrize(
    ("run", "version", "expected"),
    [
        (PYTHON, None, ["runner.resume_dir=auto"]),
        (PYTHON, "0.3.0", ["runner.resume_dir=auto"]),
        (PYTHON, "0.1", []),
        ([*PYTHON, "runner.resume_dir=logs/global_step_9"], None, []),
        (["python", "examples/embodiment/train_embodied_agent.py"], None, []),
    ],
)
def test_resuming(run: list[str], version: str | None, expected: list[str]) -> None:
    preset = {"name": "rlinf", "config": "math.yaml", "version": version}
    advice = advise(job(WITH_REWARD, run=run, preset=preset, requeue={"max": 1}))
    assert advice.resume == expected
    note = "after a restart RLinf starts from the beginning: set runner.resume_dir to a checkpoint's folder"
    assert advice.remarks == ([] if expected or len(run) > 4 else [note])


# -- placements ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("actor,rollout: all", None),
        ("actor, rollout, reward: ALL", None),
        (GUIDE, None),
        (f"{GUIDE}\n    reward: 0-19", None),
        ("rollout: 0-15\n    inference: 16-23\n    actor: 24-31\n    reward: 0-15", None),
        ("actor,rollout: 0-31", None),
        ("actor,env,rollout: all", None),
        ("env: 0-31\n    rollout: 0-15\n    actor: 8-31", None),
        ("actor,reward: all\n    rollout: 0-15\n    rollout_judge: 16-31", None),
        ("actor: 0-15,16-31\n    rollout: 0-31", None),
        ("env: 0-3:0-31,4-31\n    actor,rollout: all", None),
        ("env: 0-31:0-7\n    actor,rollout: all", None),
        ("actor,rollout: all\n    tool:\n      node_group: node\n      placement: 0-99", None),
        ("actor,rollout: {placement: all}", None),
        ("actor: ${oc.env:A}\n    rollout: 0-19", None),
        # too many
        ("rollout: 0-39\n    actor: 40-47", "3:5: rollout 0-39 (40) + actor 40-47 (8) = 48 GPUs, the job has 4 nodes x 8 = 32: set slurm.nodes: 6, or place them on GPUs 0 to 31"),
        ("actor,rollout: 0-32", "3:5: actor,rollout 0-32 (33) = 33 GPUs, the job has 4 nodes x 8 = 32: set slurm.nodes: 5, or place them on GPUs 0 to 31"),
        ("actor,rollout: 0-31\n    reward: 40", "4:5: actor,rollout 0-31 (32), reward 40 (1) reach GPU 40, the job has 4 nodes x 8 = 32: set slurm.nodes: 6, or place them on GPUs 0 to 31"),
        ("env: 0-63\n    actor,rollout: all", "3:5: env 0-63 (64), actor,rollout all (32) reach GPU 63, the job has 4 nodes x 8 = 32: set slurm.nodes: 8, or place them on GPUs 0 to 31"),
        ("actor,rollout: {placement: 0-32}", "3:5: actor,rollout 0-32 (33) = 33 GPUs, the job has 4 nodes x 8 = 32: set slurm.nodes: 5, or place them on GPUs 0 to 31"),
        # shared by some
        ("rollout: 0-20\n    inference: 20-23\n    actor: 24-31", "4:5: rollout 0-20 and inference 20-23 both have 20: let actor and rollout share all of their GPUs, or no component share any"),
        ("actor: 0-15\n    rollout: 8-31", "4:5: actor 0-15 and rollout 8-31 both have 8-15: let actor and rollout share all of their GPUs, or no component share any"),
        ("actor: all\n    rollout: 0-15", "4:5: actor all and rollout 0-15 both have 0-15: let actor and rollout share all of their GPUs, or no component share any"),
        ("rollout: 0-15\n    actor: 16-31\n    critic: 24-31", "4:5: critic 24-31 and actor 16-31 both have 24-31: let actor and rollout share all of their GPUs, or no component share any"),
        ("actor,rollout: all\n    inference: 0-3", "4:5: inference: actor and rollout, which share their GPUs, do it themselves: leave it out"),
        ("actor,rollout: all\n    actor_inference: 0-3", "4:5: inference: actor and rollout, which share their GPUs, do it themselves: leave it out"),
        ("actor: 0-7,16-31\n    rollout: 8-15", "3:5: actor has GPUs 0-7, 16-31: RLinf needs them without a gap"),
        # the grammar
        ("actor,rollout: 31-0", "3:5: actor,rollout: 31-0: ends before it begins"),
        ("actor,rollout: 0-31,31", "3:5: actor,rollout: 31: comes after GPU 31; write the ranges in order, each GPU once"),
        ("actor,rollout: 16-31,0-15", "3:5: actor,rollout: 0-15: comes after GPU 31; write the ranges in order, each GPU once"),
        ("actor,rollout: 0..31", "3:5: actor,rollout: '0..31': expected GPUs, e.g. 0-7, 3, all, or GPUs and processes, e.g. 0-3:0-7"),
        ("actor,rollout: -1", "3:5: actor,rollout: '-1': expected GPUs, e.g. 0-7, 3, all, or GPUs and processes, e.g. 0-3:0-7"),
        ("actor,rollout: 0-31:all", "3:5: actor,rollout: '0-31:all': expected GPUs, e.g. 0-7, 3, all, or GPUs and processes, e.g. 0-3:0-7"),
        ("actor,rollout: ' , '", "3:5: actor,rollout: is empty; expected GPUs, e.g. 0-7, or all"),
        ("actor,rollout: 0-31:0-2", "3:5: actor,rollout: 0-31:0-2: 32 GPUs and 3 processes; one must divide the other"),
        ("actor,rollout: 0-15:0-15,16-31:17-32", "3:5: actor,rollout: 16-31:17-32: its first process is 17, expected 16"),
        ("env: 0-31:0-1\n    actor,rollout: all", "3:5: env 0-31:0-1: a process on GPUs 0-15 would lie across nodes of 8: give it more processes"),
        ("actor,rollout: all\n    rollout: 0-31", "4:5: rollout is placed twice: leave it out of 'rollout', or of the other"),
    ],
)  # fmt: skip
def test_placements(placement: str, expected: str | None) -> None:
    assert mistakes(job(placement)) == ([f"math.yaml:{expected}"] if expected else [])


def test_the_guides_32_gpus_on_two_nodes() -> None:
    assert mistakes(job(GUIDE, nodes=2)) == [
        "math.yaml:3:5: rollout 0-19 (20) + inference 20-23 (4) + actor 24-31 (8) = 32 GPUs, the job has 2 nodes x 8 = 16: set slurm.nodes: 4, or place them on GPUs 0 to 15"
    ]


def test_overrides_win_over_the_file() -> None:
    wider = "cluster.component_placement.rollout=0-23"
    (mistake,) = mistakes(job(GUIDE, wider))
    assert mistake.startswith("math.yaml:4:5: rollout 0-23 and inference 20-23 both have 20-23: ")
    (problem,) = advise(job(GUIDE, "cluster.component_placement.actor=24-39")).problems
    assert problem.path == ("run", 4)
    assert problem.text.startswith("rollout 0-19 (20) + inference 20-23 (4) + actor 24-39 (16) = 40 GPUs, ")
    assert mistakes(job(GUIDE, wider, "~cluster.component_placement.inference")) == []
    assert mistakes(job("rollout: 0-99", "cluster.component_placement.rollout=0-31")) == []
    assert mistakes(job("rollout: 0-99", "cluster.component_placement={rollout: all}")) == []
    assert mistakes(job("rollout: 0-99", "cluster.component_placement.rollout=$R")) == []


@pytest.mark.parametrize(
    ("placement", "sizes", "expected"),
    [
        ("rollout: 0-15\n    actor: 16-31", [8], None),
        ("rollout: 0-15\n    actor: 16-31", [4, 2], None),
        ("rollout: 0-15\n    actor: 16-31", ["$TP"], None),
        ("actor,rollout: all", [2, 1, 8], None),
        ("rollout: 4-11\n    actor: 16-31", [8], "3:5: rollout 4-11 (8): rollout.tensor_parallel_size 8: an engine on GPUs 4-11 would lie across nodes of 8: choose a smaller one, or other GPUs"),
        ("rollout: 0-19\n    actor: 24-31", [4, 2], "3:5: rollout 0-19 (20): rollout.tensor_parallel_size 4 x rollout.pipeline_parallel_size 2: engines of 8 do not divide 20 GPUs: choose a divisor"),
        ("actor,rollout: all", [1, 1, 16], "3:5: actor,rollout all (32): rollout.tensor_parallel_size 1 and actor.model.tensor_model_parallel_size 16: an engine on GPUs 0-15 would lie across nodes of 8: choose a smaller one, or other GPUs"),
        ("actor,rollout: all", [4, 1, 6], "3:5: actor,rollout all (32): rollout.tensor_parallel_size 4 and actor.model.tensor_model_parallel_size 6: the first does not divide the second: choose a divisor"),
    ],
)  # fmt: skip
def test_engines_of_the_rollout(placement: str, sizes: list[Any], expected: str | None) -> None:
    keys = (
        "rollout.tensor_parallel_size",
        "rollout.pipeline_parallel_size",
        "actor.model.tensor_model_parallel_size",
    )
    overrides = [f"{key}={size}" for key, size in zip(keys, sizes, strict=False)]
    assert mistakes(job(placement, *overrides)) == ([f"math.yaml:{expected}"] if expected else [])


IN_ORDER = "cluster.auto_scheduler: {}: place actor, then rollout, then inference, which together are GPUs 0 to 31 without a gap"


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("actor: 0-7\n    rollout: 8-23\n    inference: 24-31", None),
        ("actor: 0-7\n    rollout: 8-23\n    actor_inference: 24-31", None),
        ("actor: 0-7\n    rollout: 8-31", None),
        ("rollout: 8-31\n    actor: 0-7\n    reward: 3", None),
        (GUIDE, IN_ORDER.format("actor 24-31, rollout 0-19, inference 20-23")),
        ("actor: 0-7\n    rollout: 8-23\n    inference: 25-31", IN_ORDER.format("actor 0-7, rollout 8-23, inference 25-31")),
        ("actor: 0-7\n    rollout: 8-15\n    inference: 16-23", IN_ORDER.format("actor 0-7, rollout 8-15, inference 16-23")),
        ("actor,rollout: all", IN_ORDER.replace(", then inference", "").format("actor 0-31, rollout 0-31")),
        ("actor: 0-7\n    rollout: 8-15\n    inference: $I", None),
        ("rollout: 0-15\n    actor: 16-23\n    critic: 24-31", None),  # no effect
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_override", [False, True])
def test_the_order_for_the_auto_scheduler(placement: str, expected: str | None, is_override: bool) -> None:
    overrides = ["cluster.auto_scheduler=True"] if is_override else []
    spec = job(placement, *overrides, head=f"  auto_scheduler: {str(not is_override).lower()}\n")
    at = "" if is_override else "math.yaml:2:3: "
    assert mistakes(spec) == ([at + expected] if expected else [])


@pytest.mark.parametrize(
    ("placement", "overrides", "noted"),
    [
        ("actor,rollout: all", [], True),
        (GUIDE, [], True),
        (WITH_REWARD, [], False),
        ("actor,rollout, reward: all", [], False),
        ("actor,rollout: all\n    reward: ${oc.env:R}", [], False),
        ("actor,rollout: all", ["cluster.component_placement.reward=0-3"], False),
        ("actor,rollout: all\n    reward: 0-3", ["~cluster.component_placement.reward"], True),
        ("actor,env,rollout: all", [], False),
    ],
)
def test_a_language_model_without_a_reward_is_worth_a_note(
    placement: str, overrides: list[str], noted: bool
) -> None:
    assert advise(job(placement, *overrides)).remarks == ([NO_REWARD] if noted else [])


def test_idle_gpus_are_worth_a_note() -> None:
    advice = advise(job("rollout: 0-15\n    inference: 16-19\n    actor,reward: 24-30"))
    assert advice.config_problems == []
    assert advice.remarks == [
        "rollout 0-15 (16), inference 16-19 (4), actor,reward 24-30 (7), the job has 4 nodes x 8 = 32: 5 GPUs idle, 20-23, 31"
    ]


@pytest.mark.parametrize(
    ("head", "overrides", "run", "expected"),
    [
        ("  num_nodes: 2\n", [], SCRIPT, "math.yaml:2:3: cluster.num_nodes is 2, the job has 4 nodes x 8 = 32: write 4, or set slurm.nodes: 2"),
        ("  num_nodes: 2\n", [], PYTHON, None),
        ("  num_nodes: 4\n", ["cluster.num_nodes=8"], PYTHON, "cluster.num_nodes is 8, the job has 4 nodes x 8 = 32: write 4, or set slurm.nodes: 8"),
        ("  num_nodes: 2\n", ["cluster.num_nodes=4"], SCRIPT, None),
        ("  num_nodes: ${N}\n", [], SCRIPT, None),
        ("  num_gpus_per_node: 4\n", [], PYTHON, "math.yaml:2:3: cluster.num_gpus_per_node is 4, the job has 4 nodes x 8 = 32: write 8, or set slurm.gpus_per_node: 4"),
        ("  num_gpus_per_node: 8\n", [], PYTHON, None),
        ("  num_gpus_per_node: 4\n", ["cluster.num_gpus_per_node=8"], PYTHON, None),
    ],
)  # fmt: skip
def test_the_size_of_the_cluster(
    head: str, overrides: list[str], run: list[str], expected: str | None
) -> None:
    lines = mistakes(job(GUIDE, head=head, run=[*run, *overrides]))
    assert lines == ([expected] if expected else [])


def test_the_file_itself() -> None:
    for file, expected in {
        "other.yaml": "No such file or directory; set it to the trainer's YAML file, relative to the current folder",
        "~nosuchuser/x": "no such home folder here; write the path without ~",
    }.items():
        assert mistakes(job(GUIDE, preset={"name": "rlinf", "config": file})) == [f"{file}: {expected}"]
    Path("job.yaml").write_text(
        "preset: {name: rlinf, config: math.yaml}\nslurm: {gpus_per_node: 8}\nrun: [a.py]"
    )
    for text, expected in {
        "# mine\n- a": "math.yaml:2:1: expected `name: value` lines, as the trainer reads them",
        "text": "math.yaml:1:1: expected `name: value` lines, as the trainer reads them",
        "cluster:\n\ta: 1": "math.yaml:2:1: a tab; indent with spaces",
        "cluster: {component_placement: {actor: 0-8}}": "math.yaml:1:33: actor 0-8 (9) = 9 GPUs, the job has 1 node x 8 = 8: set slurm.nodes: 2, or place them on GPUs 0 to 7",
    }.items():
        Path("math.yaml").write_text(text)
        with pytest.raises(SpecError) as caught:
            load_plan(Path("job.yaml"))
        assert str(caught.value) == expected
    for text in (
        "",
        "cluster: 3",
        "cluster: {component_placement: [actor]}",
        "a: !x b",
        "a: {<<: {b: 1}}",
    ):
        Path("math.yaml").write_text(text)
        assert load_plan(Path("job.yaml")).spec.preset


def test_values_that_are_not_numbers() -> None:
    assert mistakes(job("actor,rollout: all", "rollout.tensor_parallel_size=²")) == [
        "rollout.tensor_parallel_size '²': expected a number of GPUs or nodes"
    ]
    for size in ("0", "null"):
        assert mistakes(job("actor,rollout: all", f"rollout.tensor_parallel_size={size}")) == []


def test_numbers_that_no_job_has() -> None:
    much, why = "9" * 5000, f"'{'9' * 57}...': too large, expected a number of GPUs or nodes"
    sizes = [f"{name}={much}" for name in ("cluster.num_gpus_per_node", "rollout.tensor_parallel_size")]
    assert mistakes(
        job("actor,rollout: all", *sizes, head=f"  num_nodes: {much}\n", run=[*PYTHON, *sizes])
    ) == [
        f"cluster.num_gpus_per_node {why}",
        f"rollout.tensor_parallel_size {why}",
    ]
    assert mistakes(job("actor,rollout: all", run=SCRIPT, head=f"  num_nodes: {much}\n")) == [
        f"math.yaml:2:3: cluster.num_nodes {why}"
    ]


def test_a_cluster_too_large_to_be_checked() -> None:
    assert mistakes(job("actor: all", slurm={"nodes": 65536, "gpus_per_node": 99})) == [
        "the job has 65536 x 99 GPUs, placement is checked up to 1000000: request fewer, or leave preset out"
    ]


def test_gpus_of_services() -> None:
    service = {"name": "retriever", "run": "x", "gpus": 2}
    assert mistakes(job("actor,rollout: all", "cluster.num_gpus_per_node=8", services=[service])) == [
        "cluster.num_gpus_per_node is 8, the job has 4 nodes x 6 = 24 (services use 2 of 8 on each node: retriever 2): write 6, or set slurm.gpus_per_node: 10, 8 and those of services"
    ]


@pytest.mark.parametrize(("codes", "count"), [([85], 1), ([1, 255], 0), ([1, 3], 1)])
def test_exit_codes_that_rlinf_hides(codes: list[int], count: int) -> None:
    remarks = advise(job("actor,rollout,reward: 0-31", restart={"exit_codes": codes})).remarks
    assert len([text for text in remarks if text.startswith("restart.exit_codes: ")]) == count
