"""Trains a small model with PyTorch DDP over Gloo on CPUs: one process per node, started by Ray Train.

Each process has different data, so the gradients are the same everywhere only if the nodes exchanged them.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

STEPS, INPUTS, OUTPUTS = 20, 256, 1024


def sent_bytes(interface):
    """Bytes that this node sent over an interface: column 9 of /proc/net/dev."""
    with open("/proc/net/dev") as file:
        (counters,) = [line.split(":")[1] for line in file if line.strip().startswith(f"{interface}:")]
    return int(counters.split()[8])


def train():
    """Train in one process, and return the results of all processes."""
    rank, interface = dist.get_rank(), os.environ["GLOO_SOCKET_IFNAME"]
    truth = torch.randn(INPUTS, OUTPUTS, generator=torch.Generator().manual_seed(0))
    own = torch.randn(64, INPUTS, generator=torch.Generator().manual_seed(1 + rank))
    model = prepare_model(torch.nn.Linear(INPUTS, OUTPUTS, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=50.0)
    losses, before = [], sent_bytes(interface)
    for _ in range(STEPS):
        loss = torch.nn.functional.mse_loss(model(own), own @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    (weights,) = model.parameters()
    result = {
        "host": socket.gethostname(),
        "interface": interface,
        "sent": sent_bytes(interface) - before,
        "loss": (losses[0], losses[-1]),
        "gradient": weights.grad.norm().item(),
    }
    results = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    return results


def main():
    """Start one process on each node, and print a line about each."""
    trainer = TorchTrainer(
        train,
        scaling_config=ScalingConfig(
            num_workers=int(os.environ["NNODES"]), placement_strategy="STRICT_SPREAD"
        ),
        run_config=RunConfig(name="ddp", storage_path=os.getcwd()),  # a folder that all nodes share
    )
    nodes = trainer.fit().return_value
    for node in nodes:
        first, last = node["loss"]
        megabytes = f"{node['sent'] / 1e6:.0f} MB over {node['interface']}"
        print(
            f"{node['host']}: sent {megabytes}, loss {first:.1f} -> {last:.1f}, gradient {node['gradient']!r}"
        )
        if last >= first:
            sys.exit(f"{node['host']}: the loss did not fall")
    if len({node["gradient"] for node in nodes}) > 1:
        sys.exit("the nodes did not exchange gradients: they differ")
    print(f"{len(nodes)} nodes trained together for {STEPS} steps")


if __name__ == "__main__":
    main()
