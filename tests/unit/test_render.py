import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
from pydantic import BaseModel

from slurmray import rendering as renderer
from slurmray import slurm
from slurmray.cli.render import render_job
from slurmray.container_words import with_registry
from slurmray.rendering import Verbatim, quoted, render
from slurmray.spec import JobSpec

ROOT = Path(__file__).parents[2]
GOLDENS = ROOT / "tests/goldens"
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if ".config" not in path.name]
SPECS = [*EXAMPLES, GOLDENS / "hostile.yaml", *sorted(GOLDENS.glob("hostile-*.yaml"))]
# Every other: docker, podman.
RUNTIMES = {
    "hello": ("auto", "docker", "podman", "none"),
    "bare": ("none",),
    "hostile-bare": ("none",),
    "hostile-apptainer": ("apptainer",),
    "hostile-pyxis": ("pyxis",),
    "apptainer": ("apptainer", "pyxis"),
}
CASES = [(spec, runtime) for spec in SPECS for runtime in RUNTIMES.get(spec.stem, ("docker", "podman"))]


@pytest.mark.parametrize(
    ("spec", "runtime"), CASES, ids=[f"{spec.stem}.{runtime}" for spec, runtime in CASES]
)
def test_golden(spec: Path, runtime: str, in_checkout: Path, request: pytest.FixtureRequest) -> None:
    golden = GOLDENS / f"{spec.stem}.{runtime}.sh"
    text = render_job(spec.relative_to(in_checkout), [("--runtime", runtime)], [])[1]
    if request.config.getoption("write_goldens"):
        golden.write_text(text)
    assert golden.read_text() == text, "the script changed: look at it, then make goldens"


def test_no_golden_is_left_over() -> None:
    assert {file.name for file in GOLDENS.glob("*.sh")} == {
        f"{spec.stem}.{runtime}.sh" for spec, runtime in CASES
    }


@pytest.mark.parametrize("golden", sorted(GOLDENS.glob("*.sh")), ids=lambda golden: golden.stem)
def test_no_signal_breaks_bash(golden: Path) -> None:
    """Bash 5.2 ends a script whose trap has its turn between two command substitutions of one command."""
    text = golden.read_text()
    bash = (
        text[text.index("# ---- 2. log") : text.index("declare -A PROGRAMS")]
        + text[text.index("# ---- 6. cluster") :]
    )
    for line in bash.replace("\\\n", " ").splitlines():
        rest, found = re.sub(r"^\w+=\(.*|\(\([^()]*\)\)", "", line.split(" # ")[0]), 1
        while found:  # the innermost ones first
            rest, found = re.subn(r"[$<>]\([^()]*\)", "\0", rest)
        assert rest.count("\0") < 2, line


def test_an_administrator_reads_hello_in_five_minutes() -> None:
    lines = (GOLDENS / "hello.auto.sh").read_text().splitlines()
    python, after = (
        next(number for number, line in enumerate(lines) if line.startswith(start))
        for start in ("declare -A PROGRAMS", "# ---- 6. cluster")
    )
    bash = [
        line for line in lines[:python] + lines[after:] if line.strip() and not line.lstrip().startswith("#")
    ]
    assert len(bash) < 780


# -- where values stand ----------------------------------------------------------------------------

