"""What the job's GPUs on this node do at the moment: reads nvidia-smi, or the files of the driver amdgpu."""

import glob
import os
import re

from .. import command_runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from .agent_interface import NodeApi

    Gpu = Dict[str, Optional[int]]  # name in COLUMNS or STATES -> value; None, or missing: not known

TIMEOUT = 20.0  # seconds for nvidia-smi
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
