"""Settings: their types, their values and their text."""

import json
import re
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import get_type_hints, is_typeddict

from slurmray.agent.script_parts import read_settings, read_start_settings
from slurmray.errors import SpecError
from slurmray.loading.validate import make_plan
from slurmray.plan import Plan
from slurmray.rendering.job_settings import make_settings
from slurmray.rendering.pretty_json import format_json
from slurmray.rendering.script import render_script
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of
from tests.unit.agent.wire_types import SETTINGS

from .cases import MARKED, every_case, load_case


def annotations() -> Any:
    """The TypedDict Settings, which the module defines for type checkers only."""
    return SETTINGS["Settings"], SETTINGS


def misfits(value: Any, hint: Any, names: dict[str, Any], path: str = "") -> list[str]:
    """Return a message for each part of a value that does not have the annotated type."""
    if is_typeddict(hint):
        hints = get_type_hints(hint, names)
        for key in hint.__optional_keys__ - {*(value or ())}:
            del hints[key]
        if not isinstance(value, dict) or list(value) != list(hints):
            return [f"{path}: {value!r} has not the keys {list(hints)}, in that order"]
        return [text for key in hints for text in misfits(value[key], hints[key], names, f"{path}.{key}")]
    if get_origin(hint) is Union:
        return min((misfits(value, option, names, path) for option in get_args(hint)), key=len)
    if get_origin(hint) is list:
        items = value if isinstance(value, list) else [value, "not a list"]
        return [text for item in items for text in misfits(item, get_args(hint)[0], names, f"{path}[]")]
    if get_origin(hint) is dict:
        keys, values = get_args(hint)
        return [
            text
            for key, item in value.items()
            for text in misfits(key, keys, names, path) + misfits(item, values, names, f"{path}[{key}]")
        ]
    return [] if hint is Any or type(value) is hint else [f"{path}: {value!r} is no {hint}"]


@every_case
@pytest.mark.usefixtures("in_checkout")
def test_settings_have_the_types_of_the_agent(path: Path, runtime: str | None) -> None:
    hint, names = annotations()
    assert misfits(make_settings(plan_of(load_case(path, runtime)), "again"), hint, names) == []


def test_a_spec_with_every_field_has_these_types_too() -> None:
    hint, names = annotations()
    values = make_settings(plan_of(JobSpec.model_validate(MARKED)), "again")
    assert misfits(values, hint, names) == []


def test_misfits_finds_wrong_types() -> None:
    hint, names = annotations()
    values: dict[str, Any] = {**make_settings(plan_of(JobSpec()), "again")}
    (group,) = values["groups"]
    wrong = {**values, "groups": [{**group, "nodes": "2"}]}
    assert misfits(wrong, hint, names) == [".groups[].nodes: '2' is no <class 'int'>"]
    assert misfits({**values, "groups": [{**group, "nodes": True}]}, hint, names)
    assert misfits({**values, "env": {"A": None}}, hint, names)
    assert misfits({key: values[key] for key in values if key != "groups"}, hint, names)


def settings(**fields: Any) -> Any:
    return make_settings(plan_of(JobSpec.model_validate(fields)), "again")


def test_values_of_the_settings() -> None:
    assert settings()["container"]["runtimes"] == ["podman", "docker"]
    assert settings(run="echo $HOME")["trainer"]["command"] == [*("bash", "-c", "echo $HOME", "slurmray")]
    assert settings()["trainer"]["command"] == [], "the built-in check"
    assert settings(stop={"signal": "INT"})["stop"]["cancel_signal"] == "INT"
    assert settings(stop={"signal": "INT"}, requeue={"exit_code": 9})["stop"]["cancel_signal"] == "TERM"
    assert settings(env={"A": "b", "SECRET": None})["env"] == {"A": "b"}
    assert settings(env={"A": "b", "SECRET": None})["env_from_submitter"] == ["SECRET"]
    assert settings(checks={"paths": ["/a"]}, preflight="none")["checks"]["paths"] == []
    (mount,) = settings(container={"mounts": ["a:/b:ro,z,rslave"]})["container"]["mounts"]
    assert mount == {"source": "a", "destination": "/b", "options": ["ro", "rslave"]}
    assert settings(container={"runtime": "none", "step_args": ["--x"]})["container"]["step_args"] == ["--x"]
    groups = settings(slurm={"groups": [{"name": "head"}, {"name": "gpu", "nodes": 2}]})["groups"]
    assert [(group["name"], group["nodes"]) for group in groups] == [("head", 1), ("gpu", 2)]
    (service,) = settings(services=[{"name": "a", "run": "b", "image": "c"}])["services"]
    assert service["image_with_registry"] == "docker.io/library/c"
    assert service["run"] == ["bash", "-c", "b"]


