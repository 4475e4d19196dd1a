"""Device options of containers, and findings about GPUs. Devices are empty files: no test has a real GPU."""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurmray.agent.command_runner import Result
from slurmray.agent.node import runtimes
from slurmray.agent.node.checks import gpus
from slurmray.agent.node.runtimes import cdi
from tests.nvidia_smi import gpu, script

from ...fake_node import FakeNode

NONE = "echo No devices were found; exit 6"  # 580.159.04 in a job whose cgroup allows no GPU
ONE, TWO, THREE = (script(*(gpu(f"GPU-{last}") for last in names)) for names in ("a", "ab", "abc"))


def make_node(
    work: Path,
    devices: str = "nvidiactl",
    environment: dict[str, str] | None = None,
    *,
    program: str = "",
    present: int = 0,
    is_counted: bool = True,
    minors: str = "",
    models: str = "",
    bf16: bool = False,
    vendors: Sequence[str] = ("nvidia", "amd"),
) -> FakeNode:
    """A node with these devices.

    program: nvidia-smi, by default with two GPUs. present: GPUs that NVIDIA's driver has. is_counted: whether
    Slurm counts GPUs. minors: minor numbers of AMD's render nodes, 0 for a CPU. models: lines of name and
    compute capability.
    """
    checks: dict[str, Any] = {"paths": [], "same_commit": "", "bf16": bf16}
    node = FakeNode(work, {"accelerators": list(vendors)}, gpus=2, checks=checks)
    node.settings["slurm_counts_gpus"] = is_counted
    node.env.update(environment or {})
    for device in devices.split():
        path = work / "dev" / device
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for number in range(present):
        (work / f"proc/driver/nvidia/gpus/0000:0{number}:00.0").mkdir(parents=True)
    for number, minor in enumerate(minors.split()):
        folder = work / f"sys/class/kfd/kfd/topology/nodes/{number}"
        folder.mkdir(parents=True)
        (folder / "properties").write_text(f"cpu_cores_count 8\ndrm_render_minor {minor}\nlocation_id 3\n")
    (work / "models").write_text(models)
    asked = f'echo "$*" >>"{work}/calls"\ncase $1 in *compute_cap*) cat "{work}/models" ;; esac\n'
    node.program("nvidia-smi", program or asked + TWO)
    return node


def options(node: FakeNode, runtime: str) -> list[str]:
    made = runtimes.make(runtime, node)
    return made.device_options(gpus.find_devices(node, made.is_engine, str(node.root)))


