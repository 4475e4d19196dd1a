"""What a node shows of a stalled trainer: its GPUs, and what its container has written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmray.agent.node import evidence

from ..fake_node import FakeNode


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    node = FakeNode(tmp_path)
    node.gpus = ["GPU-a"]
    node.program("nvidia-smi", "echo the table of GPUs")
    node.make_folder()
    return node


def collected(node: FakeNode) -> str:
    evidence.collect(node, 2)
    return (node.root / "run/logs/stall-2/node1.txt").read_text()


def test_gpus_and_stacks(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(node.inside, "evidence-2.txt")
    monkeypatch.setattr(
        "slurmray.agent.node.evidence.time.sleep", lambda _: file.write_text("== rank 7\nstacks\n")
    )
    assert collected(node) == "== nvidia-smi\nthe table of GPUs\n\n== rank 7\nstacks\n", "it waits for them"


def test_a_node_without_gpus(node: FakeNode) -> None:
    node.gpus = []
    Path(node.inside, "evidence-2.txt").write_bytes(b"\xff stacks\n" + bytes(evidence.MAX_SIZE))
    evidence.collect(node, 2)
    data = (node.root / "run/logs/stall-2/node1.txt").read_bytes()
    assert (data[:9], len(data)) == (b"\xff stacks\n", evidence.MAX_SIZE)


def test_a_container_that_sends_nothing(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for it longer than the node lives."""
    node.mail.is_stopped = True
    assert collected(node).endswith("\n== the container process has sent nothing\n")
    node.mail.is_stopped = False
    monkeypatch.setattr(evidence, "CONTAINER_WAIT", 0.1)
    assert collected(node).endswith("\n== the container process has sent nothing\n")


@pytest.mark.attack("a program of the job puts something else in place of a file")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_nothing_but_a_file_is_read(node: FakeNode, kind: str, tmp_path: Path) -> None:

    (tmp_path / "secret").write_text("secret")
    path = Path(node.inside, "evidence-2.txt")
    if kind == "link":
        path.symlink_to(tmp_path / "secret")
        with pytest.raises(OSError, match="symbolic links"):
            evidence.collect(node, 2)
    else:
        os.mkfifo(path)
        assert collected(node) == "== nvidia-smi\nthe table of GPUs\n\n"
    assert "secret" not in (tmp_path / "run/logs/stall-2/node1.txt").read_text()
