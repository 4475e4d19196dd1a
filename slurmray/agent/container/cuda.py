"""Opens the job's NVIDIA GPUs with the driver's library, as the trainer will, while Ray starts.

In a process of its own, role `gpus`: a context keeps memory of a GPU, and a broken driver may crash or hang.
"""

import json
import os
import sys
import time

from ..job_errors import Unfit
from . import variables
from .part import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional

    from .node_context import NodeContext

ROLE = "gpus"
OUTPUT = "gpus"  # file in the job's folder with the child's lines
DEVICE = "/dev/nvidiactl"
TIMEOUT = 60.0  # seconds; without persistence mode the driver needs some for each GPU
# Types of messages that wait: a worker joins Ray, and the trainer starts, with GPUs that have been opened.
HELD = ("join", "ready", "replace")

# CUresult and CUdevice_attribute of cuda.h (docs.nvidia.com/cuda/cuda-driver-api).
OUT_OF_MEMORY, DEVICE_UNAVAILABLE = 2, 46
COMPUTE_MODE = 20
LEAVE_OUT = " on {node}; until then, leave the node out: slurm.exclude"
REPAIR = "ask the site to repair it" + LEAVE_OUT
LIBRARY_FIX = "pass the driver: CDI, NVIDIA Container Toolkit, --nv; or container.setup: ldconfig"
DRIVER_FIX = (
    "the container's libcuda is not of {node}'s driver: generate the CDI specification, or drop CUDA's compat"
)
FIXES = {
    802: "ask the site to start nvidia-fabricmanager" + LEAVE_OUT,
    803: DRIVER_FIX,
    804: DRIVER_FIX,
}


class GpuCheck(Part):
    """The check on this node. on_end: called once the GPUs are open."""

    roles = (ROLE,)

    def __init__(self, context: "NodeContext", on_end: "Callable[[], None]") -> None:
        self.context = context
        self._on_end = on_end
        self._deadline: "Optional[float]" = None  # time.monotonic(); None: not running
        self._is_late = False

    @property
    def is_busy(self) -> bool:
        return self._deadline is not None

    def holds(self, kind: str) -> bool:
        return not self.is_open and kind in HELD

    def on_start_ray(self) -> None:
        """Start the child where there are GPUs to check."""
        context = self.context
        settings, wanted = context.settings, context.group["gpus_per_node"]
        is_nvidia = "nvidia" in settings["container"]["accelerators"] and os.path.exists(DEVICE)
        if not (wanted and is_nvidia) or settings["preflight"] == "none":
            return
        env = variables.collect(variables.GPU_CHECK, context)
        with open(os.path.join(context.folder, OUTPUT), "wb") as out:
            context.children.spawn(ROLE, [*context.program(ROLE), str(wanted)], env, out)
        self.is_open = False
        self._deadline = time.monotonic() + TIMEOUT

    def tick(self) -> None:
        """Kill a child that has not ended in time. A hung driver may not even let it be killed."""
        self._is_late = self._deadline is not None and time.monotonic() > self._deadline
        if not self._is_late:
            return
        self.context.children.send_signal(ROLE, "KILL")
        self.child_ended(ROLE, 0)

    def child_ended(self, role: str, code: int) -> None:
        """Report the GPUs, or a finding. Raises Unfit where that ends the job."""
        del role
        if self.context.deadline is not None or self._deadline is None:
            return
        self._deadline = None
        context, wanted = self.context, self.context.group["gpus_per_node"]
        with open(os.path.join(context.folder, OUTPUT), errors="replace") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        opened = [line for line in lines if "name" in line]
        failures = [line for line in lines if "error" in line]
        if self._is_late or (code and not failures):
            reason = "no end after %d s" % TIMEOUT if self._is_late else "exited with %d" % code
            failures = [
                {"error": "%s%s" % (lines[-1].get("opens", "") if lines else "cuInit: ", reason), "code": -1}
            ]
        # Of several MIG devices a process sees only the first one.
        elif not failures and len(opened) < wanted and not any("MIG" in line["name"] for line in opened):
            failures = [{"error": "CUDA sees %d" % len(opened), "code": -1}]
        is_broken = False
        for failure in failures:
            number = failure["code"]
            # Others may use its memory, and what the job itself has started.
            kind = "warn" if number in (OUT_OF_MEMORY, DEVICE_UNAVAILABLE) else "preflight"
            fix = (LIBRARY_FIX if number is None else FIXES.get(number, REPAIR)).format(node=context.name)
            context.finding(kind, "CUDA", failure["error"], "%d GPUs that it can open" % wanted, fix)
            is_broken = is_broken or kind == "preflight"
        if is_broken and context.is_strict:
            raise Unfit
        if opened:
            kinds = ["%s, %d GiB" % (line["name"], round(line["memory"] / 1024.0)) for line in opened]
            counts = ["%d x %s" % (kinds.count(kind), kind) for kind in sorted(set(kinds))]
            context.phase("ray", "GPUs opened: %s; driver %s" % ("; ".join(counts), opened[0]["driver"]))
        self.is_open = True
        self._on_end()