# A value for every field, none of them like anything that the templates say.
MARKED: dict[str, Any] = {
    "name": "Zmark-name",
    "preset": {"name": "verl", "version": "8642012"},
    "slurm": {
        **{
            name.replace("-", "_"): f"Zmark-{name}"
            for name, option in slurm.OPTIONS.items()
            if option.kind == "value"
        },
        **{name.replace("-", "_"): True for name, option in slurm.OPTIONS.items() if option.kind == "flag"},
        **{
            name.replace("-", "_"): f"Zmark-{name}"
            for name, option in slurm.OPTIONS.items()
            if option.kind == "optional"
        },
        "nodes": 18642,
        "cpus_per_task": 8642002,
        "gpus_per_node": "Zmark:8642003",
        "gres": "Zmark:8642004",
        "extra": ["--Zmark-extra=Zmark-extra"],
    },
    "setup": "Zmark-setup",
    "run_dir": "Zmark-run-dir",
    "container": {
        "runtime": "podman",
        "image": "Zmark.image/Zmark:8642005",
        "pull": "never",
        "user": "8642006:8642007",
        "accelerator": "amd",
        "mounts": ["Zmark-source:/Zmark-destination:ro,rslave"],
        "workdir": "/Zmark-workdir",
        "shm_size": "8642008k",
        "ulimits": ["nofile=8642009"],
        "args": ["Zmark-arg"],
    },
    "env": {"Zmark_name": "Zmark-env", "Zmark_secret": None},
    "network": {"interface": "Zmark-interface", "family": "ipv6"},
    "ray": {
        "port": 58642,
        "dashboard_port": 58643,
        "ready_timeout": 8642010,
        "temp_dir": "/Zmark-temp-dir",
        "auth": "none",
        "metrics": True,
        "debug": "legacy",
        "runtime_env": {"env_vars": {"Zmark-variable": "Zmark-value"}, "pip": ["Zmark-pip"]},
        "args": ["Zmark-ray-arg"],
        "head_args": ["Zmark-head-arg"],
        "worker_args": ["Zmark-worker-arg"],
    },
    "prepare": [
        {"name": "zmark", "run": ["Zmark-prepare"], "where": "all", "needs_ray": True, "once": True},
    ],
    "services": [
        {
            "name": "zmark",
            "run": "Zmark-service",
            "where": "head",
            "env": {"Zmark_name": "Zmark-env"},
            "gpus": 1,
            "ready": {"http": "http://Zmark", "post": "Zmark-post", "timeout": 8642012},
            "restarts": 8642013,
            "on_end": "ignore",
        },
        {"name": "zmark-b", "run": "Zmark-service", "image": "Zmark.io/zmark"},
    ],
    "run": ["Zmark-run"],
    "launch": "ray-job",
    "checks": {"paths": ["Zmark-path"], "same_commit": "Zmark-commit"},
    "preflight": "warn",
    "stop": {"lead": 58644, "signal": "QUIT", "grace": 17},
    "on_node_loss": "continue",
    "requeue": {"max": 8642011, "exit_code": 249},
}
MARKS = ("Zmark", "zmark", "8642", "58644", "QUIT")


def left_at_default(spec: BaseModel, path: str = "") -> Iterator[str]:
    for name, field in type(spec).model_fields.items():
        value = getattr(spec, name)
        if isinstance(value, BaseModel):
            yield from left_at_default(value, f"{path}{name}.")
        elif value == field.get_default(call_default_factory=True):
            yield path + name


@pytest.mark.parametrize(
    ("image", "other"),
    [
        ({"build": {"file": "Zmark-file", "context": "Zmark-context"}}, "archive"),
        ({"archive": "Zmark-archive"}, "build"),
    ],
)
def test_values_stand_in_the_assignment_block_only(image: dict[str, Any], other: str) -> None:
    spec = JobSpec.model_validate(MARKED | {"container": MARKED["container"] | image})
    only_read = "preset.config"  # a file of which nothing gets into the script
    given = {only_read, f"container.{other}"}
    assert set(left_at_default(spec)) == given, "give the new fields a value in MARKED"
    values, mark, rest = render(spec, "Zmark-command").partition("\n# ---- 2. log")
    assert mark
    found = [line for line in rest.splitlines() if any(mark in line for mark in MARKS)]
    assert found == []
    head, mark, block = values.partition("\n# ---- 1. values")
    assert mark
    lines = [line for line in head.splitlines() if any(mark in line for mark in MARKS)]
    assert all(line.startswith("#SBATCH --") for line in lines)
    for value in ("Zmark-command", "Zmark-setup", "env=Zmark_name=Zmark-env", "run=Zmark-run", "8642010"):
        assert value in block


def test_a_secret_has_no_value_in_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "Zmark-secret")
    text = render(JobSpec.model_validate({"env": {"WANDB_API_KEY": None}}))
    assert "WANDB_API_KEY" in text
    assert "Zmark-secret" not in text


# -- quoting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("", "''"),
        ("it's", "'it'\"'\"'s'"),
        ("~", "'~'"),
        (7, "7"),
        (["a b", "", "c"], "'a b' '' c"),
        ([], ""),
        (Verbatim("a b"), "a b"),
    ],
)
def test_quoted(value: object, expected: str) -> None:
    assert quoted(value) == expected


@pytest.mark.parametrize("value", [None, True, False, 1.5, {"a": "b"}, ["a", None], object()])
def test_what_no_template_may_write(value: object) -> None:
    with pytest.raises(TypeError):
        quoted(value)