def test_a_check_of_nodes_sends_no_notices() -> None:
    spec = JobSpec.model_validate({"notify": {"url": "env:HOOK", "on": ["end"]}})
    assert make_settings(plan_of(spec), "again")["notify"] == {"variable": "HOOK", "on": ["end"]}
    assert make_settings(plan_of(spec), "again", only_checks=True)["notify"] is None
    assert settings(notify={"url": "env:HOOK"})["env_from_submitter"] == []


def test_the_heartbeat_timeout() -> None:
    assert settings()["timeouts"]["heartbeat"] == 25
    assert settings(heartbeat_timeout=120)["timeouts"]["heartbeat"] == 120


def test_arguments_for_the_runtime() -> None:
    values = settings(container={"user": "1000:100", "ulimits": ["memlock=-1:-1"], "args": ["--cap-add=X"]})
    args = ["--user", "1000:100", "--ulimit", "memlock=-1:-1", "--cap-add=X"]
    assert values["container"]["args"] == args
    assert settings(container={"user": "image"})["container"]["args"] == []


def test_gpus_of_the_job_and_of_ray() -> None:
    def gpus(values: Any) -> tuple[int, int, bool]:
        (group,) = values["groups"]
        return group["gpus_per_node"], values["ray"]["gpus"], values["slurm_counts_gpus"]

    assert gpus(settings(slurm={"gres": "gpu:h100:2,nvme:1"})) == (2, 2, True)
    services = [{"name": "a", "run": "x", "gpus": 2}, {"name": "b", "run": "x", "gpus": 1}]
    assert gpus(settings(slurm={"gpus_per_node": "8"}, services=services)) == (8, 5, True)
    values = settings(ray={"gpus_per_node": 4}, services=services[:1])
    assert gpus(values) == (4, 2, False)
    assert values["container"]["accelerators"] == ["nvidia", "amd"]


@pytest.mark.parametrize(
    ("slurm", "accelerator", "expected"),
    [
        ({}, "auto", []),
        ({"gpus_per_node": "2"}, "auto", ["nvidia", "amd"]),
        ({"gpus_per_node": "2"}, "amd", ["amd"]),
        ({"gpus_per_node": "2"}, "none", []),
    ],
)
def test_accelerators(slurm: dict[str, str], accelerator: str, expected: list[str]) -> None:
    values = settings(slurm=slurm, container={"accelerator": accelerator})
    assert values["container"]["accelerators"] == expected


def test_a_preset() -> None:
    run = ["python3", "-m", "verl.trainer.main_ppo", "a=${b}"]
    job: dict[str, Any] = {"slurm": {"nodes": 2, "gpus_per_node": "8"}, "preset": "verl"}
    values = settings(**job, run=run, requeue={"max": 1})
    assert values["trainer"]["command"] == [*run, "trainer.nnodes=2", "trainer.n_gpus_per_node=8"]
    assert values["trainer"]["resume"] == ["trainer.resume_mode=auto"]
    assert not values["checks"]["bf16"]
    run.append("actor_rollout_ref.rollout.dtype=bfloat16")
    assert settings(**job, run=run)["checks"]["bf16"]
    assert not settings(**job, run=run, preflight="none")["checks"]["bf16"]
    roll = settings(**{**job, "preset": "roll"}, run=["python3", "main.py"])
    assert (roll["preset_env"]["RANK"], roll["preset_env"]["MASTER_PORT"]) == ("rank", "ray_port")


def test_a_runtime_environment_is_content_or_a_path() -> None:
    content = {"working_dir": ".", "env_vars": {"A": 'é"'}}
    values = settings(launch="ray-job", ray={"runtime_env": content})["trainer"]
    assert (values["launch"], values["runtime_env"]) == ("ray-job", content)
    path = "verl/trainer/runtime_env.yaml"
    assert settings(launch="ray-job", ray={"runtime_env": path})["trainer"]["runtime_env"] == path
    assert settings(launch="ray-job")["trainer"]["runtime_env"] is None


@pytest.mark.parametrize(
    ("debug", "env", "args"),
    [
        ("none", {}, []),
        ("post-mortem", {"RAY_DEBUG": "1", "RAY_DEBUG_POST_MORTEM": "1"}, []),
        ("legacy", {"RAY_DEBUG": "legacy", "RAY_DEBUG_POST_MORTEM": "0"}, ["--ray-debugger-external"]),
    ],
)
def test_debuggers_exclude_each_other(debug: str, env: dict[str, str], args: list[str]) -> None:
    values = settings(ray={"debug": debug, "args": ["--x"]})
    assert (values["env"], values["ray"]["args"], values["ray"]["debug"]) == (env, ["--x", *args], debug)


