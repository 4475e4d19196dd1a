"""The fields of a dstack task; for its commands see test_commands.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from slurmray.cli.rendered import render_job
from slurmray.errors import ExitCode, SpecError
from slurmray.rendering.dstack.task import LEFT_OUT, USED, make_task, remarks
from slurmray.spec.job_spec import JobSpec
from tests.plans import plan_of

ROOT = Path(__file__).parents[4]

# job spec -> settings that replace fields without a counterpart in dstack
CASES: dict[str, list[tuple[str, str]]] = {
    "examples/hello.yaml": [],
    "examples/verl.yaml": [
        ("container.mounts", "[/data:/data, /huggingface:/huggingface, /checkpoints:/checkpoints]"),
    ],
    "examples/roll.yaml": [
        *((path, "null") for path in ("prepare", "network.interface")),
        ("container.mounts", "[/ROLL:/workspace/ROLL, /output:/data]"),
    ],
    "tests/goldens/hostile.yaml": [
        ("name", "hostile"),
        ("container.mounts", '["/a b\'s:/mnt/{{ x }}", "/same path \\\\ $(id)"]'),
        ("container.args", "[]"),
        ("network.interface", "null"),
        ("requeue.exit_code", "0"),
        *((path, "null") for path in ("ray.debug", "ray.runtime_env", "prepare", "services", "launch")),
    ],
}


def render_case(spec: str) -> str:
    """The task of a job spec in CASES, as text. Needs the checkout as current folder."""
    return render_job(Path(spec), CASES[spec], [], target="dstack")[1]


@pytest.mark.usefixtures("in_checkout")
def test_golden(request: pytest.FixtureRequest) -> None:
    text = render_case("examples/verl.yaml")
    golden = ROOT / "tests/goldens/verl.dstack.yml"
    if request.config.getoption("write_goldens"):
        golden.write_text(text)
    assert golden.read_text() == text, "the task changed: look at it, then make goldens"


# -- fields ----------------------------------------------------------------------------------------


def plan_task(**fields: Any) -> dict[str, Any]:
    return make_task(plan_of(JobSpec.model_validate(fields)))


def test_default_task() -> None:
    task = plan_task()
    assert {name: task[name] for name in task.keys() - {"commands", "env"}} == {
        "type": "task",
        "name": "slurmray",
        "nodes": 1,
        "stop_criteria": "master-done",
        "image": "docker.io/rayproject/ray:2.60.0-py311",
        "shell": "bash",
        "ports": [8265],
    }
    assert "resources" not in task


@pytest.mark.parametrize(
    ("slurm", "container", "resources"),
    [
        ({"gpus_per_node": "8"}, {}, {"gpu": 8}),
        ({"gpus_per_node": "h100:4"}, {}, {"gpu": "h100:4"}),
        ({"gres": "gpu:mi300x:8,nvme:1"}, {"accelerator": "amd"}, {"gpu": "amd:mi300x:8"}),
        ({"gpus_per_node": "8"}, {"accelerator": "nvidia"}, {"gpu": "nvidia:8"}),
        ({"gpus_per_node": "8"}, {"accelerator": "none"}, {}),
        ({"gpus_per_node": "0"}, {}, {}),
        ({"cpus_per_task": 28}, {}, {"cpu": "28.."}),
        ({"mem": "200G"}, {}, {"memory": "200GB.."}),
        ({"mem": "2T"}, {}, {"memory": "2048GB.."}),
        ({"mem": "1500"}, {}, {"memory": "1500MB.."}),
        ({"mem": "100KB"}, {}, {"memory": "1MB.."}),
        ({"mem": "0"}, {}, {}),
        ({"mem": "10G"}, {}, {"memory": "10GB.."}),
        ({}, {"shm_size": "128g"}, {"shm_size": "128GB"}),
        ({}, {"shm_size": "100m"}, {"shm_size": "100MB"}),
        ({}, {"shm_size": "1073741825"}, {"shm_size": "1025MB"}),
    ],
)
def test_resources(slurm: dict[str, Any], container: dict[str, Any], resources: dict[str, Any]) -> None:
    assert plan_task(slurm=slurm, container=container).get("resources", {}) == resources


def test_gpus_that_slurm_does_not_count() -> None:
    assert plan_task(ray={"gpus_per_node": 4})["resources"] == {"gpu": 4}


@pytest.mark.parametrize(
    ("limit", "duration"),
    [
        ("90", "90m"),
        ("120", "2h"),
        ("10:00", "10m"),
        ("1:30", "90s"),
        ("12:00:00", "12h"),
        ("1-00:00:00", "1d"),
        ("1-12", "36h"),
        ("2-01:30", "2970m"),
        ("30-00:00:00", "30d"),
        ("0", None),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_max_duration(limit: str, duration: str | None) -> None:
    assert plan_task(slurm={"time": limit}).get("max_duration") == duration


def test_the_other_fields() -> None:
    task = plan_task(
        requeue={"max": 2},
        ray={"dashboard_port": 9000},
        container={"user": "1000:1000", "workdir": "/w", "mounts": ["/a", "/b:/c:rw,z"], "runtime": "docker"},
    )
    assert task["retry"] == {"on_events": ["interruption"]}
    assert task["ports"] == [9000]
    assert (task["user"], task["working_dir"], task["volumes"]) == ("1000:1000", "/w", ["/a:/a", "/b:/c"])


def test_variables() -> None:
    env = plan_task(
        env={"A": "x y", "S": None, "D": "$1 $HOME", "E": "$$ ${{ x }}", "L": "1\n2", "PYTHONUNBUFFERED": "0"}
    )["env"]
    assert {"A=x y", "S", "D=$1 $HOME", "E=$$$$ $${{ x }}", "PYTHONUNBUFFERED=0"} <= set(env)
    assert {"RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/tmp/slurmray/token"} <= set(env)
    names = [entry.partition("=")[0] for entry in env]
    assert len(names) == len(set(names))
    assert "L" not in names
    without = plan_task(ray={"auth": "none", "metrics": True, "temp_dir": "/scratch"})["env"]
    assert {"RAY_AUTH_MODE=disabled", "RAY_TMPDIR=/scratch"} <= set(without)
    assert not [entry for entry in without if "TOKEN" in entry or "METRIC" in entry]


@pytest.mark.parametrize(
    ("path", "value", "refusal"),
    [
        ("container.runtime", "podman", "container.runtime: dstack runs containers with Docker; set it"),
        (
            "container",
            {"build": {"file": "F"}, "image": "i"},
            "container.build: dstack builds no image; push",
        ),
        ("container.args", ["-it"], "container.args: not supported by dstack; leave it out: --set con"),
        ("network.interface", "ib0", "network.interface: not supported by dstack; leave it out: --set"),
        ("network.family", "ipv6", "network.family: dstack chooses the addresses of the nodes; set it"),
        ("sync", ["a"], "sync: dstack copies files by its own `files`; leave sync out"),
        ("on_node_loss", "continue", "on_node_loss: dstack ends a run when it loses a node; set it to fail"),
        (
            "name",
            "My_Job 2",
            "name: dstack expects 2 to 41 of a-z, 0-9 and -, beginning with a letter, e.g. --set name=my-j",
        ),
        ("name", "7", "name: dstack expects 2 to 41 of a-z, 0-9 and -, beginning with a letter; got '7'"),
        ("container.mounts", ["~/d:/d"], "container.mounts, item 1: dstack mounts absolute paths of its"),
        ("container.mounts", ["/a", "/b/../c:/d"], "container.mounts, item 2: dstack mounts absolute pa"),
        ("container.mounts", ["/d:/d:ro"], "container.mounts, item 1: dstack mounts have no option ro;"),
        (
            "prepare",
            [{"name": "a", "run": "b", "where": "all"}],
            "prepare, item 1: a: under dstack prepare steps run on the head node only; move it",
        ),
        ("slurm.array", "0-3", "slurm.array: dstack has no arrays"),
        ("sweep", {"lr": ["1"]}, "sweep: dstack has no arrays; submit one run for each combination"),
        ("container.workdir", "$HOME", "container.workdir: dstack expands no variables"),
        ("container.mounts", ["/a:$B"], "container.mounts, item 1: dstack expands no variables"),
        ("ray.temp_dir", "$T", "ray.temp_dir: dstack expands no variables"),
        ("ray.port", 6381, "ray: --port and --object-manager-port are both 6381 under dstack; set it"),
        ("ray.dashboard_port", 29500, "ray: --dashboard-port and MASTER_PORT are both 29500 under dsta"),
        ("ray.port", 8265, "ray: --dashboard-port and --port are both 8265 under dstack; set it to auto"),
    ],
)
def test_refused(path: str, value: Any, refusal: str) -> None:
    for name in reversed(path.split(".")):
        value = {name: value}
    with pytest.raises(SpecError) as caught:
        plan_task(**value)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(refusal)
    assert caught.value.exit_code == ExitCode.USAGE


def test_refusals_have_line_numbers(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: My Job\ncontainer:\n  mounts: [/a, b]\n")
    with pytest.raises(SpecError) as caught:
        render_job(job, [("--runtime", "podman")], [], target="dstack")
    assert [line.split(" dstack ")[0] for line in str(caught.value).splitlines()] == [
        f"{job}:1:7: name:",
        f"{job}:3:16: container.mounts, item 2:",
        "--runtime:",
    ]


def test_all_refusals_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        plan_task(name="A", slurm={"time": "10"}, container={"args": ["-x"], "mounts": ["a", "b"]})
    assert len(caught.value.problems) == 4


def list_fields(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from list_fields(kind, f"{above}{name}.")
        else:
            yield above + name


def test_every_field_is_used_left_out_or_refused() -> None:
    known = USED | LEFT_OUT
    refused = {
        path for path in list_fields(JobSpec) if path not in known and path.rpartition(".")[0] not in known
    }
    assert refused == {
        *("container.runtime", "container.build", "container.archive", "container.args"),
        *("container.command", "container.step_args", "container.setup", "container.setup_timeout"),
        "container.python",
        *("env_file", "node_env", "network.subnet", "sync", "notify"),
        *("network.interface", "network.family", "requeue.exit_code"),
        *("sweep", "spares", "on_node_loss", "restart.max", "restart.min_nodes"),
        *("restart.window", "restart.exit_codes", "restart.grace"),
        *("ray.head.gpus", "ray.head.cpus", "ray.head.memory", "ray.debug", "ray.runtime_env"),
        *("services", "launch", "template"),
    }


def test_remarks() -> None:
    assert remarks(plan_of(JobSpec.model_validate({"container": {"shm_size": "1g"}}))) == []
    slurm = {"partition": "p", "nodes": 2, "mem": "1G", "gres": "gpu:8,nvme:1"}
    fields = {"setup": "x", "requeue": {"max": 1}, "stop": {"lead": 5, "signal": "USR1"}}
    spec = JobSpec.model_validate({"slurm": slurm, "checks": {"paths": ["/x"]}, **fields})
    lines = remarks(plan_of(spec))
    title, _, left_out = lines[0].partition(": ")
    assert title == "not used by dstack, left out"
    assert left_out == "slurm.partition, checks.paths, stop.lead, nvme:1 of slurm.gres"
    assert [line.partition(" ")[0] for line in lines[1:]] == [
        "setup",
        "requeue.max:",
        "container.shm_size",
    ]


def test_a_preset_adds_the_same_arguments() -> None:
    fields = {"slurm": {"nodes": 2, "gpus_per_node": "8"}, "run": ["python3", "-m", "verl.trainer.main_ppo"]}
    commands = plan_task(preset="verl", **fields)["commands"]
    assert "trainer.nnodes=2" in commands[0]
    assert "trainer.n_gpus_per_node=8" in commands[0]


def test_variables_of_a_preset_that_dstack_cannot_set() -> None:
    fields = {
        "slurm": {"nodes": 2, "gpus_per_node": "8"},
        "preset": "rlinf",
        "run": ["python3", "main_grpo.py"],
    }
    spec = JobSpec.model_validate({**fields, "container": {"shm_size": "1g"}})
    assert remarks(plan_of(spec))[1:] == [
        "RLINF_COMM_NET_DEVICES is not set, because dstack chooses the network; if it chooses a wrong "
        "interface, set RLINF_COMM_NET_DEVICES in env"
    ]
    assert "RLINF_COMM_NET_DEVICES" not in str(make_task(plan_of(spec)))
