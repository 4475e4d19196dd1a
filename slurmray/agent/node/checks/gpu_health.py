"""The state of NVIDIA's GPUs, as `nvidia-smi -q -x` prints it, and what is wrong with them.

NVIDIA does not promise that this output stays as it is, so nothing follows from a field that is missing or
has an unknown value. Names of fields: outputs of drivers 513 to 590 in
tests/unit/agent/node/checks/nvidia_smi. Meanings: the manual, docs.nvidia.com/deploy/nvidia-smi, if no other
source is named.
"""

import os
import re
from xml.etree import ElementTree

from ... import job_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Match, Optional, Tuple

    # kind: preflight or warn; check, found, wanted, fix
    Finding = Tuple[str, str, str, str, str]

BUSY = 0.05  # share of a GPU's memory that is worth a warning if others use it; drivers reserve less
OUTPUT_SIZE = 1 << 24  # characters; a GPU has up to 120,000, most of them about clocks
TEXT_SIZE = 60  # characters of a field that are shown
ROOT = "nvidia_smi_log"
# Driver 535 has changed the name.
CLOCK_REASONS = ("clocks_event_reason", "clocks_throttle_reason")
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
UNCORRECTED = (
    "dram_uncorrectable",
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "double_bit/total",  # before Turing
)
FLAGS = (
    "gpu_reset_status/reset_required",
    "gpu_reset_status/drain_and_reset_recommended",
    "remapped_rows/remapped_row_failure",
    "remapped_rows/remapped_row_pending",
    "retired_pages/pending_retirement",
    "retired_pages/pending_blacklist",
)
# What NVML has in place of a value (nvmlErrorString), and nvidia-smi's table. The first two are about the
# GPU, the others about the field: power or fan, for example, may be unknown on a GPU that works.
LOST = ("GPU is lost", "GPU requires reset")
UNKNOWN = ("Unknown Error", "ERR!")
NECESSARY = ("uuid", "fb_memory_usage", "compute_mode")  # sections about what every program needs
OF_USERS = ("processes", "accounted_processes")  # sections with names that users choose


class Gpu:
    """A GPU. Texts are nvidia-smi's; "" and None where it has no such field."""

    def __init__(self, element: "ElementTree.Element") -> None:
        self._element = element
        uuid = self._text("uuid")
        self.uuid = uuid if re.fullmatch(r"GPU-[\w-]+", uuid, re.ASCII) else ""
        self.address = _clean(element.get("id", ""))  # on the PCI bus
        self.memory_used = self._number("fb_memory_usage/used", " MiB")
        self.memory_total = self._number("fb_memory_usage/total", " MiB")
        self.processes = [  # not those that only draw (G)
            _process(process)
            for process in element.findall("processes/process_info")
            if process.findtext("type", "") != "G"
        ]
        self.compute_mode = self._text("compute_mode")
        self.recovery_action = self._text("gpu_recovery_action")
        self.flags = [path.split("/")[1] for path in FLAGS if self._text(path) == "Yes"]
        counts = [(path, self._number("ecc_errors/volatile/" + path)) for path in UNCORRECTED]
        self.uncorrected = ["%s: %d" % (path, count) for path, count in counts if count]
        self.slowdowns = [
            "%s_%s" % (prefix, name)
            for prefix in CLOCK_REASONS
            for name in SLOWDOWNS
            if self._text("%ss/%s_%s" % (prefix, prefix, name)) == "Active"
        ]
        self.performance_state = self._text("performance_state")
        self.link_width = self._number("pci/pci_gpu_link_info/link_widths/current_link_width", "x")
        self.link_width_max = self._number("pci/pci_gpu_link_info/link_widths/max_link_width", "x")
        self.errors = [  # section, field and error
            (section.tag, field.tag, (field.text or "").strip(" \t\n[]"))
            for section in element
            if section.tag not in OF_USERS
            for field in section.iter()
            if (field.text or "").strip(" \t\n[]") in LOST + UNKNOWN
        ]

    def _text(self, path: str) -> str:
        return _clean(self._element.findtext(path, ""))

    def _number(self, path: str, unit: str = "") -> "Optional[int]":
        match = re.fullmatch(r"(\d{1,12})%s" % unit, self._text(path), re.ASCII)
        return int(match.group(1)) if match else None


