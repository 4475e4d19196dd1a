"""Bind mounts."""

import csv
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.node.runtimes.docker import Docker
from slurmray.agent.node.runtimes.mount_options import mount_options, private_mount

from ...fake_node import FakeNode


def mount(source: str, destination: str = "", *options: str) -> dict[str, Any]:
    return {"source": source, "destination": destination, "options": list(options)}


def mount_values(node: FakeNode, reachable: str = "") -> list[str]:
    runtime = Docker(node)
    if reachable:
        runtime.reachable_path = lambda path: reachable if path.startswith(reachable) else path  # type: ignore[method-assign]
    options = mount_options(node, runtime)
    assert options[::2] == ["--mount"] * (len(options) // 2)
    return options[1::2]


def make_node(folder: Path, *mounts: dict[str, Any]) -> FakeNode:
    node = FakeNode(folder, {"mounts": list(mounts)}).make_folder()
    (folder / "submit/data").mkdir()
    return node


# Of a job 9 with job_container/tmpfs. The last part is missing before Slurm 23.02.
MOUNTINFO = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:30 / {tmp} rw - tmpfs tmpfs rw
31 22 8:1 /var/spool/{job}/.{job}{last} {tmp} rw - ext4 /dev/sda1 rw
32 22 0:31 / {tmp}/own\\040disk rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("job", "path", "expected"),
    [
        ("9", "/tmp/ray-9-0-1/inside", "/tmp"),
        ("9", "/tmpfile", ""),
        ("9", "/tmp/own disk/x", ""),
        ("9", "/home", ""),
        ("8", "/tmp", ""),  # of another job: this one was started in its mount namespace
    ],
)
@pytest.mark.parametrize("last", ["", "/_tmp"])
def test_a_folder_that_slurm_made_for_the_job(
    tmp_path: Path, job: str, path: str, expected: str, last: str
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTINFO.format(tmp="/tmp", job=job, last=last))
    assert private_mount(path, FakeNode(tmp_path).job["id"], str(tmp_path)) == expected


def test_mounts_that_docker_does_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node(tmp_path, mount("data"))
    runtime = Docker(node)
    monkeypatch.setattr(
        runtime, "private_folder", lambda path: "/tmp" if "/inside" in path or "/data" in path else ""
    )
    options = mount_options(node, runtime)
    assert options == ["--mount", f'type=bind,"source={tmp_path}/submit","target={tmp_path}/submit"']
    found = "/tmp is the job's own (job_container/tmpfs), and docker sees another"
    wanted = "a folder that is the same for both"
    assert node.findings == [
        ("preflight", "mount", found, wanted, fix)
        for fix in (
            "set ray.temp_dir to a folder elsewhere on the node's disk",
            f"mount another folder than {tmp_path}/submit/data",
        )
    ]


def test_one_folder_with_several_names_is_mounted_once(tmp_path: Path) -> None:
    names = [".", "data/", "data", f"{tmp_path}/submit/./data"]
    node = make_node(tmp_path, *map(mount, names), mount("data/", f"{tmp_path}/submit/data"))
    assert mount_values(node)[1:] == [
        f'type=bind,"source={tmp_path}/{name}","target={tmp_path}/{name}"'
        for name in ("submit", "submit/data")
    ]


def test_job_spec_decides_how_the_submit_folder_is_mounted(tmp_path: Path) -> None:
    node = make_node(tmp_path, mount(".", "", "ro"))
    submit = f"{tmp_path}/submit"
    assert mount_values(node)[1:] == [f'type=bind,"source={submit}","target={submit}",readonly']


def test_options_of_a_mount(tmp_path: Path) -> None:
    node = make_node(tmp_path, mount("data", "/d", "ro", "rslave"), mount("data", "/e"))
    source = f'"source={tmp_path}/submit/data"'
    assert mount_values(node)[1:3] == [
        f'type=bind,{source},"target=/d",readonly,bind-propagation=rslave',
        f'type=bind,{source},"target=/e"',
    ]


def test_any_name_is_one_field_of_the_csv(tmp_path: Path) -> None:
    name = 'a,"b"\n=c'
    node = make_node(tmp_path, mount(name, "/x"))
    (tmp_path / "submit" / name).mkdir()
    (fields,) = csv.reader([mount_values(node)[1]], strict=True)
    assert fields == ["type=bind", f"source={tmp_path}/submit/{name}", "target=/x"]


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    node = make_node(tmp_path, mount("none"))
    mount_values(node)
    ((kind, check, text, _, fix),) = node.findings
    assert (kind, check, text) == ("preflight", "mount", f"{tmp_path}/submit/none: no such file or directory")
    assert fix == "create it there, or remove it from container.mounts"


def test_folder_that_root_of_docker_cannot_enter(tmp_path: Path) -> None:
    submit = f"{tmp_path}/submit"
    node = make_node(tmp_path, mount("data"))
    assert mount_values(node, reachable=submit)[1:] == [f'type=bind,"source={submit}","target={submit}"']
    assert node.phases[0] == f"container the root of docker cannot enter {submit}, so all of it is mounted"
    assert node.findings == []


def test_folder_that_root_of_docker_cannot_enter_at_another_path(tmp_path: Path) -> None:
    node = make_node(tmp_path, mount("data", "/d"))
    mount_values(node, reachable=f"{tmp_path}/submit")
    ((_, check, text, _, fix),) = node.findings
    assert (check, text) == ("mount", f"the root of docker cannot enter {tmp_path}/submit")
    assert fix == f"mount it at the same path, use Podman, or chmod o+x {tmp_path}/submit"


@pytest.mark.parametrize("name", ["/", "//a/../b/", "/a//b/."])
def test_normalize(name: str) -> None:
    from slurmray.agent.node.runtimes.mount_options import normalize

    assert normalize(name) in ("/", "/b", "/a/b")
