"""Trains a small model with PyTorch's DDP over Gloo, on CPUs: one process on each node, started by Ray Train.

Each process has data that no other has. So all have the same gradients only if these went from node to node.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

STEPS, INPUTS, OUTPUTS = 20, 256, 1024


def sent(interface):
    """Bytes that have left this node by an interface; /proc/net/dev has them in the ninth column."""
    with open("/proc/net/dev") as file:
        (counters,) = [line.split(":")[1] for line in file if line.strip().startswith(f"{interface}:")]
    return int(counters.split()[8])


def train():
    """What each process does; returns what each of them found."""
    rank, interface = dist.get_rank(), os.environ["GLOO_SOCKET_IFNAME"]
    truth = torch.randn(INPUTS, OUTPUTS, generator=torch.Generator().manual_seed(0))
    own = torch.randn(64, INPUTS, generator=torch.Generator().manual_seed(1 + rank))
    model = prepare_model(torch.nn.Linear(INPUTS, OUTPUTS, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=50.0)
    losses, before = [], sent(interface)
    for _ in range(STEPS):
        loss = torch.nn.functional.mse_loss(model(own), own @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    (weights,) = model.parameters()
    found = {
        "host": socket.gethostname(),
        "interface": interface,
        "sent": sent(interface) - before,
        "loss": (losses[0], losses[-1]),
        "gradient": weights.grad.norm().item(),
    }
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, found)
    return everybody


def main():
    """One process on each node, and a line about each of them."""
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
            sys.exit(f"the loss on {node['host']} does not fall")
    if len({node["gradient"] for node in nodes}) > 1:
        sys.exit("the nodes have not trained together: their gradients differ")
    print(f"{len(nodes)} nodes have trained together for {STEPS} steps")


if __name__ == "__main__":
    main()
