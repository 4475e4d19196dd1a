"""The job's GPUs on this node: counts them, and finds the devices that the containers get."""

import itertools
import os

from ... import command_runner
from ..facts import shares_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from ..agent_interface import NodeApi
    from . import gpu_health

# Set to `none` in rehearsals on machines without GPUs: skips counting and passing them.
ACCELERATOR_VARIABLE = "SLURMRAY_ACCELERATOR"
# Without persistence mode the driver initializes each GPU at every call, which takes seconds.
NVIDIA_SMI_TIMEOUT = 60.0  # seconds
LOSS_TIMEOUT = 10.0  # seconds; less than the controller waits for the answer
GPUS_NAMED = 4  # at most in one finding
# Exit codes of nvidia-smi, by its manual: it worked, found no GPU, one has fallen off the bus. With others,
# e.g. 9 (no driver), 12 (no library) and 18 (of another version), it says nothing about GPUs.
ABOUT_GPUS = (0, 6, 15)
# For the network between nodes: InfiniBand, Slingshot, gdrcopy, and NVLink between nodes (IMEX channels).
NETWORK_DEVICES = ("dev/infiniband", "dev/cxi*", "dev/gdrdrv", "dev/nvidia-caps-imex-channels/*")


class Devices:
    """Devices for the containers; None without GPUs of that vendor."""

    nvidia: "Optional[List[str]]" = None  # UUIDs
    amd: "Optional[List[Tuple[str, int]]]" = None  # path and group of each device
    network: "Sequence[str]" = ()  # paths


def find_devices(node: "NodeApi", is_engine: bool, root: str = "/") -> Devices:
    """The job's GPUs and NETWORK_DEVICES on this node. Records findings.

    is_engine: see Runtime. root: for tests.
    """
    import glob

    devices = Devices()
    vendors = node.settings["container"]["accelerators"]
    if not (vendors and node.group["gpus_per_node"]):
        return devices
    if node.env.get(ACCELERATOR_VARIABLE) == "none":
        node.phase(
            "container", ACCELERATOR_VARIABLE + "=none: GPUs are neither counted nor passed to the containers"
        )
    elif "nvidia" in vendors and os.path.exists(os.path.join(root, "dev/nvidiactl")):
        devices.nvidia = _nvidia(node, root)
        node.gpus = devices.nvidia or []
    elif "amd" in vendors and os.path.exists(os.path.join(root, "dev/kfd")):
        devices.amd = _amd(node, root, is_engine)
    else:
        node.finding(
            "preflight",
            "GPUs",
            "no driver for %s" % " or ".join(vendors),
            "%d GPUs" % node.group["gpus_per_node"],
            "fix the driver, or set container.accelerator: none",
        )
    paths = [path for pattern in NETWORK_DEVICES for path in sorted(glob.glob(os.path.join(root, pattern)))]
    devices.network = ["/" + os.path.relpath(path, root) for path in paths]
    if devices.nvidia is not None and node.settings["checks"]["bf16"] and not _has_mig(node):
        _check_bf16(node)  # every GPU with MIG has bfloat16
    return devices


def find_lost(node: "NodeApi") -> str:
    """Which of the job's GPUs nvidia-smi no longer lists, with its error message; "" if it lists all.

    Also "" where it hangs or cannot use the driver, e.g. during an update of the driver: its error message
    then goes to the job's log.
    """
    result = command_runner.run(["nvidia-smi", "--list-gpus"], node.env, LOSS_TIMEOUT)
    lost = [uuid for uuid in node.gpus if "(UUID: %s)" % uuid not in result.out]
    lines = [line for line in (result.out + result.err).splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith(("GPU ", "  MIG "))]
    is_late = result.code == command_runner.TIMEOUT
    names_gpus = len(errors) < len(lines) or any("device handle for GPU" in error for error in errors)
    if lost and (is_late or not (names_gpus or result.code in ABOUT_GPUS)):
        node.phase("end", "%s: %s" % (node.name, result.why if is_late or not errors else errors[0]))
        return ""
    if not lost:
        return ""
    names = "all GPUs" if len(lost) == len(node.gpus) > 1 else ", ".join(lost)
    return "lost %s: nvidia-smi: %s" % (names, errors[0] if errors else "no longer lists it")


def _has_mig(node: "NodeApi") -> bool:
    return "MIG-" in node.env.get("CUDA_VISIBLE_DEVICES", "")


