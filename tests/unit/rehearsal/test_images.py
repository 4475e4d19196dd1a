import hashlib
import json
import multiprocessing
import multiprocessing.synchronize
import tarfile
import time
from pathlib import Path

import pytest

from slurmray.errors import RehearsalError
from slurmray.rehearsal.images import cache, ray_image, suites
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


def test_failed_build_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.mkdir()
        (path / "partial").touch()
        raise RehearsalError("the mirror is down")

    with pytest.raises(RehearsalError, match="the mirror is down"):
        cache.build_once(tmp_path, "thing", fail, print)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    assert (
        cache.build_once(tmp_path, "thing", lambda path: path.write_text("complete"), print).read_text()
        == "complete"
    )


def test_files_of_a_killed_build_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".thing.new" / "thing").mkdir(parents=True)
    assert (
        cache.build_once(tmp_path, "thing", lambda path: path.write_text("complete"), print).read_text()
        == "complete"
    )
    assert not (tmp_path / ".thing.new").exists()


def test_long_build_logs_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_PROGRESS_EVERY", 0.01)
    logged: list[str] = []

    def build(path: Path) -> None:
        (path.parent / "download").write_bytes(bytes(3_500_000))
        path.touch()
        deadline = time.monotonic() + 60
        while "  3 MB so far" not in logged and time.monotonic() < deadline:
            time.sleep(0.01)

    cache.build_once(tmp_path, "thing", build, logged.append)
    assert "  3 MB so far" in logged


def _build_once(folder: Path, barrier: multiprocessing.synchronize.Barrier) -> None:
    def build(path: Path) -> None:
        with (folder / "builds").open("a") as log:
            log.write("built\n")
        path.touch()

    barrier.wait(30)
    cache.build_once(folder, "thing", build, print)


def test_concurrent_callers_build_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    workers = [context.Process(target=_build_once, args=(tmp_path, barrier)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert (tmp_path / "builds").read_text() == "built\n"


@pytest.mark.cluster
def test_unknown_suite_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(RehearsalError, match=r"Debian nosuchsuite could not be built: E: .*nosuchsuite"):
        suites.root(tmp_path, "nosuchsuite", lambda _: None)


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
    assert ray_image.ray_version_of(tag) == version


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
    assert ray_image.python_version_of(tag) == python