# -- images ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("ray:1", "docker.io/library/ray:1"),
        ("rayproject/ray:1", "docker.io/rayproject/ray:1"),
        ("a/b/c", "docker.io/a/b/c"),
        ("quay.io/a/b", "quay.io/a/b"),
        ("localhost/a", "localhost/a"),
        ("registry:5000/a", "registry:5000/a"),
        ("ray@sha256:1234", "docker.io/library/ray@sha256:1234"),
    ],
)
def test_an_image_with_its_registry(image: str, expected: str) -> None:
    container = settings(container={"runtime": "podman", "image": image})["container"]
    assert (container["image"], container["image_with_registry"]) == (image, expected)


@pytest.mark.parametrize(
    ("runtime", "container", "image", "source"),
    [
        ("none", {}, "", ""),
        ("apptainer", {"image": "a/b:1"}, r"a-b-1-[0-9a-f]{8}\.sif", "docker://docker.io/a/b:1"),
        ("apptainer", {"image": "oras://x/b"}, r"oras-x-b-[0-9a-f]{8}\.sif", "oras://x/b"),
        ("apptainer", {"image": "~/b.sif"}, "~/b.sif", ""),
        ("apptainer", {"image": "./b"}, "./b", ""),
        (
            "apptainer",
            {"image": "a/b", "archive": "x.tar"},
            r"a-b-[0-9a-f]{8}\.sif",
            "docker-archive:x.tar",
        ),
        ("singularity", {"image": "a/b:1"}, r"a-b-1-[0-9a-f]{8}\.sif", "docker://docker.io/a/b:1"),
        ("pyxis", {"image": "a/b:1"}, "a/b:1", ""),
        ("pyxis", {"image": "ubuntu"}, "ubuntu", ""),
        ("pyxis", {"image": "ghcr.io/a/b"}, "ghcr.io#a/b", ""),
        ("pyxis", {"image": "ghcr.io#a/b"}, "ghcr.io#a/b", ""),
        ("pyxis", {"image": "/a/b.sqsh"}, "/a/b.sqsh", ""),
    ],
)
def test_how_runtimes_name_an_image(runtime: str, container: dict[str, str], image: str, source: str) -> None:
    values = settings(container={"runtime": runtime, **container})["container"]
    assert re.fullmatch(image, values["image"])
    assert values["source"] == source


def test_a_secret_has_no_value_in_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "Zmark-secret")
    text = render_script(plan_of(JobSpec.model_validate({"env": {"WANDB_API_KEY": None}})))
    assert "WANDB_API_KEY" in text
    assert "Zmark-secret" not in text


# -- the text of the settings ----------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_pretty_is_json_without_invisible_characters(value: object) -> None:
    text = format_json(value)
    assert json.loads(text) == value
    assert format_json(json.loads(text)) == text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\xa0\u2028-\u202e\ud800-\udfff]", text)
    text.encode()


def test_pretty_keeps_short_values_on_a_line() -> None:
    value = {"a": ["x", "y"], "b": {"c": [1], "d": {}}, "e": ["z" * 50, "z" * 60], "f": {"g": 1}}
    assert format_json(value).splitlines() == [
        "{",
        '  "a": ["x", "y"],',
        '  "b": {',
        '    "c": [1],',
        '    "d": {}',
        "  },",
        '  "e": [',
        f'    "{"z" * 50}",',
        f'    "{"z" * 60}"',
        "  ],",
        '  "f": {"g": 1}',
        "}",
    ]


def fewer_nodes(preset: str, run: list[str], min_nodes: int = 2, **fields: Any) -> Plan:
    """The plan of a job on 4 nodes with 8 GPUs each."""
    slurm = {"nodes": 4, "gpus_per_node": 8}
    restart = {"on_node_loss": "restart", "restart": {"min_nodes": min_nodes}}
    spec = {"preset": preset or None, "slurm": slurm, "run": run, **restart, **fields}
    return make_plan(JobSpec.model_validate(spec))


VERL = ["python3", "-m", "verl.trainer.main_ppo"]
TP = "actor_rollout_ref.rollout.tensor_model_parallel_size=16"  # an engine takes two nodes
OPENRLHF = "python3 -m openrlhf.cli.train_ppo_ray --colocate_all_models --vllm_tensor_parallel_size 8"


