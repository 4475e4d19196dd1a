"""Variables in paths of the job spec are expanded on the node."""

from pathlib import Path
from typing import Any

import pytest

from slurmray.agent import paths
from slurmray.agent.node.checks.expansion import expand_paths

from ...fake_node import FakeNode


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$SCRATCH/a", "/scratch/a"),
        ("${SCRATCH}x/$JOB", "/scratchx/7"),
        ("$$SCRATCH/$$$JOB", "$SCRATCH/$7"),
        ("a$/$1/${}/${1}$", "a$/$1/${}/${1}$"),
        ("~/x", "~/x"),
        ("/no", "/no"),
    ],
)
def test_expand(path: str, expected: str) -> None:
    assert paths.expand(path, {"SCRATCH": "/scratch", "JOB": "7"}) == expected


def test_a_value_is_not_expanded_again() -> None:
    assert paths.expand("$A", {"A": "$B", "B": "no"}) == "$B"


@pytest.mark.parametrize("env", [{}, {"SCRATCH": ""}])
def test_an_unset_or_empty_variable(env: dict[str, str]) -> None:
    """An empty one would lead from $SCRATCH/data to /data."""
    with pytest.raises(paths.UnsetError, match=r"\$SCRATCH"):
        paths.expand("$SCRATCH/data", env)


def node_with_paths(folder: Path, path: str) -> FakeNode:
    container: dict[str, Any] = {
        "image": path,
        "source": f"oci-archive:{path}",
        "archive": path,
        "workdir": path,
        "python": path,
        "build": {"file": path, "context": path},
        "mounts": [{"source": path, "destination": path, "options": []}],
    }
    return FakeNode(
        folder,
        container,
        temp_dir=path,
        env_file=path,
        checks={"paths": [path, "a"], "same_commit": path, "bf16": False},
        trainer={"runtime_env": path},
    )


def test_all_paths_of_the_settings(tmp_path: Path) -> None:
    node = node_with_paths(tmp_path, "$S/$$")
    node.env["S"] = "/s"
    node.settings["temp_dir"] = "$S/t/"
    expand_paths(node)
    expected = node_with_paths(tmp_path, "/s/$").settings
    expected["temp_dir"] = "/s/t"
    assert node.settings == expected
    assert node.findings == []


def test_findings_about_variables(tmp_path: Path) -> None:
    node = node_with_paths(tmp_path, "$S/x")
    expand_paths(node)
    rows = {finding[1:3] for finding in node.findings}
    fields = ["image", "archive", "workdir", "python", "build.file", "build.context", "mounts"]
    names = [*(f"container.{field}" for field in fields), "ray.temp_dir", "ray.runtime_env"]
    names += ["env_file", "checks.paths", "checks.same_commit"]
    assert rows == {(name, "$S is not set") for name in names}
    assert {finding[4] for finding in node.findings} == {"set it in setup, or write the path"}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("tmp", "an absolute path"),
        ("/a-folder-with-a-long-name", "at most 18 "),
        ("/a b", "at most 18 "),
        ("/tmp\n", "at most 18 "),
    ],
)
def test_a_temp_folder_that_ray_cannot_use(tmp_path: Path, value: str, wanted: str) -> None:
    node = FakeNode(tmp_path, temp_dir="$T")
    node.env["T"] = value
    expand_paths(node)
    assert node.findings[0][1:3] == ("ray.temp_dir", value)
    assert node.findings[0][3].startswith(wanted)
