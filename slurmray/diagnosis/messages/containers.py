"""Podman, Docker, Apptainer, and what mounts or devices lead to."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "cdi-older-than-driver",
        "Error: crun: cannot stat /usr/lib/x86_64-linux-gnu/libcuda.so.575.159.04: No such file or directory",
        "crun 1.21; of 1.8: github.com/Igalia/webkit-container-sdk/issues/23; of Podman: github.com/NVIDIA/nvidia-container-toolkit/issues/885",
        r"(cannot stat|error stat'ing file) \S*(nvidia|libcuda|libnv)\S*: [Nn]o such file"
        r"|failed to stat CDI host device",
        "The node's CDI specification names files that are not there any more: it is older than the driver.",
        "Write it again on that node: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml.",
        "node",
    ),
)
