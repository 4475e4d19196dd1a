"""Leftovers of ended jobs on a node."""

import os
from pathlib import Path

import pytest

from slurmray.agent.node import leftovers
from slurmray.agent.node.facts import user_name
from slurmray.agent.node.runtimes import make

from ..fake_node import FakeNode

ID = "0123456789ab" + "0" * 52


def make_node(folder: Path, rows: list[str], squeue: str, runtime: str = "podman") -> FakeNode:
    """A node with these containers (rows of `podman ps` without ids), and this stand-in for squeue."""
    node = FakeNode(folder)
    lines = "\n".join(f"{ID} {row}" for row in rows)
    (folder / "ps").write_text(lines.replace("USER", user_name()) + "\n")
    node.program(runtime, f'[ "$1" = ps ] && exec cat {folder}/ps\necho "$@" >>{folder}/calls')
    node.program("squeue", squeue)
    return node


def calls(node: FakeNode) -> list[str]:
    return [call.replace(ID, "ID") for call in node.calls()]


def remove(folder: Path, rows: list[str], squeue: str, *folders: str) -> FakeNode:
    """Remove leftovers of such a node, which has these folders, too."""
    for name in folders:
        (folder / name).mkdir(parents=True)
    node = make_node(folder, rows, squeue)
    leftovers.remove(node, make("podman", node))
    return node


SEVEN = "temp/ray-7-0-0a1b2c/inside"  # of job 7


def requests(node: FakeNode) -> list[list[str]]:
    return [argv[1:] for argv in node.commands if argv[0] == "squeue"]


# Podman 4 and 5; Docker.
LABELS = ["map[slurmray.job:7 slurmray.user:USER]", "slurmray.job=7,slurmray.user=USER"]
UNKNOWN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


def test_no_request_to_slurm_without_leftovers(tmp_path: Path) -> None:
    own = "temp/ray-9-0-abcdef/inside"  # of this attempt
    node = remove(tmp_path, ["slurmray-9-0-node2 slurmray.user=USER"], UNKNOWN, own)
    assert (requests(node), calls(node)) == ([], [])
    assert (tmp_path / "temp/ray-9-0-abcdef").exists()


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize(
    ("squeue", "is_removed"),
    [
        (UNKNOWN, True),
        ("exit 0", True),  # ended, and Slurm still knows it
        ("echo 7 PD", True),  # requeued, and not on a node
        ("echo 7 R", False),
        ("echo 7 CG", False),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", False),
        ("exit 127", False),
    ],
)
def test_a_container_and_a_folder(tmp_path: Path, labels: str, squeue: str, is_removed: bool) -> None:
    node = remove(tmp_path, [f"slurmray-7-0-node1 {labels}"], squeue, SEVEN)
    assert requests(node) == [["--all", "--noheader", "--jobs=7", "--format=%A %t"]]
    assert calls(node) == (["rm --force --volumes ID"] if is_removed else [])
    assert (tmp_path / "temp/ray-7-0-0a1b2c").exists() != is_removed
    container = "leftovers removed slurmray-7-0-node1 of an ended job from node1"
    folder = "leftovers removed 1 folder of ended jobs from node1"
    assert node.phases == ([container, folder] if is_removed else [])


def test_one_request_for_all_jobs(tmp_path: Path) -> None:
    names = SEVEN, "temp/ray-8-3-0a1b2c/inside", "tmp/slurmray-7-1-node1-0a1b2c3d"
    node = remove(tmp_path, ["slurmray-10-0-node1 slurmray.user=USER"], "echo 8 R", *names)
    assert [argv[2] for argv in requests(node)] == ["--jobs=7,8,10"]
    assert calls(node) == ["rm --force --volumes ID"]
    assert [path.name for path in (tmp_path / "temp").iterdir()] == ["ray-8-3-0a1b2c"]
    assert not list((tmp_path / "tmp").iterdir())


def test_separate_requests_after_an_error(tmp_path: Path) -> None:
    answer = f"case $* in *--jobs=8\\ *) echo 8 R ;; *) {UNKNOWN} ;; esac"
    node = remove(tmp_path, [], answer, SEVEN, "temp/ray-8-0-0a1b2c/inside")
    assert [argv[2] for argv in requests(node)] == ["--jobs=7,8", "--jobs=7", "--jobs=8"]
    assert [path.name for path in (tmp_path / "temp").iterdir()] == ["ray-8-0-0a1b2c"]


def test_the_user_s_squeue_variables_change_nothing(tmp_path: Path) -> None:
    node = make_node(tmp_path, [], '[ -z "$SQUEUE_STATES" ] || echo 7 R')
    node.env["SQUEUE_STATES"] = "all"
    (tmp_path / "temp/ray-7-0-0a1b2c/inside").mkdir(parents=True)
    leftovers.remove(node, make("podman", node))
    assert not (tmp_path / "temp/ray-7-0-0a1b2c").exists()


