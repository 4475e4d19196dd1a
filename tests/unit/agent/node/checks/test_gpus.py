"""Device options of containers, and findings about GPUs. Devices are empty files: no test has a real GPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.node import runtimes
from slurmray.agent.node.api import Result
from slurmray.agent.node.checks import gpus
from slurmray.agent.node.runtimes import podman

from ...fake_node import FakeNode


def make_node(
    work: Path,
    devices: str,
    environment: dict[str, str] | None = None,
    *,
    minors: str = "",
    models: str = "",
    bf16: bool = False,
    vendors: Sequence[str] = ("nvidia", "amd"),
) -> FakeNode:
    """A node with these devices.

    minors: minor numbers of AMD's render nodes, 0 for a CPU. models: lines of name and compute capability.
    """
    checks: dict[str, Any] = {"paths": [], "same_commit": "", "bf16": bf16}
    node = FakeNode(work, {"accelerators": list(vendors)}, gpus_per_node=2, checks=checks)
    node.env.update(environment or {})
    for device in devices.split():
        path = work / "dev" / device
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for number, minor in enumerate(minors.split()):
        folder = work / f"sys/class/kfd/kfd/topology/nodes/{number}"
        folder.mkdir(parents=True)
        (folder / "properties").write_text(f"cpu_cores_count 8\ndrm_render_minor {minor}\nlocation_id 3\n")
    (work / "models").write_text(models)
    node.program(
        "nvidia-smi",
        f'case $1 in *name*) cat "{work}/models" ;; *) echo "GPU-a ($*)"; echo GPU-b ;; esac',
    )
    return node


def options(node: FakeNode, runtime: str) -> list[str]:
    return gpus.options(node, runtimes.make(runtime, node), str(node.root))


def test_docker_gets_nvidia_gpus_by_uuid(tmp_path: Path) -> None:
    node = make_node(tmp_path, "nvidiactl nvidia0", {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert options(node, "docker") == [
        "--gpus",
        '"device=GPU-a (--query-gpu=uuid --format=csv,noheader --id=4,5),GPU-b"',
    ]
    assert node.findings == []


def test_apptainer_gets_the_mask_of_slurm(tmp_path: Path) -> None:
    node = make_node(tmp_path, "nvidiactl infiniband/x", {"CUDA_VISIBLE_DEVICES": "4,5"})
    expected = ["--nv", "--env", "CUDA_VISIBLE_DEVICES=4,5", "--bind", "/dev/infiniband"]
    assert options(node, "apptainer") == expected


def test_apptainer_gets_the_mask_of_slurm_for_amd(tmp_path: Path) -> None:
    node = make_node(tmp_path, "kfd", {"ROCR_VISIBLE_DEVICES": "0,2"})
    assert options(node, "apptainer") == ["--rocm", "--env", "ROCR_VISIBLE_DEVICES=0,2"]


@pytest.mark.parametrize("runtime", ["none", "pyxis"])
def test_without_a_container_gpus_are_only_counted(tmp_path: Path, runtime: str) -> None:
    node = make_node(tmp_path, "nvidiactl infiniband/x", {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert (options(node, runtime), node.findings) == ([], [])


def test_without_a_container_gpus_of_amd_are_counted_too(tmp_path: Path) -> None:
    node = make_node(tmp_path, "kfd", {"ROCR_VISIBLE_DEVICES": "0"})
    assert options(node, "none") == []
    fix = "look at gres.conf of node1: File= is missing"
    assert node.findings == [("preflight", "GPUs", "1 named by Slurm", "2", fix)]


def test_podman_gets_nvidia_gpus_by_cdi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node(tmp_path, "nvidiactl nvidia0")
    (tmp_path / "cdi").mkdir()
    monkeypatch.setattr(podman, "CDI_FOLDERS", [str(tmp_path / "no"), str(tmp_path / "cdi")])
    devices = [
        "--device=nvidia.com/gpu=GPU-a (--query-gpu=uuid --format=csv,noheader)",
        "--device=nvidia.com/gpu=GPU-b",
    ]
    assert options(node, "podman") == devices
    fix = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on node1"
    assert node.findings == [("preflight", "GPUs", "no CDI specification", "one, for Podman", fix)]
    (tmp_path / "cdi/nvidia.yaml").touch()
    node.findings = []
    assert options(node, "podman") == devices
    assert node.findings == []


@pytest.mark.parametrize("program", ["echo No devices were found; exit 6", "echo GPU-a"])
def test_fewer_gpus_than_slurm_gave(tmp_path: Path, program: str) -> None:
    node = make_node(tmp_path, "nvidiactl")
    node.program("nvidia-smi", program)
    options(node, "none")
    ((kind, check, found, wanted, fix),) = node.findings
    assert (kind, check, wanted) == ("preflight", "GPUs", "2")
    assert found == f"{program.count('GPU-')} seen by nvidia-smi"
    assert fix == "look at nvidia-smi on node1; drain it if one is missing"


def test_nvidia_smi_has_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node(tmp_path, "nvidiactl", {"CUDA_VISIBLE_DEVICES": "4,5"}, bf16=True)
    timeouts: list[float] = []
    run = node.run

    def note(argv: list[str], timeout: float = 20.0) -> Result:
        timeouts.append(timeout)
        return run(argv, timeout)

    monkeypatch.setattr(node, "run", note)
    options(node, "docker")
    assert timeouts == [60, 60]


# `nvidia-smi -L` in NVIDIA's MIG User Guide, two GPU instances of an A100.
MIG = """\
GPU 0: A100-SXM4-40GB (UUID: GPU-e86cb44c-6756-fd30-cd4a-1e6da3caf9b0)
  MIG 3g.20gb Device 0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 3g.20gb Device 1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
