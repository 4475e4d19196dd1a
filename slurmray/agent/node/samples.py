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
from .runtimes import limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from ..wire import messages
    from .agent_interface import NodeApi
    from .gpu_samples import GpuSampler

VERSION = 1
# Bytes of a file. A day of a node with 8 GPUs has fewer, with a sample every 30 seconds.
MAX_SIZE = 1000 * 1000
SHM = "/dev/shm"
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
        self._gpus: "Optional[GpuSampler]" = None
        self._cpu: "Optional[Tuple[float, float]]" = None  # time, and CPU seconds until then
        header = {
            "v": VERSION,
            "node": node.name,
            "interval": self._interval,
            "uuids": node.gpus,
            "columns": [],
        }
        if node.gpus or node.render_nodes:
            from . import gpu_samples

            self._gpus = gpu_samples.GpuSampler(node)
            header["columns"] = list(gpu_samples.COLUMNS)
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
                background_io.errors.note("samples", error)
            time.sleep(max(0.0, begun + self._interval - time.monotonic()))

    def sample(self) -> None:
        """Take a sample, and record it. OSError."""
        sample: "Dict[str, Any]" = {"time": round(time.time())}
        use: "messages.Use" = {}
        self._add_host_use(use)
        sample.update(use)
        if self._gpus:
            self._gpus.add(sample, use)
        self._latest = use
        self._file.add(sample)
        if self._node.is_head and self._node.settings["ray"]["metrics"]:
            from . import ray_targets

            ray_targets.copy(self._node)

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