def test_earlier_attempts_of_this_job_have_ended(tmp_path: Path) -> None:
    node = make_node(tmp_path, ["slurmray-9-0-node1 slurmray.user=USER,slurmray.node=node1"], "exit 1")
    node.job["attempt"], node.container_name = 1, "slurmray-9-1-node1"
    (tmp_path / "temp/ray-9-0-0a1b2c/inside").mkdir(parents=True)
    leftovers.remove(node, make("podman", node))
    assert requests(node) == []
    assert calls(node) == ["rm --force --volumes ID"]
    assert not (tmp_path / "temp/ray-9-0-0a1b2c").exists()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # Of an earlier job with the same id; without --force, so not if it runs.
        ("slurmray-9-0-node1 slurmray.user=USER,slurmray.node=node1", ["rm --volumes ID"]),
        ("slurmray-9-0-node1-web slurmray.user=USER,slurmray.node=node1", ["rm --volumes ID"]),
        ("slurmray-9-0-node1-2 slurmray.user=USER,slurmray.node=node1-2", []),  # a node on the same host
        ("slurmray-7-0-node1 slurmray.user=somebody", []),
        ("slurmray-7-0-node1 slurmray.user=USER2", []),
        ("not-slurmray-7-0-node1 slurmray.user=USER", []),
        ("slurmray-7-0-node1", []),
    ],
)
def test_which_containers_are_removed(tmp_path: Path, row: str, expected: list[str]) -> None:
    node = remove(tmp_path, [row], UNKNOWN)
    assert calls(node) == expected
    assert (node.findings, requests(node)) == ([], [])


@pytest.mark.parametrize(("labels", "owner"), [("slurmray.user=bob", "bob"), ("map[]", "unknown")])
def test_a_name_that_is_taken(tmp_path: Path, labels: str, owner: str) -> None:
    node = remove(tmp_path, [f"slurmray-9-0-node1 {labels}"], UNKNOWN)
    found, fix = f"slurmray-9-0-node1 exists, owner {owner}", "podman rm slurmray-9-0-node1, if it is yours"
    row = ("preflight", "container name", found, "no container of that name", f"{fix} to remove")
    assert node.findings == [row]


@pytest.mark.parametrize("ends", ["by itself", "dead", "never"])
def test_the_container_of_the_start_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Its node agent was killed: it ends soon."""
    monkeypatch.setattr(leftovers, "END_WAIT", 2.0)
    node = make_node(tmp_path, ["slurmray-9-0-node1 slurmray.user=USER"], UNKNOWN)
    asked = f"echo >>{tmp_path}/asked; [ $(wc -l <{tmp_path}/asked) -gt 2 ]"
    actions = {"by itself": f"{asked} && : >{tmp_path}/ps; exit 1", "dead": asked, "never": "exit 2"}
    node.program("podman", f'[ "$1" = ps ] && exec cat {tmp_path}/ps\n{actions[ends]}')
    leftovers.remove(node, make("podman", node))
    assert len(node.findings) == (ends == "never")
    assert len(node.phases) == (ends != "never")


def test_other_files_stay(tmp_path: Path) -> None:
    node = make_node(tmp_path, [], UNKNOWN)
    kept = [
        "temp/ray-7-0-0a1b2c",
        "temp/ray-x-0/inside",
        "temp/ray/inside",
        "temp/xray-7-0-0a1b2c/inside",
        "other/inside",
    ]
    kept += ["temp/ray-7-1-more/inside", "temp/ray-7-1/inside", "tmp/slurmray-7-0-node2"]
    kept += ["temp/ray-7-0-0a1b2c\n/inside", "tmp/slurmray-7-0-node1-0a1b2c3d\n"]
    for name in kept:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "temp/ray-7-2-0a1b2c").symlink_to(tmp_path / "other")
    leftovers.remove(node, make("podman", node))
    assert all((tmp_path / name).exists() for name in [*kept, "temp/ray-7-2-0a1b2c"])


def test_folders_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    remove(tmp_path, [], UNKNOWN, SEVEN)
    assert (tmp_path / "temp/ray-7-0-0a1b2c").exists()


def test_a_job_that_starts_during_the_request(tmp_path: Path) -> None:
    """Slurm's answer does not contain it, because it started after the request."""
    remove(tmp_path, [], f"mkdir -p {tmp_path}/temp/ray-8-0-0a1b2c/inside; {UNKNOWN}", SEVEN)
    assert [path.name for path in (tmp_path / "temp").iterdir()] == ["ray-8-0-0a1b2c"]


def test_without_a_container_runtime(tmp_path: Path) -> None:
    node = make_node(tmp_path, [], UNKNOWN)
    (tmp_path / "temp/ray-7-0-0a1b2c/inside").mkdir(parents=True)
    leftovers.remove(node, make("none", node))
    assert not (tmp_path / "temp/ray-7-0-0a1b2c").exists()
