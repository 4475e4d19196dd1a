"""Checks of a node."""

import ipaddress
import os
import subprocess
from pathlib import Path

import pytest

from slurmray.agent import errors, network_interfaces, paths
from slurmray.agent.node import checks
from slurmray.agent.node.checks import run_directory, storage

from ..fake_node import FakeNode


def findings(node: FakeNode, check: str) -> list[tuple[str, ...]]:
    return [finding for finding in node.findings if finding[1] == check]


def test_a_node_that_has_everything(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, {"shm_size": "1g"})
    node.program("stat", "echo ext2/ext3")
    checks.check_node(node)
    assert node.findings == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(kind, 0) for kind in ("ext2/ext3", "xfs", "tmpfs", "overlayfs")]
    + [(kind, 1) for kind in ("nfs", "nfs4", "lustre", "fuseblk", "afs", "gpfs", "ceph", "smb2", "beegfs")],
)
def test_the_temp_folder_is_on_the_node_s_own_disk(tmp_path: Path, kind: str, expected: int) -> None:
    node = FakeNode(tmp_path)
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


def test_a_full_temp_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode(tmp_path)
    monkeypatch.setattr(storage, "FREE", 10**9)
    storage.check_temp_folder(node)
    assert " MB free in " in node.findings[0][2]
    assert node.findings[0][4] == "free some, or set ray.temp_dir"


def test_little_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SHARED_MEMORY", 10**9)
    node = FakeNode(tmp_path)
    checks.check_node(node)
    assert findings(node, "/dev/shm")[0][0] == "warn"
    node = FakeNode(tmp_path, {"shm_size": "1g"})
    checks.check_node(node)
    assert not findings(node, "/dev/shm")


@pytest.mark.parametrize(("allowed", "online", "expected"), [(4, 4, 0), (4, 8, 1), (8, 8, 0), (9, 16, 0)])
def test_fewer_cpus_than_the_job_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, online: int, expected: int
) -> None:
    """A node may have fewer than Slurm says."""
    node = FakeNode(tmp_path)
    node.job["cpus"] = 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)))
    monkeypatch.setattr(os, "cpu_count", lambda: online)
    checks.check_node(node)
    assert len(findings(node, "CPUs")) == expected


def test_paths_of_the_job_spec(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, checks={"paths": [".", "/no", "no"], "same_commit": "", "bf16": False})
    checks.check_node(node)
    assert [finding[2] for finding in findings(node, "checks.paths")] == [
        "/no: no such file or directory",
        "no: no such file or directory",
    ]


def test_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode(tmp_path, checks={"paths": [], "same_commit": ".", "bf16": False})
    submit = tmp_path / "submit"
    monkeypatch.setenv("SLURM_SUBMIT_DIR", str(submit))
    node.job["commit"] = "f00"
    checks.check_node(node)
    assert findings(node, "checks.same_commit")[0][2:] == (". at no commit", "f00", "git checkout there")
    git = ["git", "-C", str(submit), "-c", "user.name=a", "-c", "user.email=b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    node.findings = []
    node.job["commit"] = paths.commit_of(str(submit))
    assert len(node.job["commit"]) == 40
    checks.check_node(node)
    assert not findings(node, "checks.same_commit")


def test_without_preflight_only_slurm_s_gpus_are_counted(tmp_path: Path) -> None:
    settings = {"paths": ["/no"], "same_commit": "/no", "bf16": False}
    node = FakeNode(tmp_path, temp_dir="/no", preflight="none", gpus_per_node=8, checks=settings)
    node.job["cpus"] = 10**6
    node.env["SLURM_GPUS_ON_NODE"] = "4"
    checks.check_node(node)
    assert node.findings == [("config", "GPUs", "4 given to the job", "8", "--gpus-per-node 4")]


@pytest.mark.parametrize(("given", "expected"), [({}, 0), ({"SLURM_GPUS_ON_NODE": "0"}, 0)])
def test_a_job_without_gpus(tmp_path: Path, given: dict[str, str], expected: int) -> None:
    node = FakeNode(tmp_path)
    node.env.update(given)
    checks.check_node(node)
    assert len(findings(node, "GPUs")) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ("", 0),
        ("SLURM_MEM_PER_NODE=300", 300),
        ("SLURM_MEM_PER_CPU=100", 400),
        ("SLURM_MEM_PER_GPU=1000", 3000),
        ("SLURM_MEM_PER_NODE=", 0),
    ],
)
def test_the_memory_of_a_job(facts: str, expected: int) -> None:
    env = {"SLURM_CPUS_ON_NODE": "4", "SLURM_GPUS_ON_NODE": "3"}
    name, _, value = facts.partition("=")
    assert checks.memory_of_job({**env, name: value}) == expected