def main(argv: "List[str]") -> int:
    """Open the GPUs and print a line of JSON before and after each. argv: how many at most."""
    for line in open_gpus(int(argv[0])):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return 0


def open_gpus(limit: int) -> "Iterator[Dict[str, Any]]":
    """Yield `opens` before a GPU is opened; then its `name`, `memory` in MiB and `driver`, or an `error`.

    code: CUresult of an error; None where there is no driver library.
    """
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        yield {"error": str(error), "code": None}
        return

    def call(name: str, *arguments: "Any") -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            message = ctypes.c_char_p()
            cuda.cuGetErrorString(code, ctypes.byref(message))
            raise _CudaError("%s: %s (%d)" % (name, (message.value or b"error").decode(), code), code)

    def open_gpu(device: int) -> "Dict[str, Any]":
        name, memory, mode = ctypes.create_string_buffer(100), ctypes.c_size_t(), ctypes.c_int()
        call("cuDeviceGetName", name, 100, device)
        call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        call("cuDeviceGetAttribute", ctypes.byref(mode), COMPUTE_MODE, device)
        if mode.value == 0:  # else only one process may have a context, which could be a service's by now
            context, place = ctypes.c_void_p(), ctypes.c_ulonglong()
            data = ctypes.create_string_buffer(os.urandom(1 << 16), 1 << 16)
            back = ctypes.create_string_buffer(len(data))
            call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            call("cuCtxSetCurrent", context)
            call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(len(data)))
            call("cuMemcpyHtoD_v2", place, data, ctypes.c_size_t(len(data)))
            call("cuMemcpyDtoH_v2", back, place, ctypes.c_size_t(len(data)))
            if back.raw != data.raw:
                raise _CudaError("its memory returned other bytes than were written", -1)
            call("cuDevicePrimaryCtxRelease_v2", device)
        return {"name": name.value.decode("utf-8", "replace"), "memory": memory.value >> 20, "driver": driver}

    try:
        count, version = ctypes.c_int(), ctypes.c_int()
        call("cuInit", 0)
        call("cuDriverGetVersion", ctypes.byref(version))
        call("cuDeviceGetCount", ctypes.byref(count))
    except _CudaError as error:
        yield {"error": str(error), "code": error.code}
        return
    driver = "%s (CUDA %d.%d)" % (_driver_version(), version.value // 1000, version.value % 1000 // 10)
    for device in range(min(count.value, limit)):
        address = ctypes.create_string_buffer(20)
        cuda.cuDeviceGetPCIBusId(address, 20, device)
        gpu = "GPU %d at %s: " % (device, address.value.decode())
        yield {"opens": gpu}
        try:
            yield open_gpu(device)
        except _CudaError as error:
            yield {"error": gpu + str(error), "code": error.code}


class _CudaError(Exception):
    """A function of CUDA's driver API has failed. code: its CUresult."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def _driver_version() -> str:
    """The version of the kernel module, e.g. 580.159.04; "" if unknown."""
    import re

    try:
        with open("/proc/driver/nvidia/version") as file:
            match = re.search(r"\s([0-9]+\.[0-9.]+)\s", file.readline())
    except OSError:
        return ""
    return match.group(1) if match else ""