def test_what_differs_on_fewer_nodes() -> None:
    plan = fewer_nodes("verl", VERL)
    hint, names = annotations()
    assert misfits(make_settings(plan, "again"), hint, names) == []
    own = {"groups.0.nodes": 3, "ray.nodes": 3, "trainer.nnodes": 3}
    found = make_settings(plan, "again")["fewer_nodes"]
    assert found["3"] == {**own, "trainer.command.3": "trainer.nnodes=3"}
    assert list(found) == ["2", "3"]
    assert make_settings(fewer_nodes("", ["x"], 3), "again")["fewer_nodes"] == {"3": own}
    assert "fewer_nodes" not in settings()


@pytest.mark.parametrize(
    ("preset", "run", "fields"),
    [
        ("verl", [*VERL, "a=b"], {}),
        ("openrlhf", OPENRLHF.split(), {}),
        ("", ["x"], {}),
        # On two nodes only the head node is in Ray.
        (
            "verl",
            VERL,
            {"services": [{"name": "a", "run": "x", "where": 1}, {"name": "b", "run": "x", "gpus": 2}]},
        ),
    ],
)
def test_settings_of_a_start_on_fewer_nodes(preset: str, run: list[str], fields: dict[str, Any]) -> None:
    """They are those of the same job with so many nodes."""
    text = render_script(fewer_nodes(preset, run, **fields), "again")
    written = read_settings(text)
    assert read_start_settings(text, 4) == written
    for nodes in (2, 3):
        slurm = {"nodes": nodes, "gpus_per_node": 8}
        more = {"preset": preset or None, "slurm": slurm, "run": run, "on_node_loss": "restart", "spares": 1}
        expected: Any = make_settings(plan_of(JobSpec.model_validate({**more, **fields})), "again")
        expected["groups"][0]["spares"] = 0
        expected["fewer_nodes"] = written["fewer_nodes"]
        assert read_start_settings(text, nodes) == expected


def test_numbers_of_nodes_to_which_the_placement_does_not_fit() -> None:
    plan = fewer_nodes("verl", [*VERL, TP])
    assert list(plan.fewer_nodes) == [2]
    _, remark = plan.advice.remarks  # the other one: that slurm.cpus_per_task is not set
    assert remark.startswith(
        "restart.min_nodes: no start on 3; on 3 nodes: rollout.tensor_model_parallel_size=16: "
    )
    with pytest.raises(SpecError) as error:
        fewer_nodes("openrlhf", [*OPENRLHF.split(), "--vllm_num_engines", "4"])
    (problem,) = error.value.problems
    assert problem.path == ("restart", "min_nodes")
    assert problem.text == (
        "restart.min_nodes: no start on 2-3; on 3 nodes: vllm 4 engines x 8 (32) and actor 3 x 8 (24): the "
        "engines use the actor's GPUs because of --colocate_all_models: write --vllm_num_engines 3"
    )
    with pytest.raises(
        SpecError, match=r"^restart\.min_nodes: it is slurm\.nodes; lower it, or leave it out$"
    ):
        fewer_nodes("verl", VERL, 4)


def test_services_that_leave_no_node_for_ray() -> None:
    plan = fewer_nodes("", ["x"], services=[{"name": "a", "run": "x", "where": 2}])
    assert list(plan.fewer_nodes) == [3]
    (remark,) = plan.advice.remarks
    assert "on 2 nodes: services: a: where: 2 of 2 nodes leaves none for Ray" in remark


def test_settings_of_a_script() -> None:
    text = render_script(plan_of(JobSpec()), "again")
    assert read_settings(text) == make_settings(plan_of(JobSpec()), "again")
    with pytest.raises(ValueError, match="SETTINGS"):
        read_settings("#!/bin/bash\n")


def test_options_of_mounts_that_change_nothing_are_left_out() -> None:
    """Podman would take Z for a mode of bind propagation, and refuse it."""
    given = ["/a", "/a:/b:rw,Z", "/a:/c:z,ro,rslave"]
    mounts = settings(container={"mounts": given})["container"]["mounts"]
    assert [mount["options"] for mount in mounts] == [[], [], ["ro", "rslave"]]


@pytest.mark.parametrize(
    ("size", "expected"), [("3K", 3 * 1024), ("5M", 5 * 1024**2), ("32G", 32 * 1024**3), ("1T", 1024**4)]
)
def test_memory_of_the_head_node_is_in_bytes(size: str, expected: int) -> None:
    assert settings(ray={"head": {"memory": size}})["ray"]["head"]["memory"] == expected
