"""The image with Ray that a rehearsal builds."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from slurmray.rehearsal.images import ray_image
from slurmray.spec.container import DEFAULT_IMAGE


def _layer(folder: Path, text: str) -> Path:
    (folder / "file").write_text(text)
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(folder / "file", "file")
    return layer


def test_archive_follows_docker_s_image_specification(tmp_path: Path) -> None:
    layer = _layer(tmp_path, "hello")
    ray_image.write(tmp_path / "image.tar", layer, "docker.io/some/image:1", "amd64")
    with tarfile.open(tmp_path / "image.tar") as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        content = {name: stream.read() for name, stream in files.items() if stream}
    [manifest] = json.loads(content["manifest.json"])
    assert manifest["RepoTags"] == ["docker.io/some/image:1"]
    config = content[manifest["Config"]]
    assert manifest["Config"] == hashlib.sha256(config).hexdigest() + ".json"
    [name] = manifest["Layers"]
    assert content[name] == layer.read_bytes()
    assert json.loads(config)["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(content[name]).hexdigest()]
    assert json.loads(config)["config"]["User"] == "ray"


def test_same_layer_gives_the_same_archive(tmp_path: Path) -> None:
    layer = _layer(tmp_path, "hello")
    for name in ("a", "b"):
        ray_image.write(tmp_path / name, layer, "tag", "amd64")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_built_image_has_the_ray_version_of_the_default_image() -> None:
    assert DEFAULT_IMAGE.endswith(f":{ray_image.RAY_VERSION}-py311")


@pytest.mark.parametrize(
    ("tag", "version"),
    [
        ("docker.io/rayproject/ray:2.44.1-py311-cu121", "2.44.1"),
        ("rayproject/ray:2.52.1", "2.52.1"),
        ("docker.io/rayproject/ray:latest", ray_image.RAY_VERSION),
        ("registry.example/mine:1.2.3", ray_image.RAY_VERSION),
    ],
)
def test_ray_version_from_the_image_name(tag: str, version: str) -> None:
    assert ray_image.ray_version(tag) == version


@pytest.mark.parametrize(
    ("tag", "python"),
    [
        ("docker.io/rayproject/ray:2.44.1-py313-cu121", "3.13"),
        ("rayproject/ray:2.60.0-py312", "3.12"),
        ("docker.io/rayproject/ray:2.60.0-py39", "3.11"),
        ("registry.example/mine:1.2.3-py313", "3.11"),
    ],
)
def test_python_version_from_the_image_name(tag: str, python: str) -> None:
    assert ray_image.python_version(tag) == python
