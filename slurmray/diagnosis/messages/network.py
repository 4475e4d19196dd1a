"""NCCL, RCCL and Gloo: processes that do not reach each other."""

from slurmray.diagnosis.entries import Message

MESSAGES: tuple[Message, ...] = (
    Message(
        "nccl-no-interface",
        "NCCL WARN Bootstrap : no socket interface found",
        "NCCL: src/bootstrap.cc",
        r"Bootstrap : no (socket|usable listening) interface found",
        "NCCL found no network interface by the name in NCCL_SOCKET_IFNAME.",
        "Set network.interface to the one that connects the nodes, and leave NCCL_SOCKET_IFNAME out of env.",
        "network",
    ),
    Message(
        "gloo-full-mesh",
        "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
        "Gloo, in PyTorch: gloo/transport/tcp/pair.cc",
        r"Gloo connectFullMesh failed",
        "Gloo connected over an interface that does not reach the other nodes.",
        "Set network.interface to the one that connects the nodes.",
        "network",
    ),
)
