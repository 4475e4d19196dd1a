"""Images that the nodes load from a tar file or build, on a real Slurm."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmray.rehearsal import machine
from slurmray.rehearsal.cluster.slurm_cluster import SlurmCluster
from slurmray.rehearsal.images import ray_image
from slurmray.spec.container import DEFAULT_IMAGE

from .jobs import HANG, Jobs, wait_clean


def spec_of(jobs: Jobs, container: dict[str, Any]) -> str:
    slurm = {"nodes": 2, "cpus_per_task": 1, "mem": "1G"}
    return yaml.safe_dump(
        {"slurm": slurm, "container": {"runtime": jobs.cluster.layout.runtime, **container}}
    )


@pytest.fixture(params=["podman", pytest.param("docker", marks=pytest.mark.full)])
def jobs(request: pytest.FixtureRequest, folder: Path) -> Jobs:
    cluster = request.getfixturevalue(f"{request.param}_cluster")
    assert isinstance(cluster, SlurmCluster)
    return Jobs(cluster, folder, "alice")


@pytest.mark.full
def test_two_jobs_build_once_on_each_node(jobs: Jobs) -> None:
    (jobs.folder / "made").write_text("made\n")
    (jobs.folder / "Containerfile").write_text(f"FROM {DEFAULT_IMAGE}\nCOPY made /made\n")
    build = {"file": str(jobs.folder / "Containerfile")}
    spec = spec_of(jobs, {"image": "localhost/made:1", "build": build})
    numbers = [jobs.submit(spec, ["cat", "/made"]) for _ in range(2)]
    logs = []
    for number in numbers:
        _, code = jobs.cluster.wait(number, HANG)
        log = jobs.log(number)
        assert code == "0:0", log
        assert "\nmade\n" in log
        logs += [file.read_text() for file in jobs.folder.glob(f"slurmray-runs/{number}-0/logs/*.log")]
    assert len(logs) == 4
    assert sum("COPY made /made" in log for log in logs) == 2
    wait_clean(jobs.cluster)


@pytest.mark.full
def test_one_node_builds_for_all(jobs: Jobs) -> None:
    """With container.stage: shared. Another job finds the archive."""
    (jobs.folder / "made").write_text(f"{jobs.folder}\n")
    (jobs.folder / "Containerfile").write_text(f"FROM {DEFAULT_IMAGE}\nCOPY made /made\n")
    build = {"file": str(jobs.folder / "Containerfile")}
    spec = spec_of(jobs, {"image": "localhost/made:2", "build": build, "stage": "shared"})
    job = jobs.run(spec, ["cat", "/made"])
    assert job.code == "0:0", job.log
    assert f"\n{jobs.folder}\n" in job.log
    runs = jobs.folder / "slurmray-runs"
    logs = [file.read_text() for file in runs.glob("*-0/logs/*.log")]
    assert len(logs) == 2
    assert sum("COPY made /made" in log for log in logs) == 1, logs
    (archive,) = (runs / "images").iterdir()
    (image_id,) = (path.read_text() for path in runs.glob("*-0/image-id"))
    assert archive.name == f"{image_id}.tar"
    for host in jobs.cluster.pids:
        if host.startswith("node"):
            command = [
                jobs.cluster.layout.runtime,
                "image",
                "inspect",
                "--format",
                "{{.Id}}",
                "localhost/made:2",
            ]
            printed = jobs.cluster.run(command, "alice", host).stdout
            assert printed.strip().rpartition(":")[2] in ("", image_id)
    wait_clean(jobs.cluster)


@pytest.mark.full
def test_an_image_from_a_tar(jobs: Jobs) -> None:
    image = "docker.io/rayproject/ray:2.52.1-py311"
    (jobs.folder / "image.tar").hardlink_to(ray_image.archive(machine.cache_folder(), image, print))
    job = jobs.run(spec_of(jobs, {"image": image, "archive": "image.tar"}), ["true"])
    assert job.code == "0:0", job.log
    assert f"image: {jobs.cluster.layout.runtime} load {image}" in job.log


def test_a_tar_with_another_image(jobs: Jobs) -> None:
    with tarfile.open(jobs.folder / "layer.tar", "w") as layer:
        layer.add(__file__, "file")
    ray_image.write(jobs.folder / "image.tar", jobs.folder / "layer.tar", "docker.io/other/one:1", "amd64")
    job = jobs.run(spec_of(jobs, {"image": "none/such:1", "archive": "image.tar"}), ["true"])
    assert job.code == "66:0", job.log
    fix = f"set container.image to the name that {jobs.cluster.layout.runtime} load prints"
    assert job.last_line.endswith(f"/image.tar: has no image of that name; {fix}"), job.log


@pytest.mark.full
def test_podman_waits_for_another_one(podman_cluster: SlurmCluster, folder: Path) -> None:
    """For longer than the deadline of short commands. The lock is the one that `podman pull` holds."""
    jobs = Jobs(podman_cluster, folder, "alice")
    lock = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(30)"
    )
    (folder / "lock.py").write_text(lock)
    setup = (
        "layers=$(podman info --format '{{.Store.GraphRoot}}')/overlay-layers\n"
        f"python3 {folder}/lock.py $layers/layers.lock >/dev/null 2>&1 &\n"
        "sleep 1\n"
    )
    spec = yaml.safe_load(spec_of(jobs, {})) | {"setup": setup}
    job = jobs.run(yaml.safe_dump(spec), ["true"])
    assert job.code == "0:0", job.log
    assert "podman image waits for a lock that another process holds" in job.log
    wait_clean(jobs.cluster)
