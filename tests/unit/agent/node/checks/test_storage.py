"""Temporary folder of a node."""

from pathlib import Path

import pytest

from slurmray.agent.node.checks import storage

from ...fake_node import FakeNode


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(kind, 0) for kind in ("ext2/ext3", "xfs", "tmpfs", "overlayfs")]
    + [(kind, 1) for kind in ("nfs", "nfs4", "lustre", "fuseblk", "afs", "gpfs", "ceph", "smb2", "beegfs")],
)
def test_temp_folder_on_a_shared_file_system(
    node: FakeNode, tmp_path: Path, kind: str, expected: int
) -> None:
    node.program("stat", f"echo {kind}")
    storage.check_temp_folder(node)
    assert len(node.findings) == expected
    if expected:
        wanted = "a folder on this node's own disk"
        found = f"{tmp_path}/temp: {kind}"
        assert node.findings == [("preflight", "temp folder", found, wanted, "set ray.temp_dir")]


def test_no_temp_folder(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, temp_dir="/no/such", preflight="warn")
    storage.check_temp_folder(node)
    assert node.findings[0][:3] == ("warn", "temp folder", "/no/such: missing")


def test_a_full_temp_folder(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "FREE", 10**9)
    storage.check_temp_folder(node)
    assert " MB free in " in node.findings[0][2]
    assert node.findings[0][4] == "free some, or set ray.temp_dir"
