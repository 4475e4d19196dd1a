"""container.stage: one node pulls or builds, and the others load its archive."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.node.runtimes.podman import Podman

from ..fake_node import FakeNode

ID = "0123456789abcdef" * 4
NAME = "docker.io/rayproject/ray:2.60.0"
# The store is a folder with a file for each name and id; `new` has the id of what a pull brings.
PODMAN = f"""
cd %(store)s || exit 9
verb=$1 name=$2
for last; do :; done
file=$(echo "$last" | tr / _)
case $verb in
image)
    [ -e "$file" ] || exit 1
    [ "$name" = exists ] || cat "$file"
    exit ;;
esac
echo "$@" >>%(calls)s
case $verb in
pull | build) [ "$verb" = pull ] || file=rayproject_ray:2.60.0
    [ ! -e ../fails ] || {{ echo "Error: manifest unknown" >&2; exit 125; }}
    cp ../new "$file"; cp ../new "$(cat ../new)" ;;
save) [ ! -e ../full ] || {{ echo "Error: no space left on device" >&2; exit 125; }}
    cp "$file" "$3" ;;
load) cp "$3" "$(cat "$3")"; [ -e ../untagged ] || cp "$3" {NAME.replace("/", "_")} ;;
esac
"""


class Cluster:
    """Nodes with stores of their own, which share a run directory."""

    def __init__(self, folder: Path, **container: Any) -> None:
        self.folder = folder
        self.container = {"stage": "shared", **container}
        self.images = folder / "images"
        (folder / "new").write_text(ID)

    def node(self, name: str, **container: Any) -> tuple[FakeNode, Podman]:
        """A node with an image that it has to get."""
        node = FakeNode(self.folder / name, {**self.container, **container})
        node.name = name
        node.container_name = "slurmray-9-0-" + name
        run = self.folder / "9-0"
        run.mkdir(exist_ok=True)
        node.job["run_dir"] = str(run)
        store = self.folder / f"store-{name}"
        store.mkdir(exist_ok=True)
        node.program("podman", PODMAN % {"store": store, "calls": node.root / "calls"})
        runtime = Podman(node)
        assert runtime.works()
        return node, runtime

    def calls(self, name: str) -> list[str]:
        path = self.folder / name / "calls"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def run(self, *names: str) -> list[str]:
        """The images of the nodes, which get them one after another."""
        images = []
        for name in names:
            node, runtime = self.node(name)
            runtime.ensure_images()
            assert node.findings == []
            images.append(runtime.image)
        return images


def test_one_node_pulls(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    assert cluster.run("node1", "node2", "node3") == [NAME, NAME, NAME]
    assert [cluster.calls(name) for name in ("node1", "node2", "node3")] == [
        ["pull", "save"],
        ["load"],
        ["load"],
    ]
    assert [path.name for path in cluster.images.iterdir()] == [f"{ID}.tar"]
    assert cluster.images.stat().st_mode & 0o777 == 0o700


def test_one_node_builds(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, build={"file": "Dockerfile", "context": "."})
    cluster.run("node1", "node2")
    assert [cluster.calls("node1"), cluster.calls("node2")] == [["build", "save"], ["load"]]


def test_a_later_job(tmp_path: Path) -> None:
    """It asks the registry for the tag, and finds the archive of the same image."""
    cluster = Cluster(tmp_path)
    cluster.run("node1")
    os.utime(cluster.images / f"{ID}.tar", (0, 0))
    (tmp_path / "9-0/image-id").unlink()
    cluster.run("node2", "node3")
    assert [cluster.calls("node2"), cluster.calls("node3")] == [["pull"], ["load"]]
    assert (cluster.images / f"{ID}.tar").stat().st_mtime > 0  # when it was used, for `slurmray clean`


def test_a_name_that_means_another_image(tmp_path: Path) -> None:
    """All nodes run the image that one of them has pulled."""
    cluster = Cluster(tmp_path, pull="always")
    cluster.run("node1")
    _, runtime = cluster.node("node2")
    for name in (NAME.replace("/", "_"), ID):
        (tmp_path / "store-node2" / name).write_text("f" * 64 if ":" in name else ID)
    runtime.image_is_here = True
    runtime.ensure_images()
    assert (runtime.image, cluster.calls("node2")) == (ID, [])


def test_an_archive_without_the_name(tmp_path: Path) -> None:
    """As of an image that is given by its digest."""
    (tmp_path / "untagged").touch()
    assert Cluster(tmp_path).run("node1", "node2") == [NAME, ID]


@pytest.mark.parametrize("fault", ["full", "not a folder"])
def test_an_archive_that_cannot_be_saved(tmp_path: Path, fault: str) -> None:
    cluster = Cluster(tmp_path)
    if fault == "full":
        (tmp_path / "full").touch()
    else:
        cluster.images.touch()
    node, runtime = cluster.node("node1")
    runtime.ensure_images()
    why = "Error: no space left on device" if fault == "full" else os.strerror(errno.ENOTDIR)
    assert node.phases[-1] == (
        f"image cannot save the image in {cluster.images}: {why}. Each node fetches it for itself"
    )
    assert node.findings == []
    assert cluster.run("node2") == [NAME]
    assert cluster.calls("node2") == ["pull"]


@pytest.mark.attack("an archive of the image that all nodes load")
@pytest.mark.parametrize("fault", ["archive", "id", "newline", "missing"])
def test_an_archive_with_another_image(tmp_path: Path, fault: str) -> None:
    """The node pulls for itself, under the name of the job spec."""
    cluster = Cluster(tmp_path)
    cluster.run("node1")
    archive = cluster.images / f"{ID}.tar"
    if fault == "archive":
        archive.write_text("e" * 64)
    elif fault == "id":
        (tmp_path / "9-0/image-id").write_text(f"../{ID}")
    elif fault == "newline":
        (tmp_path / "9-0/image-id").write_text(f"{ID}\n")
        archive.rename(f"{archive.with_suffix('')}\n.tar")
    else:
        archive.unlink()
    assert cluster.run("node2") == [NAME]
    assert cluster.calls("node2")[-1] == "pull"


def test_a_pull_that_fails(tmp_path: Path) -> None:
    """Each node tries, as one node may be the reason, and none waits."""
    cluster = Cluster(tmp_path)
    (tmp_path / "fails").touch()
    for name in ("node1", "node2"):
        node, runtime = cluster.node(name)
        runtime.ensure_images()
        assert [finding[:3] for finding in node.findings] == [
            ("image", "podman pull", "Error: manifest unknown")
        ]
        assert not any(phase.startswith("image waiting") for phase in node.phases)


def test_an_image_that_is_here(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    node, runtime = cluster.node("node1")
    runtime.image_is_here = True
    runtime.ensure_images()
    assert (cluster.calls("node1"), node.waited) == ([], [])
    assert not cluster.images.exists()
