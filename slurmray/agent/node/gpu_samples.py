"""What the job's GPUs on this node do at the moment: reads nvidia-smi, or the files of the driver amdgpu."""

import glob
import os
import re
import time

from .. import command_runner, job_log
from . import gpu_processes
from .gpu_processes import TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

    from ..wire import messages
    from .agent_interface import NodeApi

    Gpu = Dict[str, Optional[int]]  # name in COLUMNS or STATES -> value; None, or missing: not known

MAX_ERROR = 200  # characters
# %: below that utilization a GPU does nothing, and above the other one it is busy. Where NCCL waits for
# another rank, its kernel keeps a GPU at 100 % with far less power than training takes: 152 of 700 W on an
# H100, while others of the same job are at 0 % (github.com/NVIDIA/nccl/issues/1550).
IDLE, BUSY = 2, 90
LOW = 50  # % of the power that a GPU may draw
# Seconds between two lists of the processes on GPUs. A query by nvidia-smi takes up to 0.02 s of a core (H200
# in persistence mode): with a second one every 30 s, samples would take more than 0.1 % of a core.
PROCESSES_INTERVAL = 600.0
# Columns of each sample, in %, MiB, W, MHz and degrees Celsius -> field of `nvidia-smi --query-gpu`.
COLUMNS = {
    "utilization": "utilization.gpu",
    "memory": "memory.used",
    "power": "power.draw",
    "clock": "clocks.sm",
    "temperature": "temperature.gpu",
}
# What seldom changes. throttle: bits of NVML's nvmlClocksEventReasons, which have another name before 535.
STATES = {
    "memory_total": "memory.total",
    "power_limit": "power.limit",
    "throttle": "clocks_event_reasons.active",
    "ecc_errors": "ecc.errors.uncorrected.volatile.total",
    "remapped_rows": "remapped_rows.uncorrectable",
    "link_width": "pcie.link.width.current",
}
OLD_NAMES = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
# Bits of `throttle` for a slowdown by the hardware: HwSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown. The
# others, e.g. SwPowerCap, come and go under load, so they are not recorded.
SLOWDOWN = 0x8 | 0x40 | 0x80
# nvidia-smi prints this about one field, and nothing about the others.
UNKNOWN_FIELD = re.compile('Field "([a-z_.]+)" is not a valid field to query')
# The same for amdgpu: the kernel's Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst. A file, and by
# how much its number is divided.
AMD_FILES = {
    "utilization": ("gpu_busy_percent", 1),
    "memory": ("mem_info_vram_used", 1 << 20),
    "memory_total": ("mem_info_vram_total", 1 << 20),
    "power": ("hwmon/hwmon*/power1_average", 10**6),
    "power_limit": ("hwmon/hwmon*/power1_cap", 10**6),
    "clock": ("hwmon/hwmon*/freq1_input", 10**6),
    "temperature": ("hwmon/hwmon*/temp1_input", 1000),
}


class GpuSampler:
    """Adds the job's GPUs to the samples of a node."""

    def __init__(self, node: "NodeApi") -> None:
        self._node = node
        self._read = reader(node)
        self._states: "List[Gpu]" = []  # as last recorded
        self._processes_due = time.monotonic() + PROCESSES_INTERVAL
        self._other = ""  # process that holds memory of a GPU and is not the job's

    def add(self, sample: "Dict[str, Any]", use: "messages.Use") -> None:
        """Add them to a sample, and in short to `use`."""
        gpus, error = self._read()
        use.update(_gpu_use(gpus))
        if error:
            use["error"] = job_log.printable(error)[:MAX_ERROR]
        if gpus:
            sample["gpus"] = [[gpu.get(column) for column in COLUMNS] for gpu in gpus]
            self._add_processes(sample, use, gpus)
        states = [{name: gpu[name] for name in STATES if name in gpu} for gpu in gpus]
        if states != self._states:
            self._states = sample["states"] = states

    def _add_processes(self, sample: "Dict[str, Any]", use: "messages.Use", gpus: "List[Gpu]") -> None:
        if self._node.gpus and time.monotonic() >= self._processes_due:
            self._processes_due = time.monotonic() + PROCESSES_INTERVAL
            sample["processes"] = gpu_processes.read(self._node)
            self._other = gpu_processes.describe_other(self._node, sample["processes"], gpus)
        if self._other:
            use["other"] = self._other


