"""The job's GPUs on this node: counts them and passes them, and no others, to the containers."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..api import NodeApi
    from ..runtimes.base import Runtime

# Set to `none` in rehearsals on machines without GPUs: skips counting and passing them.
ACCELERATOR_VARIABLE = "SLURMRAY_ACCELERATOR"
# Without persistence mode the driver initializes each GPU at every call, which takes seconds.
NVIDIA_SMI_TIMEOUT = 60.0  # seconds
# For the network between nodes: InfiniBand, Slingshot, gdrcopy, and NVLink between nodes (IMEX channels).
NETWORK_DEVICES = ("dev/infiniband", "dev/cxi*", "dev/gdrdrv", "dev/nvidia-caps-imex-channels/*")


def options(node: "NodeApi", runtime: "Runtime", root: str = "/") -> "List[str]":
    """The runtime's options for the job's GPUs and NETWORK_DEVICES. Records findings. root: for tests."""
    import glob

    vendors = node.settings["container"]["accelerators"]
    if not (vendors and node.group["gpus_per_node"]):
        return []
    found: "List[str]" = []
    if node.env.get(ACCELERATOR_VARIABLE) == "none":
        node.phase(
            "container", ACCELERATOR_VARIABLE + "=none: GPUs are neither counted nor passed to the containers"
        )
    elif "nvidia" in vendors and os.path.exists(os.path.join(root, "dev/nvidiactl")):
        found += _nvidia(node, runtime)
    elif "amd" in vendors and os.path.exists(os.path.join(root, "dev/kfd")):
        found += _amd(node, runtime, root)
    else:
        node.finding(
            "preflight",
            "GPUs",
            "no driver for %s" % " or ".join(vendors),
            "%d GPUs" % node.group["gpus_per_node"],
            "fix the driver, or set container.accelerator: none",
        )
    for pattern in NETWORK_DEVICES:
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            found += runtime.device_options("/" + os.path.relpath(path, root))
    return found


def _nvidia(node: "NodeApi", runtime: "Runtime") -> "List[str]":
    """Options for GPUs by UUID, since indices differ inside and outside a job's cgroup."""
    has_mig = "MIG-" in node.env.get("CUDA_VISIBLE_DEVICES", "")
    uuids = _mig_devices(node) if has_mig else _query(node, "uuid")
    wanted = node.group["gpus_per_node"]
    if not node.settings["slurm_counts_gpus"]:
        uuids = uuids[:wanted]
    if len(uuids) != wanted:
        node.finding(
            "preflight",
            "GPUs",
            "%d seen by nvidia-smi" % len(uuids),
            str(wanted),
            "look at nvidia-smi on %s; drain it if one is missing" % node.name,
        )
    found = runtime.nvidia_options(uuids)
    if node.settings["checks"]["bf16"] and not has_mig:  # every GPU with MIG has bfloat16
        _check_bf16(node)
    return found


def _query(node: "NodeApi", field: str) -> "List[str]":
    """One line for each of the job's GPUs from nvidia-smi; none where it fails."""
    argv = ["nvidia-smi", "--query-gpu=" + field, "--format=csv,noheader"]
    mask = node.env.get("CUDA_VISIBLE_DEVICES")
    if mask:
        argv.append("--id=" + mask)
    found = node.run(argv, NVIDIA_SMI_TIMEOUT)
    return [] if found.code else found.out.splitlines()  # its errors may be on standard output


def _mig_devices(node: "NodeApi") -> "List[str]":
    """UUIDs of the job's MIG devices that nvidia-smi lists. Its --id knows only whole GPUs."""
    found = node.run(["nvidia-smi", "--list-gpus"], NVIDIA_SMI_TIMEOUT).out
    mask = node.env["CUDA_VISIBLE_DEVICES"].split(",")
    return [uuid for uuid in mask if "(UUID: %s)" % uuid in found]


def _check_bf16(node: "NodeApi") -> None:
    """Warn about GPUs without bfloat16, i.e. with a compute capability below 8.0."""
    import re

    for line in sorted(set(_query(node, "name,compute_cap"))):
        name, _, capability = line.partition(",")
        # Old drivers have an error text in that field.
        if re.match(r" *[1-7]\.[0-9]+$", capability):
            node.finding(
                "warn",
                "bf16",
                "%s of compute capability %s" % (name, capability.strip()),
                "8.0 or higher",
                "have the trainer compute in fp16, or ask for other GPUs",
            )


def _amd(node: "NodeApi", runtime: "Runtime", root: str) -> "List[str]":
    """Options for /dev/kfd and each GPU's render node. Groups by number, as names may differ."""
    mask = node.env.get("ROCR_VISIBLE_DEVICES") or node.env.get("SLURM_STEP_GPUS", "")
    wanted = mask.split(",") if mask else []
    count, renders = node.group["gpus_per_node"], _render_nodes(root)
    found, fix = "%d named by Slurm", "look at gres.conf of %s: File= is missing" % node.name
    if not node.settings["slurm_counts_gpus"]:
        wanted = [str(index) for index in range(min(count, len(renders)))]
        found, fix = "%d seen by amdgpu", "look at rocm-smi on %s; drain it if one is missing" % node.name
    if len(wanted) != count:
        node.finding("preflight", "GPUs", found % len(wanted), str(count), fix)
    if not runtime.isolates_devices:
        return runtime.amd_options()
    devices = ["/dev/kfd"]
    for index in wanted:
        path = renders[int(index)] if index.isdigit() and int(index) < len(renders) else ""
        if path and os.path.exists(root + path):
            devices.append(path)
        else:
            fix = "load amdgpu on %s; drain it if that fails" % node.name
            node.finding("preflight", "GPUs", "GPU %s has no render node" % index, "one in /dev/dri", fix)
    passed: "List[str]" = []
    for path in devices:
        passed += [*runtime.device_options(path), "--group-add", str(os.stat(root + path).st_gid)]
    return passed


def _render_nodes(root: str) -> "List[str]":
    """Render nodes in the order of the driver, which Slurm uses, too."""
    renders: "List[str]" = []
    index = 0
    while True:
        path = os.path.join(root, "sys/class/kfd/kfd/topology/nodes/%d/properties" % index)
        try:
            with open(path) as file:
                properties = dict(line.split(None, 1) for line in file if " " in line)
        except OSError:
            return renders
        minor = properties.get("drm_render_minor", "0").strip()
        if minor != "0":  # 0: a CPU
            renders.append("/dev/dri/renderD" + minor)
        index += 1
