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


SETTINGS = st.fixed_dictionaries(
    {
        "groups": st.lists(
            st.fixed_dictionaries({"gpus_per_node": st.integers(0, 1), "spares": st.integers(0, 1)}),
            min_size=1,
            max_size=2,
        ),
        "watch": st.fixed_dictionaries(
            {
                "stall": st.integers(0, 1),
                "progress": st.sampled_from(["", "steps"]),
                "action": st.sampled_from(["report", "restart", "end"]),
            }
        ),
        "prepare": st.lists(st.just({}), max_size=1),
        "services": st.lists(st.just({}), max_size=1),
        "checks": st.fixed_dictionaries({"burn_in": st.integers(0, 1)}),
        "notify": st.none() | st.just({}) | st.just({"on": ["end"]}),
        "ray": st.fixed_dictionaries({"metrics": st.booleans()}),
        "restart": st.fixed_dictionaries({"exit_codes": st.lists(st.just(85), max_size=1)}),
        "requeue": st.fixed_dictionaries({"max": st.integers(0, 1), "exit_code": st.integers(0, 1)}),
        "on_node_loss": st.sampled_from(["fail", "continue", "restart"]),
        "trainer": st.fixed_dictionaries(
            {
                "launch": st.sampled_from(["exec", "ray-job"]),
                "command": st.lists(st.just("a"), max_size=1),
                "runtime_env": st.sampled_from([None, "$HOME/env.yaml"]),
            }
        ),
        "container": st.fixed_dictionaries(
            {
                "setup": st.sampled_from(["", "true"]),
                "build": st.none() | st.just({"file": "Containerfile"}),
                "stage": st.sampled_from(["node", "shared"]),
                "runtimes": st.sampled_from(
                    [
                        ["podman", "docker"],
                        ["podman"],
                        ["docker"],
                        ["apptainer"],
                        ["singularity"],
                        ["pyxis"],
                        ["none"],
                    ]
                ),
            }
        ),
        "temp_dir": st.sampled_from(["/tmp", "$SCRATCH"]),
        "env_file": st.sampled_from(["", "env"]),
        "node_env": st.sampled_from(["", "true"]),
        "setup": st.sampled_from(["", "true"]),
        "sweep": st.just({}) | st.just({"lr": ["1"]}),
    }
)


@given(SETTINGS)
def test_any_settings_have_what_they_import(settings: dict[str, Any]) -> None:
    assert missing(settings) == set()
