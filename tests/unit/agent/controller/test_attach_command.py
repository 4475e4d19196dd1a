"""The argv that runs a command in a container from outside."""

from __future__ import annotations

from typing import Any

import pytest

from slurmray.agent.controller.attach_command import attach_argv

from ..simulation import FOLDER, Cluster

# Names of nodes that are words of the argv, too.
NAMES = ["docker", "podman", "exec", "srun", "env", "enter", "attach", "gpu-1"]
CONTAINER: Any = {"command": "", "image": "a/b:1", "step_args": ["--container-writable"]}
STEP = ["--container-image=a/b:1", "--container-mounts=/tmp:/tmp", "--container-writable"]
HELD = ["sh", "-c", "hold"]
CHECKED = ["sh", "-c", "check"]


@pytest.mark.parametrize("node", NAMES)
def test_a_node_may_have_any_name(node: str) -> None:
    srun = ["srun", "--overlap", "--jobid=7_1", "--het-group=1", "-N1", "-n1", "-w", node]
    name = f"slurmray-7-0-{node}"
    unset = {"podman": ["XDG_RUNTIME_DIR"]}
    entries: dict[str, list[str]] = {
        "podman": [
            *HELD,
            "env",
            "--unset=XDG_RUNTIME_DIR",
            "podman",
            "exec",
            "--tty",
            name,
            f"{FOLDER}/attach",
        ],
        "docker": [*HELD, "docker", "exec", "--tty", name, f"{FOLDER}/attach"],
        "apptainer": [*CHECKED, FOLDER, "enter", f"{FOLDER}/attach"],
        "singularity": [*CHECKED, FOLDER, "enter", f"{FOLDER}/attach"],
        "pyxis": [*STEP, *CHECKED, FOLDER, "attach"],
        "none": ["--container-writable", *CHECKED, FOLDER, "attach"],
    }
    for runtime, entry in entries.items():
        facts = {"runtime": runtime, "folder": FOLDER, "unset": unset.get(runtime, [])}
        container: Any = CONTAINER if runtime != "none" else {**CONTAINER, "image": ""}
        argv = attach_argv("7_1", "1", node, name, container, facts, [node, "a b"], ["--tty"], HELD, CHECKED)
        assert argv == [*srun, *entry, node, "a b"]


@pytest.mark.parametrize("runtime", ["docker", "apptainer", "pyxis", "none"])
@pytest.mark.parametrize("head", ["docker", "exec", "srun"])
def test_the_line_of_the_log(runtime: str, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "b c")
    image = "" if runtime == "none" else "a/$NAME:1"
    cluster = Cluster(head=head, container={**CONTAINER, "runtimes": [runtime], "image": image}).start()
    cluster.check()
    cluster.receive(head, "ready")
    facts: dict[str, Any] = {"runtime": runtime, "folder": FOLDER, "unset": []}
    cluster.receive(head, "attach", command=["ray", "status"], **facts)
    entry = {
        "docker": f"docker exec slurmray-9-0-{head} {FOLDER}/attach",
        "apptainer": f"{FOLDER}/enter {FOLDER}/attach",
        "pyxis": f"'--container-image=a/b c:1' {' '.join(STEP[1:])} {FOLDER}/attach",
        "none": f"--container-writable {FOLDER}/attach",
    }[runtime]
    command = f"srun --overlap --jobid=9 -N1 -n1 -w {head} {entry} ray status"
    assert cluster.log.events[-1] == ("attach", {**facts, "command": command})
    assert cluster.log.lines[-1] == f"attach: {command}"