# -- the run directory -----------------------------------------------------------------------------------


@pytest.fixture
def standard_error() -> object:
    """It is put back after the test."""
    saved = os.dup(2)
    yield
    os.dup2(saved, 2)
    os.close(saved)


@pytest.mark.usefixtures("standard_error")
def test_the_run_directory_is_opened(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    (tmp_path / "run/mark").write_text("abc\n")
    checks.open_run_directory(node)
    os.write(2, b"an error\n")
    assert Path(node.log_path).read_text() == "node1\nan error\n"
    assert node.waited == []


@pytest.mark.parametrize("mark", [None, "other\n", ""])
def test_a_run_directory_that_is_not_shared(tmp_path: Path, mark: str | None) -> None:
    node = FakeNode(tmp_path)
    if mark is not None:
        (tmp_path / "run/mark").write_text(mark)
    with pytest.raises(errors.Unfit):
        checks.open_run_directory(node)
    found = f"{tmp_path}/run is not the folder of the head node"
    row = ("preflight", "run directory", found, "a folder that all nodes share", "set run_dir")
    assert node.findings == [row]
    assert len(node.waited) == run_directory.TRIES - 1


@pytest.mark.usefixtures("standard_error")
def test_a_mark_that_is_seen_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode(tmp_path)
    monkeypatch.setattr(node, "wait", lambda _: (tmp_path / "run/mark").write_text("abc\n"))
    checks.open_run_directory(node)
    assert node.findings == []


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    (tmp_path / "run/mark").write_text("abc\n")
    (tmp_path / "run/logs").rmdir()
    with pytest.raises(errors.Unfit):
        checks.open_run_directory(node)
    assert node.findings[0][2] == f"cannot write to {tmp_path}/run/logs: No such file or directory"


# -- addresses -------------------------------------------------------------------------------------------


def test_what_the_resolver_says() -> None:
    assert checks.resolved_addresses("localhost")[0] in ("127.0.0.1", "::1")
    found = checks.resolved_addresses("no-such-node.invalid")
    assert found == checks.resolved_addresses(os.uname().nodename)
    assert len(set(found)) == len(found)


def test_all_addresses_are_those_of_hostname(tmp_path: Path) -> None:
    known = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    assert network_interfaces.reachable_addresses() == known
    node = FakeNode(tmp_path)
    node.name = "localhost"
    found = checks.addresses(node)
    assert found[: len(checks.resolved_addresses("localhost"))] == checks.resolved_addresses("localhost")
    assert set(known) <= set(found)
    assert [str(ipaddress.ip_address(address)) for address in found] == found


def test_ipv6_addresses_of_interfaces(tmp_path: Path) -> None:
    table = tmp_path / "if_inet6"
    table.write_text(
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fd000000000000000000000000000002 02 40 00 80     eth0\n"
        "fe80000000000000021122fffe334455 02 40 20 80     eth0\n"
    )
    found = network_interfaces.interface_addresses(str(table))
    assert [pair for pair in found if ":" in pair[1]] == [
        ("lo", "::1"),
        ("eth0", "fd00::2"),
        ("eth0", "fe80::211:22ff:fe33:4455"),
    ]
    without = network_interfaces.interface_addresses(str(tmp_path / "none"))
    assert without == [pair for pair in found if ":" not in pair[1]]


def test_addresses_that_another_host_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [("lo", "127.0.0.1"), ("eth0", "10.0.0.2"), ("eth0", "169.254.3.4"), ("lo", "::1")]
    every += [("eth0", "fe80::2"), ("eth0", "fd00::2")]
    monkeypatch.setattr(network_interfaces, "interface_addresses", lambda: every)
    assert network_interfaces.reachable_addresses() == ["10.0.0.2", "fd00::2"]
