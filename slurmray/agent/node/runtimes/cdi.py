"""Names of NVIDIA's GPUs in the CDI specifications of the node, which nvidia-ctk writes.

The format: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

import glob
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Set

FOLDERS = ("/etc/cdi", "/var/run/cdi")
DRIVER_FOLDER = "/proc/driver/nvidia/gpus"  # a folder for each GPU, named after its PCI address
# Python has no YAML parser. In JSON and in YAML these keys occur nowhere else in a specification.
KIND = re.compile(r"""\bkind["']?\s*:\s*["']?nvidia\.com/gpu\b""")
NAME = re.compile(r"""\bname["']?\s*:\s*["']?([^"'\s,}]+)""")


def device_names(folders: "Iterable[str]") -> "Set[str]":
    """Names of devices of the kind nvidia.com/gpu, e.g. `0`, `gpu0`, `all` and UUIDs."""
    names: "Set[str]" = set()
    for folder in folders:
        for path in glob.glob(os.path.join(folder, "*.yaml")) + glob.glob(os.path.join(folder, "*.json")):
            try:
                with open(path, encoding="utf-8") as file:
                    specification = file.read()
            except OSError:  # Podman skips it, too
                continue
            if KIND.search(specification):
                names.update(NAME.findall(specification))
    return names


def indices() -> "Dict[str, str]":
    """UUID of each GPU of the node -> its index outside of cgroups: its place by PCI address."""
    index_by_uuid = {}
    for index, folder in enumerate(sorted(glob.glob(os.path.join(DRIVER_FOLDER, "*")))):
        with open(os.path.join(folder, "information")) as file:
            for line in file:
                if line.startswith("GPU UUID:"):
                    index_by_uuid[line.partition(":")[2].strip()] = str(index)
    return index_by_uuid