def _nvidia(node: "NodeApi", root: str) -> "Optional[List[str]]":
    """UUIDs of the GPUs, since indices differ inside and outside a job's cgroup. None after a finding."""
    # Where Slurm does not count GPUs, others than the job's may be there.
    most = None if node.settings["slurm_counts_gpus"] else node.group["gpus_per_node"]
    uuids = _mig_devices(node) if _has_mig(node) else _whole_gpus(node, most)
    if uuids is None:
        return None
    uuids = uuids[:most]
    try:  # lists the node's GPUs, whatever the job's cgroup allows
        present = len(os.listdir(os.path.join(root, "proc/driver/nvidia/gpus")))
    except OSError:
        present = 0
    _check_count(node, len(uuids), present, "nvidia-smi")
    return uuids


def _check_count(node: "NodeApi", count: int, present: int, program: str) -> None:
    """Record a finding where the job does not have the GPUs that it asked for.

    count: GPUs that it has. present: those of the node. program: what counted them.
    """
    wanted = node.group["gpus_per_node"]
    kind, found, fix = "preflight", "%d seen by %s" % (count, program), ""
    if count == wanted:
        return
    if count > wanted:
        fix = "look at gres.conf of %s: without File= Slurm does not say which GPUs are the job's" % node.name
    elif node.settings["slurm_counts_gpus"]:
        fix = "look at %s on %s; drain it if one is missing" % (program, node.name)
    elif present >= wanted:
        kind, found = "config", "%d on the node, %s given to the job" % (present, count or "none")
        fix = "use slurm.gpus_per_node: %d in place of ray.gpus_per_node" % wanted
    else:
        fix = "ray.gpus_per_node: %d, or leave %s out: slurm.exclude" % (max(count, 1), node.name)
    node.finding(kind, "GPUs", found, str(wanted), fix)


def _nvidia_smi(node: "NodeApi", *options: str) -> "Optional[str]":
    """What nvidia-smi prints; "" where it has no GPU. None, with a finding, where it fails."""
    result = node.run(["nvidia-smi", *options], NVIDIA_SMI_TIMEOUT)
    if result.code == 0:
        return result.out
    lines = [row for row in (result.out + result.err).splitlines() if row.strip()]  # its errors are in `out`
    # It also lists the GPUs that still work, as lines or as XML.
    words = [line for line in lines if not line.startswith(("GPU", "<", " ", "\t"))]
    if words and words[0].startswith("No devices were found"):
        return ""
    found = "nvidia-smi: " + (words[0] if words else result.why)
    fix = "ask the site to repair the driver of %s; until then, leave it out: slurm.exclude" % node.name
    if result.code == 127 and not result.out:
        found, fix = "nvidia-smi is not in PATH", "install it on %s, or set PATH in setup" % node.name
    elif result.code == 124 and not result.out:
        found = result.why
    node.finding("preflight", "GPUs", found, str(node.group["gpus_per_node"]), fix)
    return None


def _mask(node: "NodeApi") -> "List[str]":
    mask = node.env.get("CUDA_VISIBLE_DEVICES")
    return ["--id=" + mask] if mask else []


def _whole_gpus(node: "NodeApi", most: "Optional[int]") -> "Optional[List[str]]":
    """UUIDs of the GPUs. None, with a finding, where nvidia-smi fails.

    most: GPUs whose health is checked; None for all.
    """
    from . import gpu_health  # imports a parser of XML, which takes milliseconds

    output = _nvidia_smi(node, "-q", "-x", *_mask(node))
    if output is None:
        return None
    found, error = gpu_health.parse(output) if output else ([], "")
    if error:
        text = "nvidia-smi -q -x: " + error
        fix = "look at nvidia-smi on %s" % node.name
        node.finding("warn" if found else "preflight", "GPUs", text, "XML with all GPUs", fix)
        if not found:
            return None
    _check_health(node, found[:most])
    return [gpu.uuid for gpu in found if gpu.uuid]


def _check_health(node: "NodeApi", checked: "List[gpu_health.Gpu]") -> None:
    """Record findings about the GPUs; one for all that have the same fault."""
    from . import gpu_health

    is_shared = shares_gpus(node.env)
    rows: "Dict[gpu_health.Finding, List[str]]" = {}
    for gpu, index in zip(checked, _indices(node, len(checked))):
        name = "GPU%s (%s)" % (index, gpu.uuid or gpu.address)
        for row in gpu_health.find(gpu, node.name, is_shared):
            rows.setdefault(row, []).append(name)
    for (kind, check, text, wanted, fix), names in rows.items():
        more = ["%d more" % (len(names) - GPUS_NAMED)] if len(names) > GPUS_NAMED else []
        found = "%s: %s" % (", ".join(names[:GPUS_NAMED] + more), text)
        if kind == "warn":
            node.finding(kind, check, found, wanted, fix)
        else:
            node.soft_finding(check, found, wanted, fix)