def _clean(text: str) -> str:
    return job_log.printable(" ".join(text.split()))[:TEXT_SIZE]


def _process(element: "ElementTree.Element") -> str:
    """Name and pid, of the host's namespace. The name may be missing, or "[Not Found]"."""
    name = _clean(os.path.basename(element.findtext("process_name", "")))
    return ("%s (pid %s)" % (name, _clean(element.findtext("pid", "")))).strip()


def parse(text: str) -> "Tuple[List[Gpu], str]":
    """The GPUs in the output of `nvidia-smi -q -x`, and what is wrong with the XML, or "".

    Has the GPUs before the place where it breaks off. Skips the document type, and what is not XML:
    nvidia-smi may print warnings before and after it, e.g. about an infoROM.
    """
    start = text.find("<%s>" % ROOT)
    if start < 0:
        return [], "no element %s" % ROOT
    if len(text) > OUTPUT_SIZE:
        return [], "more than %d characters" % OUTPUT_SIZE
    before, end, _ = text[start:].partition("</%s>" % ROOT)
    # Names may be arbitrary bytes: github.com/common-workflow-language/cwltool/pull/1910.
    xml = re.sub(r"(?s)(<process_name>)(.*?)(?=</process_name>)", _drop_markup, before + end)
    parser: "Any" = ElementTree.XMLPullParser(["start", "end"])
    parser.feed(xml.encode("utf-8", "replace"))
    gpus: "List[Gpu]" = []
    depth = 0
    try:
        for event, element in parser.read_events():
            depth += 1 if event == "start" else -1
            if (event, depth, element.tag) == ("end", 1, "gpu"):
                gpus.append(Gpu(element))
        parser.close()
    except ElementTree.ParseError as error:
        return gpus, str(error)
    return gpus, ""


def _drop_markup(element: "Match[str]") -> str:
    return element.group(1) + re.sub(r"[^\w./\\:\[\] -]", "?", element.group(2), flags=re.ASCII)


def find(gpu: Gpu, node: str, is_shared: bool) -> "List[Finding]":
    """What is wrong with a GPU of the job, before the job uses it.

    A fault with which no new work should start is `preflight`, anything else a warning. node: its name.
    is_shared: whether other jobs may use the GPU at the same time, by shards or MPS.
    """
    return [
        *_find_faults(gpu, node),
        *_find_warnings(gpu, node),
        *([] if is_shared else _find_use(gpu, node)),
    ]


def _find_faults(gpu: Gpu, node: str) -> "List[Finding]":
    rows: "List[Tuple[str, str, str]]" = []
    leave_out = "leave %s out: slurm.exclude" % node
    reset = "ask the site to reset the GPU; until then, " + leave_out
    # Reset, Reboot, Drain P2P: nothing new runs before that. Drain and Reset, after a contained error: what
    # runs may go on, but "no new work should be scheduled on the GPU".
    if re.search("reset|reboot|drain", gpu.recovery_action, re.IGNORECASE):
        fix = "ask the site for that; until then, " + leave_out
        rows.append(("gpu_recovery_action: " + gpu.recovery_action, "None", fix))
    # The same, of drivers 535 and 550.
    for flag in ("reset_required", "drain_and_reset_recommended"):
        if flag in gpu.flags:
            rows.append((flag + ": Yes", "No", reset))
    # A reason to replace the GPU: docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, RMA Policy Thresholds.
    if "remapped_row_failure" in gpu.flags:
        fix = "ask the site to replace the GPU; until then, " + leave_out
        rows.append(("remapped_row_failure: Yes", "No", fix))
    if gpu.compute_mode.lower() == "prohibited":  # no program can make a context
        fix = "ask the site for nvidia-smi --compute-mode=DEFAULT, or " + leave_out
        rows.append(("compute_mode: " + gpu.compute_mode, "Default", fix))
    for section, field, error in gpu.errors:
        if error in LOST or section in NECESSARY:
            fix = "ask the site to repair the GPU; until then, " + leave_out
            rows.append(("%s: %s" % (field, error), "a value", fix))
            break  # the other fields have the same error
    return [("preflight", "GPU health", *row) for row in rows]