"""
MIG_UUIDS = ["MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d", "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"]


@pytest.mark.parametrize(
    ("mask", "uuids"), [(MIG_UUIDS, MIG_UUIDS), ([MIG_UUIDS[0], "MIG-c7384736"], MIG_UUIDS[:1])]
)
def test_mig_devices(tmp_path: Path, mask: list[str], uuids: list[str]) -> None:
    node = make_node(tmp_path, "nvidiactl", {"CUDA_VISIBLE_DEVICES": ",".join(mask)}, bf16=True)
    (tmp_path / "list").write_text(MIG)
    node.program("nvidia-smi", f'[ $1 = --list-gpus ] && cat "{tmp_path}/list" || exit 6')
    assert options(node, "docker") == ["--gpus", f'"device={",".join(uuids)}"']
    assert [finding[2] for finding in node.findings] == ["1 seen by nvidia-smi"] * (2 - len(uuids))


V100 = (
    "warn",
    "bf16",
    "Tesla V100 of compute capability 7.0",
    "8.0 or higher",
    "have the trainer compute in fp16, or ask for other GPUs",
)


@pytest.mark.parametrize(
    ("bf16", "models", "expected"),
    [
        (True, "Tesla V100, 7.0\nTesla V100, 7.0\n", [V100]),
        (True, "NVIDIA A100, 8.0\nTesla V100, 7.0\n", [V100]),
        (True, "NVIDIA H100, 9.0\nNVIDIA B200, 10.0\n", []),
        (True, 'Field "compute_cap" is not a valid field to query.\n', []),
        (False, "Tesla V100, 7.0\n", []),
    ],
)
def test_bf16_on_gpus_that_lack_it(
    tmp_path: Path, bf16: bool, models: str, expected: list[tuple[str, ...]]
) -> None:
    node = make_node(tmp_path, "nvidiactl", models=models, bf16=bf16)
    options(node, "docker")
    assert node.findings == expected


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_amd_gets_the_render_nodes_of_the_job_s_gpus(tmp_path: Path, runtime: str) -> None:
    devices = "kfd dri/renderD128 dri/renderD129 dri/renderD130 infiniband/uverbs0"
    node = make_node(tmp_path, devices, {"SLURM_STEP_GPUS": "0,2"}, minors="0 0 128 129 130")
    group = str((tmp_path / "dev/kfd").stat().st_gid)
    expected: list[str] = []
    for device in ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD130"):
        expected += ["--device", device, "--group-add", group]
    assert options(node, runtime) == [*expected, "--device", "/dev/infiniband"]
    assert node.findings == []


@pytest.mark.parametrize("index", ["1", "x"])
def test_a_gpu_that_slurm_gave_and_the_node_lacks(tmp_path: Path, index: str) -> None:
    node = make_node(tmp_path, "kfd dri/renderD128", {"SLURM_STEP_GPUS": f"0,{index}"}, minors="0 128")
    options(node, "podman")
    fix = "load amdgpu on node1; drain it if that fails"
    assert node.findings == [("preflight", "GPUs", f"GPU {index} has no render node", "one in /dev/dri", fix)]


def test_a_node_without_a_driver(tmp_path: Path) -> None:
    node = make_node(tmp_path, "null")
    assert options(node, "podman") == []
    fix = "fix the driver, or set container.accelerator: none"
    assert node.findings == [("preflight", "GPUs", "no driver for nvidia or amd", "2 GPUs", fix)]


def test_a_driver_of_another_vendor(tmp_path: Path) -> None:
    node = make_node(tmp_path, "nvidiactl", vendors=["amd"])
    options(node, "docker")
    assert node.findings[0][2] == "no driver for amd"


@pytest.mark.parametrize(("runtime", "option"), [("docker", "--device"), ("apptainer", "--bind")])
def test_devices_of_the_network_between_nodes(tmp_path: Path, runtime: str, option: str) -> None:
    devices = "cxi0 cxi1 gdrdrv infiniband/uverbs0 nvidia-caps-imex-channels/channel0"
    node = make_node(tmp_path, f"nvidiactl {devices}")
    expected: list[str] = []
    for device in ("infiniband", "cxi0", "cxi1", "gdrdrv", "nvidia-caps-imex-channels/channel0"):
        expected += [option, f"/dev/{device}"]
    assert options(node, runtime)[-len(expected) :] == expected


def test_a_job_without_gpus(tmp_path: Path) -> None:
    node = make_node(tmp_path, "nvidiactl infiniband/x", vendors=[])
    assert (options(node, "docker"), node.findings) == ([], [])


def test_the_rehearsal_s_variable_turns_options_off(tmp_path: Path) -> None:
    node = make_node(tmp_path, "nvidiactl", {"SLURMRAY_ACCELERATOR": "none"})
    assert options(node, "docker") == []
    assert node.phases[0].startswith("container SLURMRAY_ACCELERATOR=none")