def _indices(node: "NodeApi", count: int) -> "List[str]":
    """Indices of the GPUs that nvidia-smi prints, each after a blank: " 4".

    Its XML has only their order. Empty texts where the mask has UUIDs, or another order or number.
    """
    mask = node.env.get("CUDA_VISIBLE_DEVICES") or ",".join(str(index) for index in range(count))
    indices = [int(index) for index in mask.split(",") if index.isdecimal()]
    is_known = len(indices) == count and indices == sorted(indices)
    return [" %d" % index for index in indices] if is_known else [""] * count


def _mig_devices(node: "NodeApi") -> "Optional[List[str]]":
    """UUIDs of the job's MIG devices. None, with a finding, where nvidia-smi fails.

    Its --id knows only whole GPUs, and its XML has no UUIDs of MIG devices.
    """
    output = _nvidia_smi(node, "--list-gpus")
    if output is None:
        return None
    mask = node.env["CUDA_VISIBLE_DEVICES"].split(",")
    return [uuid for uuid in mask if "(UUID: %s)" % uuid in output]


def _check_bf16(node: "NodeApi") -> None:
    """Warn about GPUs without bfloat16, i.e. with a compute capability below 8.0."""
    import re

    # `nvidia-smi -q` does not have it.
    options = ["--query-gpu=name,compute_cap", "--format=csv,noheader,nounits", *_mask(node)]
    result = node.run(["nvidia-smi", *options], NVIDIA_SMI_TIMEOUT)
    for line in sorted(set(result.out.splitlines())):
        name, _, capability = line.partition(",")
        if re.match(r" *[1-7]\.[0-9]+$", capability):
            node.finding(
                "warn",
                "bf16",
                "%s of compute capability %s" % (name, capability.strip()),
                "8.0 or higher",
                "have the trainer compute in fp16, or ask for other GPUs",
            )


def _amd(node: "NodeApi", root: str, is_engine: bool) -> "List[Tuple[str, int]]":
    """/dev/kfd and the render node of each GPU, with their groups. Empty for a container that sees all."""
    mask = node.env.get("ROCR_VISIBLE_DEVICES") or node.env.get("SLURM_STEP_GPUS", "")
    wanted = mask.split(",") if mask else []
    count = node.group["gpus_per_node"]
    renders, has_others = _render_nodes(root)
    if has_others and not node.env.get("ROCR_VISIBLE_DEVICES"):  # SLURM_STEP_GPUS counts all of the node
        wanted = [str(number) for number in range(len(wanted))]
    if not node.settings["slurm_counts_gpus"]:
        wanted = [str(index) for index in range(min(count, len(renders)))]
        _check_count(node, len(wanted), len(renders), "amdgpu")
    elif len(wanted) != count:
        fix = "look at gres.conf of %s: File= is missing" % node.name
        node.finding("preflight", "GPUs", "%d named by Slurm" % len(wanted), str(count), fix)
    known = dict(zip(map(str, range(len(renders))), renders))
    node.render_nodes = [os.path.basename(known[index]) for index in wanted if index in known]
    if not is_engine:
        return []
    devices = ["/dev/kfd"]
    for index in wanted:
        path = known.get(index, "")
        if path and os.path.exists(root + path):
            devices.append(path)
        else:
            fix = "load amdgpu on %s; drain it if that fails" % node.name
            node.finding("preflight", "GPUs", "GPU %s has no render node" % index, "one in /dev/dri", fix)
    return [(path, os.stat(root + path).st_gid) for path in devices]


def _render_nodes(root: str) -> "Tuple[List[str], bool]":
    """Render nodes in the order of the driver, which Slurm uses, too, and whether there are others.

    Where Slurm constrains devices, the driver (kfd_topology.c) denies those that are not of the job, and
    Slurm's ROCR_VISIBLE_DEVICES counts the job's own.
    """
    renders: "List[str]" = []
    has_others = False
    for index in itertools.count():
        path = os.path.join(root, "sys/class/kfd/kfd/topology/nodes/%d/properties" % index)
        try:
            with open(path) as file:
                properties = dict(line.split(None, 1) for line in file if " " in line)
        except PermissionError:
            has_others = True
            continue
        except OSError:
            break
        minor = properties.get("drm_render_minor", "0").strip()
        if minor != "0":  # 0: a CPU
            renders.append("/dev/dri/renderD" + minor)
    return renders, has_others