def _find_warnings(gpu: Gpu, node: str) -> "List[Finding]":
    rows: "List[Tuple[str, str, str, str]]" = []
    reset = "ask the site to reset the GPU when %s is idle" % node
    # "New workloads can be launched": docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, Error Recovery and
    # Response Flags. Where they should not, the recovery action asks for a reset. GPUs before Ampere retire
    # pages, which "can still be allocated, and may cause further reliability issues" until the reset.
    for flag in ("remapped_row_pending", "pending_retirement", "pending_blacklist"):
        if flag in gpu.flags:
            rows.append(("GPU health", flag + ": Yes", "No", reset))
    # Counted since the driver was loaded, so the error may be long past: it ended the program that met it.
    # Where the GPU needs a reset, one of the fields above shows it.
    if gpu.uncorrected:
        found = "volatile " + ", ".join(gpu.uncorrected)
        rows.append(("GPU health", found, "0", reset + ", and to look for Xid errors in its kernel log"))
    # Halves the clocks, or worse; for heat, or as the power supply asks for it. Others, e.g. sw_power_cap and
    # gpu_idle, are part of normal work.
    if gpu.slowdowns:
        found = "%s: Active" % ", ".join(gpu.slowdowns)
        rows.append(("GPU clocks", found, "Not Active", "look at cooling and power supply of %s" % node))
    # Both may be less while a GPU is not in use: the generation nearly always, so it is not compared, and the
    # width only in P0, in which GPUs of data centres stay. An A10G (driver 515) has 8x of 16x in P8.
    width, width_max = gpu.link_width, gpu.link_width_max
    if gpu.performance_state == "P0" and width and width_max and width < width_max:
        fix = "have the GPU's slot in %s looked at, unless it has %d lanes only" % (node, width)
        rows.append(("GPU link", "current_link_width: %dx" % width, "%dx" % width_max, fix))
    unknown = [field for section, field, error in gpu.errors if error in UNKNOWN and section not in NECESSARY]
    if unknown:
        found = "unknown to the driver: " + ", ".join(unknown[:3])
        rows.append(("GPU health", found, "a value", "look at nvidia-smi -q on %s" % node))
    return [("warn", *row) for row in rows]


def _find_use(gpu: Gpu, node: str) -> "List[Finding]":
    """Memory that others hold, as nothing of the job runs yet, and a mode for single processes."""
    rows: "List[Finding]" = []
    used, total = gpu.memory_used, gpu.memory_total
    if used and total and used > BUSY * total:
        users = ", ".join(gpu.processes[:3]) or "processes that nvidia-smi does not name"
        found = "%d of %d MiB in use by %s" % (used, total, users)
        fix = "end them if they are yours, or leave %s out: slurm.exclude" % node
        rows.append(("warn", "GPU memory", found, "free, before the job starts", fix))
    # Fits one process on each GPU, as many sites want it, but no trainer with an inference engine beside it.
    # MPS works in this mode (docs.nvidia.com/deploy/mps), hence not where GPUs are shared.
    if gpu.compute_mode.lower().startswith("exclusive"):
        found = "compute_mode: " + gpu.compute_mode
        fix = "ask the site for nvidia-smi --compute-mode=DEFAULT on %s" % node
        rows.append(("warn", "GPU mode", found, "Default, if processes share a GPU", fix))
    return rows