@pytest.mark.parametrize("template", ["{{ plan.missing }}", "{% if plan.missing %}{% endif %}"])
def test_a_template_cannot_use_what_the_plan_lacks(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.sbatch.j2").write_text(template)
    monkeypatch.setattr(renderer, "template_root", lambda: tmp_path)
    with pytest.raises((TypeError, jinja2.UndefinedError)):
        render(JobSpec())


# -- decisions -------------------------------------------------------------------------------------


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
def test_with_registry(image: str, expected: str) -> None:
    assert with_registry(image) == expected


def words_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"{name}="))


def test_only_what_the_spec_uses_is_in_the_script() -> None:
    plain = render(JobSpec.model_validate({"container": {"runtime": "docker"}}))
    for absent in (
        "podman_",
        "nvidia_args",
        "amd_args",
        "run_setup",
        "MOUNTS",
        "ENV_FROM_SUBMITTER",
        "BUILD_FILE",
        'PROGRAMS["ray_job.py"]',
        'PROGRAMS["ray_driver.py"]',
        'PROGRAMS["progress.py"]',
    ):
        assert absent not in plain, absent
    gpus = {"slurm": {"gpus_per_node": 8}}
    for accelerator, present, absent in (
        ("nvidia", "nvidia-smi", "/dev/kfd"),
        ("amd", "/dev/kfd", "nvidia-smi"),
    ):
        text = render(JobSpec.model_validate({**gpus, "container": {"accelerator": accelerator}}))
        assert present in text
        assert absent not in text
    assert "nvidia-smi" not in render(JobSpec.model_validate({**gpus, "container": {"accelerator": "none"}}))


def test_a_text_to_run_is_for_bash() -> None:
    text = render(JobSpec.model_validate({"run": "echo $HOME"}))
    assert words_of(text, "RECORDS").endswith("run=bash run=-c 'run=echo $HOME')")


def test_what_is_passed_on_to_the_runtime() -> None:
    container = {"user": "1000:100", "ulimits": ["memlock=-1:-1"], "args": ["--cap-add=X"]}
    text = render(JobSpec.model_validate({"container": container}))
    assert (
        words_of(text, "CONTAINER_ARGS")
        == "CONTAINER_ARGS=(--user 1000:100 --ulimit memlock=-1:-1 --cap-add=X)"
    )


def records_of(spec: dict[str, Any]) -> list[str]:
    return shlex.split(words_of(render(JobSpec.model_validate(spec)), "RECORDS")[len("RECORDS=(") : -1])


def test_a_runtime_environment_is_content_or_a_path() -> None:
    job = {"launch": "ray-job"}
    content = records_of({**job, "ray": {"runtime_env": {"working_dir": ".", "env_vars": {"A": 'é"'}}}})
    assert 'runtime_env={"working_dir": ".", "env_vars": {"A": "é\\""}}' in content
    path = records_of({**job, "ray": {"runtime_env": "verl/trainer/runtime_env.yaml"}})
    assert "runtime_env_file=verl/trainer/runtime_env.yaml" in path
    assert not [record for record in records_of(job) if record.startswith("runtime_env")]


def test_debuggers_exclude_each_other() -> None:
    names, option = ("env=RAY_DEBUG", "debug="), "ray_arg=--ray-debugger-external"
    found = {
        debug: [record for record in records_of({"ray": {"debug": debug}}) if record.startswith(names)]
        for debug in ("none", "post-mortem", "legacy")
    }
    assert found == {
        "none": [],
        "post-mortem": ["debug=post-mortem", "env=RAY_DEBUG=1", "env=RAY_DEBUG_POST_MORTEM=1"],
        "legacy": ["debug=legacy", "env=RAY_DEBUG=legacy", "env=RAY_DEBUG_POST_MORTEM=0"],
    }
    assert option in records_of({"ray": {"debug": "legacy"}})
    assert option not in records_of({"ray": {"debug": "post-mortem"}})


def test_the_users_own_options_of_ray_and_slurm() -> None:
    text = render(JobSpec.model_validate({"slurm": {"gres": "gpu:h100:2,nvme:1", "extra": ["--odd=a b"]}}))
    assert "GPUS_PER_NODE=2\n" in text
    assert '\n#SBATCH --odd="a b"\n' in text
