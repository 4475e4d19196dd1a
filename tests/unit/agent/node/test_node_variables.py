"""Variables of `env_file`."""

from pathlib import Path

import pytest

from slurmray.agent.node import node_variables

from ..fake_node import FakeNode


def node_with_file(folder: Path, content: bytes, mode: int = 0o600) -> FakeNode:
    node = FakeNode(folder, env_file="keys.env")
    path = folder / "submit/keys.env"
    path.write_bytes(content)
    path.chmod(mode)
    return node


def test_lines_of_the_file(tmp_path: Path) -> None:
    content = b"# keys\n\nTOKEN=a=b 'c' \"d\" #e\nEMPTY=\n  # more\nTOKEN_2=\xc3\xa9\n"
    node = node_with_file(tmp_path, content)
    assert node_variables.env_file(node) == {"TOKEN": "a=b 'c' \"d\" #e", "EMPTY": "", "TOKEN_2": "é"}
    assert node.findings == []


def test_an_environment_of_another_job(tmp_path: Path) -> None:
    """Clean-up finds the processes of this one by two variables."""
    node = node_with_file(tmp_path, b"SLURM_JOB_ID=7\nSLURMRAY_TEMP=/tmp/ray-7-0\nSLURM_JOB_NAME=a\n")
    assert node_variables.env_file(node) == {"SLURM_JOB_NAME": "a"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_file_to_which_others_have_access(tmp_path: Path, mode: int) -> None:
    node = node_with_file(tmp_path, b"A=hidden\n", mode)
    assert node_variables.env_file(node) == {}
    ((kind, check, found, _, fix),) = node.findings
    assert (kind, check, fix) == ("preflight", "env_file", f"chmod 600 {tmp_path}/submit/keys.env")
    assert found.endswith(f"mode {mode:04o}")


@pytest.mark.parametrize(
    "line", ["hidden", "export A=hidden", "1A=hidden", "A =hidden", "=hidden", "A=\0hidden"]
)
def test_a_line_of_another_form(tmp_path: Path, line: str) -> None:
    node = node_with_file(tmp_path, f"B=1\n{line}\nC=2\n".encode())
    node_variables.env_file(node)
    ((kind, check, found, wanted, _),) = node.findings
    assert (kind, check, wanted) == ("preflight", "env_file", "NAME=VALUE")
    assert found.endswith("keys.env, line 2")
    assert "hidden" not in str(node.findings)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, env_file="keys.env")
    node_variables.env_file(node)
    assert node.findings[0][2] == f"{tmp_path}/submit/keys.env: No such file or directory"
    node = node_with_file(tmp_path, b"A=\xff\n")
    node_variables.env_file(node)
    assert node.findings[0][2].endswith("keys.env: it is not UTF-8")


@pytest.mark.attack("values that are too long for a program", inputs=1)
def test_a_value_that_no_program_can_get(tmp_path: Path) -> None:
    node = node_with_file(tmp_path, b"A=1\nB=" + b"x" * 200000 + b"\n")
    assert node_variables.env_file(node) == {"A": "1"}
    ((kind, check, found, _, _),) = node.findings
    assert (kind, check) == ("preflight", "env_file")
    assert found == f"{tmp_path}/submit/keys.env, line 2: 200000 bytes"
