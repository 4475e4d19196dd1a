"""The parts of the agent: a script has all that its programs import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmray import agent
from slurmray.agent import parts
from slurmray.agent.parts import CORE, PARTS, part_of
from slurmray.rendering.script import agent_files, render_script
from tests.plans import plan_of
from tests.unit.rendering.cases import every_case, load_case

FOLDER = Path(agent.__file__).parent


def imports(file: str) -> Iterator[tuple[str, bool]]:
    """Yield the files of the agent that a file imports, and whether it does so when it is imported itself."""
    package = Path(file).parts[:-1]

    def visit(node: ast.AST, is_early: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.ImportFrom) and node.level:
            place = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")]
            base = "/".join(filter(None, place))
            for alias in node.names:
                for name in (f"{base}/{alias.name}.py", f"{base}/{alias.name}/__init__.py", f"{base}.py"):
                    if name.lstrip("/") in agent_files():
                        yield name.lstrip("/"), is_early
                        break
            yield from ((name, is_early) for name in (f"{base}/__init__.py",) if name in agent_files())
        for child in ast.iter_child_nodes(node):
            yield from visit(child, is_early and not isinstance(node, ast.FunctionDef))

    yield from visit(ast.parse((FOLDER / file).read_text()), True)


EARLY = {file: {name for name, is_early in imports(file) if is_early} for file in agent_files()}
LATE = {file: {name for name, is_early in imports(file) if not is_early} for file in agent_files()}


def missing(settings: Any) -> set[tuple[str, str]]:
    """Return (file, what it imports) where the script lacks the latter."""
    carried = {file for file in agent_files() if part_of(file) in (CORE, *parts.needed_parts(settings))}
    return {(file, name) for file in carried for name in EARLY[file] if name not in carried}


def test_each_file_is_in_one_part() -> None:
    files = [file for names in PARTS.values() for file in names]
    assert len(files) == len(set(files))
    assert set(files) <= agent_files().keys()


def test_what_the_imports_are() -> None:
    """The functions above find them."""
    assert "controller/failure.py" in EARLY["controller/state.py"]
    assert {"__init__.py", "heartbeat.py"} & EARLY["controller/decisions.py"]
    assert "node/runtimes/__init__.py" in EARLY["controller/protocol.py"]
    assert "controller/stall.py" in LATE["controller/decisions.py"] - EARLY["controller/decisions.py"]


@every_case
@pytest.mark.usefixtures("in_checkout")
def test_examples_have_what_they_import(path: Path, runtime: str | None) -> None:
    from slurmray.agent.script_parts import read_settings

    assert missing(read_settings(render_script(plan_of(load_case(path, runtime))))) == set()


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


def one(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def at_most_one(value: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.just(value), max_size=1)


RUNTIMES = (["podman", "docker"], ["podman"], ["docker"], ["apptainer"], ["singularity"], ["pyxis"], ["none"])
SETTINGS = record(
    groups=st.lists(record(gpus_per_node=one(0, 1), spares=one(0, 1)), min_size=1, max_size=2),
    watch=record(stall=one(0, 1), progress=one("", "steps"), action=one("report", "restart", "end")),
    prepare=at_most_one({}),
    services=at_most_one({}),
    checks=record(burn_in=one(0, 1)),
    notify=one(None, {}, {"on": ["end"]}),
    ray=record(metrics=one(False, True)),
    restart=record(exit_codes=at_most_one(85)),
    requeue=record(max=one(0, 1), exit_code=one(0, 1)),
    on_node_loss=one("fail", "continue", "restart"),
    trainer=record(
        launch=one("exec", "ray-job"), command=at_most_one("a"), runtime_env=one(None, "$HOME/env.yaml")
    ),
    container=record(
        setup=one("", "true"),
        build=one(None, {"file": "Containerfile"}),
        stage=one("node", "shared"),
        runtimes=one(*RUNTIMES),
    ),
    temp_dir=one("/tmp", "$SCRATCH"),
    env_file=one("", "env"),
    node_env=one("", "true"),
    setup=one("", "true"),
    sweep=one({}, {"lr": ["1"]}),
)


@given(SETTINGS)
def test_any_settings_have_what_they_import(settings: dict[str, Any]) -> None:
    assert missing(settings) == set()
