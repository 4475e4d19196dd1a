"""Samples of a node while its container runs: use of the job's GPUs, CPUs and memory.

They go to `logs/NODE.samples.jsonl` in the run directory, and in short to the controller, with the next
heartbeat. docs/guides/watching.md describes both. A driver or a file system may hang, so nothing waits for
the thread that takes them.

Few samples have the processes that hold memory of the GPUs: they change seldom, and the preflight checks and
a stall's evidence look at them, too.
"""

import json
import os
import time

from .. import background_io, job_log, paths
from . import gpu_samples
from .runtimes import limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple

    from ..wire import messages
    from .agent_interface import NodeApi
    from .gpu_samples import Gpu

VERSION = 1
# Bytes of a file. A day of a node with 8 GPUs has fewer, with a sample every 30 seconds.
MAX_SIZE = 1000 * 1000
MAX_ERROR = 200  # characters
SHM = "/dev/shm"
# %: below that utilization a GPU does nothing, and above the other one it is busy. Where NCCL waits for
# another rank, its kernel keeps a GPU at 100 % with far less power than training takes: 152 of 700 W on an
# H100, while others of the same job are at 0 % (github.com/NVIDIA/nccl/issues/1550).
IDLE, BUSY = 2, 90
LOW = 50  # % of the power that a GPU may draw
# Seconds between two lists of the processes on GPUs. A query by nvidia-smi takes up to 0.02 s of a core (H200
# in persistence mode): with a second one every 30 s, samples would take more than 0.1 % of a core.
PROCESSES_INTERVAL = 600.0
HOST = ("cores", "memory", "shm")  # fields of a sample that are the same in the short one
RARE = ("states", "processes")  # fields of samples that are kept in a full file


class Sampler:
    """Takes samples of a node.

    has_own_shm: whether the containers have a /dev/shm of their own, which cannot be seen from outside.
    """

    def __init__(self, node: "NodeApi", has_own_shm: bool) -> None:
        self._latest: "Optional[messages.Use]" = None  # the last sample in short, if nobody has taken it
        self._node = node
        self._interval = node.settings["watch"]["interval"]
        self._has_own_shm = has_own_shm
        self._read_gpus = gpu_samples.reader(node)
        self._states: "List[Gpu]" = []  # of the GPUs, as last recorded
        self._cpu: "Optional[Tuple[float, float]]" = None  # time, and CPU seconds until then
        self._processes_due = time.monotonic() + PROCESSES_INTERVAL
        self._other = ""  # process that holds memory of a GPU and is not the job's
        header = {
            "v": VERSION,
            "node": node.name,
            "interval": self._interval,
            "uuids": node.gpus,
            "columns": list(gpu_samples.COLUMNS),
        }
        self._file = SampleFile(os.path.splitext(node.log_path)[0] + paths.SAMPLES, header)

    def start(self) -> None:
        """Take samples until this process ends."""
        background_io.start("samples", self._run)

    def take_latest(self) -> "Optional[messages.Use]":
        """The last sample in short; None if it has been taken."""
        use, self._latest = self._latest, None
        return use

    def _run(self) -> None:
        while not self._node.mail.is_stopped:
            begun = time.monotonic()
            try:
                self.sample()
            except Exception as error:  # e.g. a full disk
                background_io.errors.report("samples", error)
            time.sleep(max(0.0, begun + self._interval - time.monotonic()))

    def sample(self) -> None:
        """Take a sample, and record it. OSError."""
        gpus, error = self._read_gpus()
        use = _gpu_use(gpus)
        self._add_host_use(use)
        if error:
            use["error"] = job_log.printable(error)[:MAX_ERROR]
        sample: "Dict[str, Any]" = {"time": round(time.time())}
        sample.update((name, value) for name, value in use.items() if name in HOST)
        if gpus:
            sample["gpus"] = [[gpu.get(column) for column in gpu_samples.COLUMNS] for gpu in gpus]
            self._add_processes(sample, use, gpus)
        self._latest = use
        states = [{name: gpu[name] for name in gpu_samples.STATES if name in gpu} for gpu in gpus]
        if states != self._states:
            self._states = sample["states"] = states
        self._file.add(sample)
        if self._node.is_head and self._node.settings["ray"]["metrics"]:
            from . import ray_targets

            ray_targets.copy(self._node)

    def _add_processes(self, sample: "Dict[str, Any]", use: "messages.Use", gpus: "List[Gpu]") -> None:
        if self._node.gpus and time.monotonic() >= self._processes_due:
            from . import gpu_processes

            self._processes_due = time.monotonic() + PROCESSES_INTERVAL
            sample["processes"] = gpu_processes.read(self._node)
            self._other = gpu_processes.describe_other(self._node, sample["processes"], gpus)
        if self._other:
            use["other"] = self._other

    def _add_host_use(self, use: "messages.Use") -> None:
        before, seconds = self._cpu, limits.cpu_seconds()
        self._cpu = None if seconds is None else (time.monotonic(), seconds)
        if before and self._cpu and self._cpu[0] > before[0]:
            use["cores"] = round((self._cpu[1] - before[1]) / (self._cpu[0] - before[0]), 1)
        memory = limits.memory_used()
        if memory is not None:
            use["memory"] = memory >> 20
        if not self._has_own_shm:
            status = os.statvfs(SHM)
            use["shm"] = (status.f_blocks - status.f_bfree) * status.f_frsize >> 20


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
    slowed = [place for place, bits in _values(gpus, "throttle").items() if bits & gpu_samples.SLOWDOWN]
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


class SampleFile:
    """A file of samples, one a line, of bounded size. header: its first line.

    Once it is full, every second sample is dropped, and from then on every second one is recorded.
    """

    def __init__(self, path: str, header: "Dict[str, Any]") -> None:
        self._path = path
        self._waiting = [header]  # lines to be written before the next sample
        self._every = 1
        self._count = 0

    def add(self, sample: "Dict[str, Any]") -> None:
        """Append a sample. One with a RARE field is never left out. OSError."""
        self._count += 1
        if self._count % self._every and not any(name in sample for name in RARE):
            return
        lines = [*self._waiting, sample]
        job_log.append(self._path, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        self._waiting = []
        if os.stat(self._path).st_size > MAX_SIZE:
            self._thin_out()

    def _thin_out(self) -> None:
        with open(self._path) as file:
            header, *lines = file.readlines()
        kept = [
            line
            for place, line in enumerate(lines)
            if place % 2 or any('"%s":' % name in line for name in RARE)
        ]
        if len(kept) > len(lines) * 3 // 4:  # most of them have one
            kept = lines[1::2]
        paths.replace(self._path, "".join([header, *kept]).encode())
        self._every *= 2
