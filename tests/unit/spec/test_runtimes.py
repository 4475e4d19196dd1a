"""The tables of container runtimes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from slurmray.agent.node import runtimes as agent
from slurmray.agent.node.agent_interface import NodeApi
from slurmray.agent.node.runtime_interface import Runtime
from slurmray.agent.node.runtimes import apptainer, docker, none, podman, pyxis
from slurmray.resources import data_folder
from slurmray.spec.container import Container
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.runtimes import RUNTIMES, Choice, candidates

from ..agent.fake_node import FakeNode


def test_job_specs_and_nodes_have_the_same_runtimes() -> None:
    assert {*get_args(Choice)} == {*RUNTIMES} == {"auto", *agent.RUNTIMES}
    for name, runtime in RUNTIMES.items():
        assert {*candidates(name)} <= {*agent.RUNTIMES}
        assert {*runtime.unsupported} < {*Container.model_fields}
        for template in runtime.templates:
            assert (Path(data_folder("templates")) / f"runtimes/{template}.sh.j2").is_file()


# mypy checks that each is a Runtime.
TYPES: list[Callable[[NodeApi], Runtime]] = [
    *(podman.Podman, docker.Docker, apptainer.Apptainer, apptainer.Singularity),
    *(pyxis.Pyxis, none.NoRuntime),
]


def test_each_runtime_of_a_node_has_its_class(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    made = {name: agent.make(name, node) for name in agent.RUNTIMES}
    assert {name: runtime.name for name, runtime in made.items()} == {name: name for name in made}
    assert [*map(type, made.values())] == TYPES


@pytest.mark.parametrize(
    ("runtime", "args"),
    [
        ("podman", ["--ipc=private", "--ipc", "shareable", "--ipc=", "--ipcs=host", "x--ipc=host"]),
        ("docker", ["--ipc=host", "--ipc", "none"]),
        ("auto", ["--shm-sizes=1g", "x--shm-size=1g"]),
        ("apptainer", ["--ipc", "host", "--shm-size=1g"]),
    ],
)
def test_options_for_shared_memory_that_a_runtime_accepts(runtime: str, args: list[str]) -> None:
    """Podman 4.3.1 with others: "cannot set shmsize when running in the {host } IPC Namespace"."""
    image = "a.sif" if runtime == "apptainer" else "a"
    spec = JobSpec.model_validate({"container": {"runtime": runtime, "image": image, "args": args}})
    assert spec.container.args == args
