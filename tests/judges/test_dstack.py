"""dstack's models parse the task of verl's guide, wrong tasks, and the tasks that slurmray renders."""

from __future__ import annotations

import pytest
import yaml

from slurmray.rendering.dstack.task import make_task, render_task
from slurmray.spec.job_spec import JobSpec
from tests.judges import documents
from tests.judges.environments import ask
from tests.plans import plan_of
from tests.unit.rendering.dstack.test_task import CASES, render_case


def test_dstack_reads_the_task_of_verl_s_guide() -> None:
    (verdict,) = ask("dstack", [documents.DSTACK_TASK])
    assert verdict["error"] is None
    task = verdict["task"]
    assert (task["name"], task["nodes"], len(task["commands"])) == ("ray-verl-cluster", 2, 5)
    assert task["env"]["WANDB_API_KEY"] == {"key": "WANDB_API_KEY"}, "taken from the submitter"
    assert task["env"]["PYTHONUNBUFFERED"] == "1"
    assert task["ports"] == [{"local_port": 8265, "container_port": 8265}]
    assert task["resources"]["gpu"]["count"] == {"min": 8, "max": 8}
    assert task["resources"]["shm_size"] == 128
    assert task["volumes"] == [{"instance_path": "/checkpoints", "path": "/checkpoints", "optional": False}]


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        ("nodes: 2", "node: 2", "Extra inputs are not permitted"),
        ("nodes: 2", "nodes: 0", "greater than or equal to 1"),
        ("name: ray", "name: Ray", "^[a-z][a-z0-9-]{1,40}$"),
        ("- WANDB_API_KEY", "- WANDB-API-KEY", "env"),
        ("/checkpoints:/checkpoints", "./checkpoints:/checkpoints", "volumes"),
        ("/checkpoints:/checkpoints", "/checkpoints:/checkpoints:ro", "invalid mount point format"),
        ("shm_size: 128GB", "shm_size: 128g", "shm_size"),
        ("$DSTACK_NODE_RANK", "${{ rank }}", "Illegal reference name"),
        ("- 8265", "- 82650", "ports"),
    ],
)
def test_dstack_refuses(old: str, new: str, refusal: str) -> None:
    (verdict,) = ask("dstack", [documents.DSTACK_TASK.replace(old, new)])
    assert refusal in verdict["error"]


def test_dstack_replaces_dollars() -> None:
    (verdict,) = ask(
        "dstack", [documents.DSTACK_TASK.replace("cd verl", "echo $$ $$$$ ${a.b} ${{ run.args }}")]
    )
    assert verdict["task"]["commands"][1] == "echo $ $$ ${a.b} "


def test_dstack_replaces_in_variables_once_and_in_commands_twice() -> None:
    text = documents.DSTACK_TASK.replace("PYTHONUNBUFFERED=1", "A=$$1 $${{ secrets.x }}")
    text = text.replace("cd verl", "echo $${{ groups[0].nodes[1].IP_ADDRESS }}")
    (verdict,) = ask("dstack", [text])
    assert verdict["task"]["env"]["A"] == "$1 ${{ secrets.x }}"
    assert verdict["task"]["commands"][1] == "echo 10.0.0.2"


@pytest.mark.usefixtures("in_checkout")
def test_dstack_reads_what_slurmray_writes() -> None:
    texts = [render_case(spec) for spec in CASES]
    verdicts = ask("dstack", texts)
    assert [verdict["error"] for verdict in verdicts] == [None] * len(texts)
    for text, verdict in zip(texts, verdicts, strict=True):
        written, task = yaml.safe_load(text), verdict["task"]
        assert task["commands"] == written["commands"]
        assert (task["name"], task["nodes"], task["shell"]) == (written["name"], written["nodes"], "bash")
        assert [port["container_port"] for port in task["ports"]] == written["ports"]
    train = next(verdict["task"] for verdict in verdicts if verdict["task"]["name"] == "verl-gsm8k")
    assert train["env"]["WANDB_API_KEY"] == {"key": "WANDB_API_KEY"}
    assert train["max_duration"] == 86400
    assert train["resources"]["cpu"]["count"] == {"min": 64, "max": None}
    assert train["resources"]["memory"] == {"min": 800, "max": None}
    assert train["resources"]["gpu"]["count"] == {"min": 8, "max": 8}
    assert train["resources"]["shm_size"] == 128
    assert [volume["path"] for volume in train["volumes"]] == ["/data", "/huggingface", "/checkpoints"]


def test_dstack_does_not_change_values() -> None:
    values = [
        *(
            "$",
            "$$",
            "$$$",
            "$a$$b",
            "$$ $",
            "${{ secrets.x }}",
            "$${{ secrets.x }}",
            "${{",
            "a $b ${{ c }} $$",
        ),
        *("${{ groups[0].nodes[0].IP_ADDRESS }}", "${{ groups.x }}", "= a=b", "", "\t\x1b\u2028 é"),
    ]
    spec = JobSpec.model_validate(
        {
            "env": {f"V{number}": value for number, value in enumerate(values)},
            "run": [value or "x" for value in values],
            "setup": " ".join(values),
            "slurm": {"nodes": 2, "gpus_per_node": "h100:8", "time": "1-12"},
            "container": {"accelerator": "nvidia", "user": "1000:1000", "shm_size": "100m"},
            "requeue": {"max": 1},
        }
    )
    (verdict,) = ask("dstack", [render_task(plan_of(spec))])
    assert verdict["error"] is None
    task = verdict["task"]
    assert task["commands"] == make_task(plan_of(spec))["commands"]
    assert [task["env"][f"V{number}"] for number in range(len(values))] == values
    assert task["resources"]["gpu"]["name"] == ["h100"]
    assert task["resources"]["gpu"]["vendor"] == "nvidia"
    assert task["retry"] == {"on_events": ["interruption"], "duration": None}
    assert (task["max_duration"], task["stop_criteria"], task["user"]) == (129600, "master-done", "1000:1000")


def test_a_failing_judge_gives_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="the judge dstack failed"):
        ask("dstack", [{"a task": "is text"}])