def _gpu_use(gpus: "List[Gpu]") -> "messages.Use":
    """Means of the GPUs, and the one that is used least."""
    use: "messages.Use" = {}
    utilization = _values(gpus, "utilization")
    if utilization:
        use["gpu"] = _mean(utilization.values())
        use["lowest"], use["idlest"] = min((value, place) for place, value in utilization.items())
    memory = _shares(gpus, "memory", "memory_total")
    if memory:
        use["gpu_memory"] = _mean(memory.values())
    power = _values(gpus, "power")
    if power:
        use["power"] = _mean(power.values())
    shares = _shares(gpus, "power", "power_limit")
    if utilization:
        use["gpus"] = len(utilization)
        use["idle_gpus"] = sum(value <= IDLE for value in utilization.values())
        busy = [place for place, value in utilization.items() if value >= BUSY]
        use["waiting_gpus"] = sum(shares.get(place, 100) <= LOW for place in busy)
    slowed = [place for place, bits in _values(gpus, "throttle").items() if bits & SLOWDOWN]
    if slowed:
        use["slowed"] = slowed[0]
    return use


def _values(gpus: "List[Gpu]", name: str) -> "Dict[int, int]":
    """{place: value} of the GPUs whose value is known."""
    values = ((place, gpu.get(name)) for place, gpu in enumerate(gpus))
    return {place: value for place, value in values if value is not None}


def _shares(gpus: "List[Gpu]", part: str, total: str) -> "Dict[int, float]":
    """{place: one value in percent of another one} of the GPUs where both are known."""
    parts, totals = _values(gpus, part), _values(gpus, total)
    return {place: 100 * parts[place] / totals[place] for place in parts if totals.get(place)}


def _mean(numbers: "Iterable[float]") -> int:
    known = list(numbers)
    return round(sum(known) / len(known))


def reader(node: "NodeApi", root: str = "/") -> "Callable[[], Tuple[List[Gpu], str]]":
    """A function that returns the job's GPUs and, where they cannot be read, an error message.

    No GPUs without such of the job. MIG devices have no utilization of their own, so they are not read.
    """
    if node.gpus and not node.gpus[0].startswith("MIG-"):
        return Nvidia(node).read
    return lambda: ([_read_amd(os.path.join(root, "sys/class/drm", name)) for name in node.render_nodes], "")


class Nvidia:
    """The job's GPUs by nvidia-smi. Fields that this driver does not know are left out from then on."""

    def __init__(self, node: "NodeApi") -> None:
        self._node = node
        self._fields = {**COLUMNS, **STATES}

    def read(self) -> "Tuple[List[Gpu], str]":
        """See reader."""
        result = self._run()
        unknown = UNKNOWN_FIELD.search(result.out)
        while unknown and self._leave_out(unknown.group(1)):
            result = self._run()
            unknown = UNKNOWN_FIELD.search(result.out)
        rows, errors = {}, []
        for line in (result.out + result.err).splitlines():
            if line.startswith("GPU-"):
                uuid, *values = line.split(", ")
                rows[uuid] = _gpu(dict(zip(self._fields, map(_number, values))))
            elif line.strip():
                errors.append(line.strip())
        if result.code == 0 and len(rows) == len(self._node.gpus):
            error = ""
        elif result.code == command_runner.TIMEOUT:
            error = "nvidia-smi does not answer"
        else:
            error = errors[0] if errors else "nvidia-smi lists %d of %d" % (len(rows), len(self._node.gpus))
        return [rows.get(uuid, {}) for uuid in self._node.gpus], error

    def _run(self) -> "command_runner.Result":
        node = self._node
        query = "--query-gpu=" + ",".join(["uuid", *self._fields.values()])
        argv = ["nvidia-smi", query, "--format=csv,noheader,nounits", "--id=" + ",".join(node.gpus)]
        return command_runner.run(argv, node.env, TIMEOUT, lambda: node.mail.is_stopped, is_logged=False)

    def _leave_out(self, unknown: str) -> bool:
        """Ask no more for a field, or by its old name; return whether it is asked for."""
        for name, field in self._fields.items():
            if field == unknown and field in OLD_NAMES:
                self._fields[name] = OLD_NAMES[field]
                return True
            if field == unknown:
                del self._fields[name]
                return True
        return False


def _gpu(values: "Gpu") -> "Gpu":
    throttle = values.get("throttle")
    return values if throttle is None else {**values, "throttle": throttle & SLOWDOWN}


def _number(value: str) -> "Optional[int]":
    """A value of nvidia-smi; None for `[N/A]`, `[Unknown Error]` and the like."""
    try:
        return int(value, 16) if value.startswith("0x") else round(float(value))
    except (ValueError, OverflowError):
        return None


def _read_amd(folder: str) -> "Gpu":
    """A GPU of AMD. folder: of its render node."""
    files = {name: os.path.join(folder, "device", file) for name, (file, _) in AMD_FILES.items()}
    return {name: _read_number(path, AMD_FILES[name][1]) for name, path in files.items()}


def _read_number(pattern: str, unit: int) -> "Optional[int]":
    for path in sorted(glob.glob(pattern)):
        try:
            with open(path) as file:
                return round(int(file.read(32)) / unit)
        except (OSError, ValueError):  # e.g. EPERM while the GPU sleeps
            return None
    return None
