"""The tables of container runtimes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import get_args

from slurmray.agent.node import runtimes as agent
from slurmray.resources import data_folder
from slurmray.spec.container import Container
from slurmray.spec.runtimes import RUNTIMES, Choice, candidates


def test_job_specs_and_nodes_have_the_same_runtimes() -> None:
    assert {*get_args(Choice)} == {*RUNTIMES} == {"auto", *agent.RUNTIMES}
    for name, runtime in RUNTIMES.items():
        assert {*candidates(name)} <= {*agent.RUNTIMES}
        assert {*runtime.unsupported} < {*Container.model_fields}
        for template in runtime.templates:
            assert (Path(data_folder("templates")) / f"runtimes/{template}.sh.j2").is_file()


def test_each_runtime_of_a_node_has_its_class() -> None:
    for name, row in agent.RUNTIMES.items():
        module = importlib.import_module(f"{agent.__name__}.{row.module}")
        assert getattr(module, row.type).name == name