def test_docker_gets_nvidia_gpus_by_uuid(tmp_path: Path) -> None:
    node = make_node(tmp_path, "nvidiactl nvidia0", {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert options(node, "docker") == ["--gpus", '"device=GPU-a,GPU-b"']
    assert node.findings == []
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.endswith("--id=4,5")


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


# Specifications as nvidia-ctk writes them, shortened. Before 1.15 with keys in alphabetical order.
CDI_1_14 = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-ctk
    - hook
    - update-ldcache
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: "1"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
  name: all
kind: nvidia.com/gpu
"""
CDI_1_15 = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
    - name: "0"
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
    - name: GPU-a
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
    - name: GPU-b
      containerEdits:
        deviceNodes:
            - path: /dev/nvidia1
"""
CDI_JSON = (
    '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"GPU-a","containerEdits":{}},'
    '{"name":"GPU-b","containerEdits":{"hooks":[{"hookName":"createContainer","path":"/usr/bin/nvidia-ctk"}]}}]}'
)
GENERATE = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on node1"


@pytest.fixture
def podman_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node with Podman 5.4, the GPUs GPU-b and GPU-a by PCI address, and no CDI specification."""
    node = make_node(tmp_path, "nvidiactl nvidia0 nvidia1")
    node.program("nvidia-smi", script(gpu("GPU-a"), gpu("GPU-b")))
    node.program("podman", "echo 5.4.2")
    for address, uuid in (("0000:07:00.0", "GPU-b"), ("0000:0f:00.0", "GPU-a")):
        (tmp_path / "gpus" / address).mkdir(parents=True)
        text = f"Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 76\nGPU UUID: \t {uuid}\nDevice Minor: \t 0\n"
        (tmp_path / "gpus" / address / "information").write_text(text)
    monkeypatch.setattr(cdi, "DRIVER_FOLDER", str(tmp_path / "gpus"))
    monkeypatch.setattr(cdi, "FOLDERS", (str(tmp_path / "etc-cdi"), str(tmp_path / "run-cdi")))
    for folder in cdi.FOLDERS:
        Path(folder).mkdir()
    return node


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("etc-cdi/nvidia.yaml", CDI_1_15, ["GPU-a", "GPU-b"]),
        ("run-cdi/nvidia.json", CDI_JSON, ["GPU-a", "GPU-b"]),
        ("etc-cdi/nvidia.yaml", CDI_1_14, ["1", "0"]),
        # --device-name-strategy=type-index
        ("etc-cdi/nvidia.yaml", CDI_1_14.replace('name: "', 'name: "gpu'), ["gpu1", "gpu0"]),
    ],
)
def test_podman_gets_nvidia_gpus_by_their_cdi_names(
    podman_node: FakeNode, file: str, text: str, names: list[str]
) -> None:
    (podman_node.root / file).write_text(text)
    assert options(podman_node, "podman") == [f"--device=nvidia.com/gpu={name}" for name in names]
    assert podman_node.findings == []


def test_a_cdi_specification_without_a_gpu_of_the_job(podman_node: FakeNode) -> None:
    (podman_node.root / "etc-cdi/nvidia.yaml").write_text(CDI_1_14.replace('"1"', '"7"'))
    options(podman_node, "podman")
    wanted = "UUIDs (NVIDIA Container Toolkit 1.15 or later) or indices of all"
    assert podman_node.findings == [
        ("preflight", "GPUs", "1 of 2 in the CDI specification", wanted, GENERATE)
    ]


@pytest.mark.parametrize(("version", "is_read"), [("4.9.4-rhel", True), ("5.5.1", False), ("5.6.0", True)])
def test_podman_5_5_does_not_read_var_run_cdi(podman_node: FakeNode, version: str, is_read: bool) -> None:
    podman_node.program("podman", f"echo {version}")
    (podman_node.root / "run-cdi/nvidia.yaml").write_text(CDI_1_15)
    options(podman_node, "podman")
    found = f"no CDI specification in {cdi.FOLDERS[0]}"
    row = ("preflight", "GPUs", found, "one, for Podman", GENERATE)
    assert podman_node.findings == ([] if is_read else [row])


def test_no_cdi_specification(podman_node: FakeNode) -> None:
    (podman_node.root / "etc-cdi/other.yaml").write_text(CDI_1_15.replace("nvidia.com", "amd.com"))
    assert options(podman_node, "podman") == []
    found = f"no CDI specification in {' or '.join(cdi.FOLDERS)}"
    assert podman_node.findings == [("preflight", "GPUs", found, "one, for Podman", GENERATE)]


def test_a_podman_without_cdi(podman_node: FakeNode) -> None:
    podman_node.program("podman", "echo 4.0.2")
    assert options(podman_node, "podman") == []
    row = ("preflight", "GPUs", "Podman 4.0, without CDI", "Podman 4.1 or later", "update Podman on node1")
    assert podman_node.findings == [row]


LOST = "Unable to determine the device handle for GPU0000:E1:00.0: Unknown Error"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
LOOK = "look at nvidia-smi on node1; drain it if one is missing"
NO_FILES = "look at gres.conf of node1: without File= Slurm does not say which GPUs are the job's"
USE = "use slurm.gpus_per_node: 2 in place of ray.gpus_per_node"
REPAIR = "ask the site to repair the driver of node1; until then, leave it out: slurm.exclude"
FEWER = "ray.gpus_per_node: 1, or leave node1 out: slurm.exclude"
FIX = "fix the driver, or set container.accelerator: none"

# What is wrong -> the node, and kind, found, wanted and fix of the only finding. No GPU is passed.
FINDINGS: dict[str, tuple[dict[str, Any], tuple[str, str, str, str]]] = {
    "none of Slurm's": ({"program": NONE, "present": 2}, ("preflight", "0 seen by nvidia-smi", "2", LOOK)),
    "fewer than Slurm's": ({"program": ONE, "present": 2}, ("preflight", "1 seen by nvidia-smi", "2", LOOK)),
    "more than Slurm's": (
        {"program": THREE, "present": 3},
        ("preflight", "3 seen by nvidia-smi", "2", NO_FILES),
    ),
    "fewer than Slurm's, of AMD": (
        {"devices": "kfd", "environment": {"ROCR_VISIBLE_DEVICES": "0"}},
        ("preflight", "1 named by Slurm", "2", "look at gres.conf of node1: File= is missing"),
    ),
    "none given": (
        {"program": NONE, "present": 2, "is_counted": False},
        ("config", "2 on the node, none given to the job", "2", USE),
    ),
    "one given": (
        {"program": ONE, "present": 8, "is_counted": False},
        ("config", "8 on the node, 1 given to the job", "2", USE),
    ),
    "too many asked": (
        {"program": ONE, "present": 1, "is_counted": False},
        ("preflight", "1 seen by nvidia-smi", "2", FEWER),
    ),
    # nvidia-smi 580.173, public reports; exit code 18: NVML_ERROR_LIB_RM_VERSION_MISMATCH of nvml.h.
    "mismatch": (
        {"program": f"echo '{MISMATCH}'; echo 'NVML library version: 580.173'; exit 18"},
        ("preflight", f"nvidia-smi: {MISMATCH}", "2", REPAIR),
    ),
    "lost, beside one that works": (
        {"program": f"{ONE}\necho '{LOST}' >&2; exit 15"},
        ("preflight", f"nvidia-smi: {LOST}", "2", REPAIR),
    ),
    "no message": (
        {"program": "exit 255"},
        ("preflight", "nvidia-smi: nvidia-smi -q exited with 255", "2", REPAIR),
    ),
    "no nvidia-smi": (
        {"environment": {"PATH": "/usr/sbin-of-nobody"}},
        ("preflight", "nvidia-smi is not in PATH", "2", "install it on node1, or set PATH in setup"),
    ),
    "no driver": ({"devices": "null"}, ("preflight", "no driver for nvidia or amd", "2 GPUs", FIX)),
    "no driver of that vendor": ({"vendors": ["amd"]}, ("preflight", "no driver for amd", "2 GPUs", FIX)),
}


@pytest.mark.parametrize(("given", "row"), FINDINGS.values(), ids=FINDINGS)
def test_findings(tmp_path: Path, given: dict[str, Any], row: tuple[str, ...]) -> None:
    node = make_node(tmp_path, **given)
    kind, found, wanted, fix = row
    assert options(node, "docker" if fix in (REPAIR, FIX) else "none") == []
    assert node.findings == [(kind, "GPUs", found, wanted, fix)]


# nvidia-smi 535.261 and 550.163 without the driver's library, as during an update, and without the driver.
NO_LIBRARY = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
LIST_B = "echo 'GPU 1: NVIDIA H200 (UUID: GPU-b)'"  # as nvidia-smi 580.159.04 prints it


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (f"echo '{LOST}' >&2; {LIST_B}; exit 15", f"lost GPU-a: nvidia-smi: {LOST}"),
        (LIST_B, "lost GPU-a: nvidia-smi: no longer lists it"),
        ("echo No devices were found; exit 6", "lost all GPUs: nvidia-smi: No devices were found"),
        (f"{LIST_B}; echo 'GPU 0: NVIDIA H200 (UUID: GPU-a)'; echo WARNING; exit 14", ""),
        ("exit 255", ""),
        (f"echo '{MISMATCH}'; exit 18", ""),
        (f'echo "{NO_LIBRARY}"; echo; exit 12', ""),
        (f'echo "{NO_DRIVER}"; echo; exit 9', ""),
        (f"echo '{LOST}'; exit 255", f"lost all GPUs: nvidia-smi: {LOST}"),
        (f"{LIST_B}; sleep 60", ""),
        ("sleep 60", ""),
    ],
)
def test_gpus_that_the_driver_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: str
) -> None:
    """Before, it listed GPU-a and GPU-b. Where it fails, no GPU counts as lost, and its error is logged."""
    monkeypatch.setattr(gpus, "LOSS_TIMEOUT", 1.0)
    node = make_node(tmp_path, "nvidiactl nvidia0", {"CUDA_VISIBLE_DEVICES": "4,5"})
    options(node, "docker")
    node.program("nvidia-smi", script)
    assert gpus.find_lost(node) == found
    whys = {
        "sleep 60": "nvidia-smi --list-gpus does not answer",
        f"{LIST_B}; sleep 60": "nvidia-smi --list-gpus does not answer",
        f'echo "{NO_LIBRARY}"; echo; exit 12': NO_LIBRARY,
        f'echo "{NO_DRIVER}"; echo; exit 9': NO_DRIVER,
        "exit 255": "nvidia-smi --list-gpus exited with 255",
        f"echo '{MISMATCH}'; exit 18": MISMATCH,
    }
    assert node.phases == ([f"end node1: {whys[script]}"] if script in whys else [])


@pytest.mark.parametrize("name", ["", "SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
def test_gpu_memory_that_others_use(tmp_path: Path, name: str) -> None:
    """As seen on an H200 with driver 580.159.04. Sharing a GPU is what shards and MPS are for."""
    node = make_node(tmp_path, "nvidiactl", {"CUDA_VISIBLE_DEVICES": "4,5", **({name: "2"} if name else {})})
    users = [(4711, f"/opt/{'torch' * 20}/.venv/bin/python3"), (4712, "[Not Found]")]
    busy, idle = gpu("GPU-a", 121856, users), gpu("GPU-b", 451, [(812, "Xorg")])
    node.program("nvidia-smi", script(busy, idle))
    options(node, "none")
    found = "GPU 4 (GPU-a): 121856 of 143771 MiB in use by python3 (pid 4711), [Not Found] (pid 4712)"
    fix = "end them if they are yours, or leave node1 out: slurm.exclude"
    row = ("warn", "GPU memory", found, "free, before the job starts", fix)
    assert node.findings == ([] if name else [row])
    assert node.commands == [["nvidia-smi", "-q", "-x", "--id=4,5"]]


def test_gpu_memory_without_a_process(tmp_path: Path) -> None:
    """E.g. of a container with a PID namespace of its own, or of a process that is no longer there."""
    node = make_node(tmp_path, program=script(gpu("GPU-a", 90000), gpu("GPU-b", "N/A")))
    options(node, "none")
    ((_, _, found, _, _),) = node.findings
    assert found == "GPU 0 (GPU-a): 90000 of 143771 MiB in use by processes that nvidia-smi does not name"


FAILED = {"remapped_rows/remapped_row_failure": "Yes"}


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("4,5,6", "GPU 4 (GPU-0), GPU 6 (GPU-2)"),
        ("", "GPU 0 (GPU-0), GPU 2 (GPU-2)"),
        ("GPU-0,GPU-1,GPU-2", "GPU (GPU-0), GPU (GPU-2)"),
        ("6,5,4", "GPU (GPU-0), GPU (GPU-2)"),
        ("4,5,6,7", "GPU (GPU-0), GPU (GPU-2)"),
    ],
)
def test_gpus_with_the_same_fault_are_one_finding(tmp_path: Path, mask: str, names: str) -> None:
    """With the index that nvidia-smi knows the GPU by, where that is certain."""
    node = make_node(tmp_path, "nvidiactl", {"CUDA_VISIBLE_DEVICES": mask})
    node.group["gpus_per_node"] = 3
    each = [gpu(f"GPU-{index}", values={} if index == 1 else FAILED) for index in range(3)]
    node.program("nvidia-smi", script(*each))
    assert options(node, "docker") == ["--gpus", '"device=GPU-0,GPU-1,GPU-2"']
    found = f"{names}: remapped_row_failure: Yes"
    fix = "ask the site to replace the GPU; until then, leave node1 out: slurm.exclude"
    assert node.findings == [("preflight", "GPU health", found, "No", fix)]


def test_a_finding_names_some_of_many_gpus(tmp_path: Path) -> None:
    node = make_node(tmp_path)
    node.group["gpus_per_node"] = 8
    node.program("nvidia-smi", script(*(gpu(f"GPU-{index}", values=FAILED) for index in range(8))))
    options(node, "none")
    ((_, _, found, _, _),) = node.findings
    assert found.startswith("GPU 0 (GPU-0), GPU 1 (GPU-1), GPU 2 (GPU-2), GPU 3 (GPU-3), 4 more: remapped")


def test_a_gpu_that_does_not_answer(tmp_path: Path) -> None:
    lost = "GPU is lost"
    node = make_node(tmp_path, program=script(gpu("GPU-a"), gpu(lost, lost, values={"compute_mode": lost})))
    assert options(node, "docker") == ["--gpus", '"device=GPU-a"']
    assert [finding[1:3] for finding in node.findings] == [
        ("GPU health", "GPU 1 (00000000:61:00.0): uuid: GPU is lost"),
        ("GPUs", "1 seen by nvidia-smi"),
    ]


@pytest.mark.parametrize(("preflight", "kinds"), [("fail", ["preflight"]), ("warn", ["warn"]), ("none", [])])
def test_preflight_decides_about_faults_of_gpus(tmp_path: Path, preflight: str, kinds: list[str]) -> None:
    node = make_node(tmp_path)
    node.settings["preflight"] = preflight
    node.program("nvidia-smi", script(gpu("GPU-a"), gpu("GPU-b", values=FAILED)))
    options(node, "none")
    assert [finding[0] for finding in node.findings] == kinds


def test_gpus_that_are_not_the_job_s_may_be_faulty(tmp_path: Path) -> None:
    """Where Slurm counts none, the job takes the first ones."""
    node = make_node(
        tmp_path, is_counted=False, program=script(gpu("GPU-a"), gpu("GPU-b"), gpu("GPU-c", values=FAILED))
    )
    assert options(node, "docker") == ["--gpus", '"device=GPU-a,GPU-b"']
    assert node.findings == []


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ("-10", [("warn", "nvidia-smi -q -x: no element found"), ("preflight", "1 seen by nvidia-smi")]),
        ("10", [("preflight", "nvidia-smi -q -x: no element found")]),
        ("2", [("preflight", "nvidia-smi -q -x: no element nvidia_smi_log")]),
        ("0", [("preflight", "0 seen by nvidia-smi")]),
    ],
)
def test_xml_that_breaks_off(tmp_path: Path, lines: str, rows: list[tuple[str, str]]) -> None:
    node = make_node(tmp_path, program=f"({script(gpu('GPU-a'), gpu('GPU-b'))}) | head -n {lines}")
    options(node, "none")
    assert len(node.findings) == len(rows)
    for finding, (kind, found) in zip(node.findings, rows, strict=True):
        assert (finding[0], finding[1]) == (kind, "GPUs")
        assert finding[2].startswith(found)


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


@pytest.mark.parametrize("mask", [{"ROCR_VISIBLE_DEVICES": "0,1"}, {"SLURM_STEP_GPUS": "2,3"}])
def test_amd_s_driver_denies_the_gpus_of_other_jobs(
    tmp_path: Path, mask: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ConstrainDevices: reading their properties fails with EPERM."""
    devices = "kfd dri/renderD128 dri/renderD129 dri/renderD130 dri/renderD131"
    node = make_node(tmp_path, devices, mask, minors="0 128 129 130 131")

    def deny(path: str) -> Any:
        if "/nodes/1/" in path or "/nodes/2/" in path:
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        return Path(path).open()

    monkeypatch.setattr(gpus, "open", deny, raising=False)
    assert [option for option in options(node, "podman") if option.startswith("/dev/dri")] == [
        "/dev/dri/renderD130",
        "/dev/dri/renderD131",
    ]
    assert node.findings == []


@pytest.mark.parametrize("index", ["1", "x"])
def test_a_gpu_that_slurm_gave_and_the_node_lacks(tmp_path: Path, index: str) -> None:
    node = make_node(tmp_path, "kfd dri/renderD128", {"SLURM_STEP_GPUS": f"0,{index}"}, minors="0 128")
    options(node, "podman")
    fix = "load amdgpu on node1; drain it if that fails"
    assert node.findings == [("preflight", "GPUs", f"GPU {index} has no render node", "one in /dev/dri", fix)]


@pytest.mark.parametrize(("there", "passed"), [(1, "GPU-0"), (2, "GPU-0,GPU-1"), (3, "GPU-0,GPU-1")])
def test_gpus_of_nvidia_that_slurm_does_not_count(tmp_path: Path, there: int, passed: str) -> None:
    node = make_node(
        tmp_path, is_counted=False, program=script(*(gpu(f"GPU-{number}") for number in range(there)))
    )
    assert options(node, "docker") == ["--gpus", f'"device={passed}"']
    assert [finding[2] for finding in node.findings] == (["1 seen by nvidia-smi"] if there == 1 else [])


@pytest.mark.parametrize(("minors", "passed"), [("0 128", [128]), ("128 129 130", [128, 129])])
def test_gpus_of_amd_that_slurm_does_not_count(tmp_path: Path, minors: str, passed: list[int]) -> None:
    node = make_node(
        tmp_path, "kfd dri/renderD128 dri/renderD129 dri/renderD130", minors=minors, is_counted=False
    )
    devices = [option for option in options(node, "podman") if option.startswith("/dev/dri")]
    assert devices == [f"/dev/dri/renderD{minor}" for minor in passed]
    row = ("preflight", "GPUs", "1 seen by amdgpu", "2", FEWER)
    assert node.findings == ([row] if len(passed) == 1 else [])


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
