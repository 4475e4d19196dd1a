"""Which device flags a node gets. Its devices are empty files here: no test had a real GPU."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurmray.loading import load_spec
from slurmray.rendering import render

# /dev, /etc and /sys of a node, in a mount namespace of the test's own.
NODE = r"""
set -Eeuo pipefail
for folder in dev etc sys; do mount --rbind "$WORK/$folder" "/$folder"; done
eval "$FUNCTIONS"
say() { echo "say $*"; }
finding() { local IFS='|'; echo "$*"; [[ $1 == warn ]] || exit 0; }
RUN_ARGS=() GPUS_PER_NODE=2 NODE=gpu-1 RUNTIME=$1
accelerator_args
printf '%s\n' "${RUN_ARGS[@]}"
"""


def arguments(
    work: Path,
    runtime: str,
    devices: str,
    environment: dict[str, str] | None = None,
    *,
    minors: str = "",
    cdi: bool = False,
    run: Sequence[str] = (),
    gpus: str = "",
) -> list[str]:
    """What accelerator_args adds to `run`, on a node with these devices.

    minors: render nodes as AMD's driver lists them, 0 is a CPU. cdi: whether NVIDIA's specification is there.
    run: words of verl. gpus: lines of NVIDIA's name and compute capability.
    """
    flags = [("--gpus-per-node", "2"), ("--runtime", runtime), ("preset", "verl")]
    script = render(load_spec(None, flags, ["python3", "-m", "verl.trainer.main_ppo", *run]))
    files = [f"dev/{device}" for device in devices.split()] + (["etc/cdi/nvidia.yaml"] if cdi else [])
    for file in ("etc/any", "sys/any", *files):
        (work / file).parent.mkdir(parents=True, exist_ok=True)
        (work / file).touch()
    (work / "dev/fd").symlink_to("/proc/self/fd")
    for number, minor in enumerate(minors.split()):
        folder = work / f"sys/class/kfd/kfd/topology/nodes/{number}"
        folder.mkdir(parents=True)
        (folder / "properties").write_text(f"cpu_cores_count 8\ndrm_render_minor {minor}\nlocation_id 3\n")
    smi = work / "bin/nvidia-smi"
    smi.parent.mkdir()
    (work / "gpus").write_text(gpus)
    smi.write_text(
        f'#!/bin/sh\ncase $1 in *name*) cat "{work}/gpus" ;; *) echo "GPU-a ($*)"; echo GPU-b ;; esac\n'
    )
    smi.chmod(0o755)
    functions = script.split("# ---- 3. container")[1].split("\n", 1)[1].split("# ---- 4. node")[0]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "bash", "-c", NODE, "node", runtime],
        env={
            "PATH": f"{smi.parent}:/usr/bin:/bin:/usr/sbin:/sbin",
            "WORK": str(work),
            "FUNCTIONS": functions,
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_docker_gets_nvidia_gpus_by_uuid(tmp_path: Path) -> None:
    found = arguments(tmp_path, "docker", "nvidiactl nvidia0", {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert found == [
        "--gpus",
        '"device=GPU-a (--query-gpu=uuid --format=csv,noheader --id=4,5),GPU-b"',
    ]


def test_apptainer_gets_the_mask_of_slurm(tmp_path: Path) -> None:
    found = arguments(tmp_path, "apptainer", "nvidiactl infiniband/x", {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert found == ["--nv", "--env", "CUDA_VISIBLE_DEVICES=4,5"]


def test_apptainer_gets_the_mask_of_slurm_for_amd(tmp_path: Path) -> None:
    found = arguments(tmp_path, "apptainer", "kfd", {"ROCR_VISIBLE_DEVICES": "0,2"})
    assert found == ["--rocm", "--env", "ROCR_VISIBLE_DEVICES=0,2"]


@pytest.mark.parametrize("runtime", ["none", "pyxis"])
def test_without_a_container_gpus_are_only_counted(tmp_path: Path, runtime: str) -> None:
    assert arguments(tmp_path, runtime, "nvidiactl", {"CUDA_VISIBLE_DEVICES": "4,5"}) == [""]


def test_without_a_container_gpus_of_amd_are_counted_too(tmp_path: Path) -> None:
    (found,) = arguments(tmp_path, "none", "kfd", {"ROCR_VISIBLE_DEVICES": "0"})
    assert found.startswith("preflight|GPUs|1 named by Slurm|2|")


def test_podman_gets_nvidia_gpus_by_cdi(tmp_path: Path) -> None:
    found = arguments(tmp_path, "podman", "nvidiactl nvidia0", cdi=True)
    assert found == [
        "--device=nvidia.com/gpu=GPU-a (--query-gpu=uuid --format=csv,noheader)",
        "--device=nvidia.com/gpu=GPU-b",
    ]


BF16 = ["actor_rollout_ref.rollout.dtype=bfloat16"]
WARNED = (
    "warn|bf16|Tesla V100 of compute capability 7.0|8.0 or higher"
    "|have the trainer compute in fp16, or ask for other GPUs"
)


@pytest.mark.parametrize(
    ("run", "gpus", "expected"),
    [
        (BF16, "Tesla V100, 7.0\nTesla V100, 7.0\n", [WARNED]),
        (BF16, "NVIDIA A100, 8.0\nTesla V100, 7.0\n", [WARNED]),
        (BF16, "NVIDIA H100, 9.0\nNVIDIA B200, 10.0\n", []),
        (BF16, 'Field "compute_cap" is not a valid field to query.\n', []),
        (["actor_rollout_ref.rollout.dtype=half"], "Tesla V100, 7.0\n", []),
    ],
)
def test_bf16_on_gpus_that_lack_it(tmp_path: Path, run: list[str], gpus: str, expected: list[str]) -> None:
    found = arguments(tmp_path, "podman", "nvidiactl nvidia0", cdi=True, run=run, gpus=gpus)
    assert [line for line in found if line.startswith("warn")] == expected
    assert found[-1] == "--device=nvidia.com/gpu=GPU-b"


def test_podman_without_cdi_says_what_to_do(tmp_path: Path) -> None:
    (found,) = arguments(tmp_path, "podman", "nvidiactl nvidia0")
    assert found.startswith("preflight|GPUs|no CDI specification|one, for Podman|nvidia-ctk cdi generate ")
    assert "nvidia-ctk cdi generate" in found


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_amd_gets_the_render_nodes_of_the_job_s_gpus(tmp_path: Path, runtime: str) -> None:
    devices = "kfd dri/renderD128 dri/renderD129 dri/renderD130 infiniband/uverbs0"
    found = arguments(tmp_path, runtime, devices, {"SLURM_STEP_GPUS": "0,2"}, minors="0 0 128 129 130")
    group = str((tmp_path / "dev/kfd").stat().st_gid)
    expected = [f"--device {device}" for device in ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD130")]
    assert " ".join(found).replace("--group-add 0 ", f"--group-add {group} ") == (
        " ".join(f"{device} --group-add {group}" for device in expected) + " --device /dev/infiniband"
    )


def test_a_gpu_that_slurm_gave_and_the_node_lacks(tmp_path: Path) -> None:
    found = arguments(tmp_path, "podman", "kfd dri/renderD128", {"SLURM_STEP_GPUS": "0,1"}, minors="0 128")
    assert found == [
        "preflight|GPUs|GPU 1 has no render node|one in /dev/dri|load amdgpu on gpu-1; drain it if that fails"
    ]


def test_a_node_without_a_driver(tmp_path: Path) -> None:
    (found,) = arguments(tmp_path, "podman", "null")
    assert found.startswith("preflight|GPUs|no driver of nvidia or amd here|2 GPUs|")


def test_the_rehearsal_s_variable_turns_flags_off(tmp_path: Path) -> None:
    found = arguments(tmp_path, "docker", "nvidiactl", {"SLURMRAY_ACCELERATOR": "none"})
    assert found[0].startswith("say phase container SLURMRAY_ACCELERATOR=none")
    assert found[1:] == [""]
