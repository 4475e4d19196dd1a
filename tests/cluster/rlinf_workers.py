"""RLinf's Cluster and two groups of workers, on the CPUs of all nodes: gloo in a group, and between both.

usage: python3 rlinf_workers.py cluster.num_nodes=N
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import torch
from rlinf.scheduler import Cluster, NodePlacementStrategy, Worker


class Sender(Worker):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()

    def run(self) -> tuple[str, float]:
        torch.distributed.init_process_group("gloo")
        tensor = torch.full((1000,), self._rank + 1.0)
        torch.distributed.all_reduce(tensor)
        self.send(tensor, "receiver", self._world_size - 1 - self._rank)
        return platform.node(), tensor.mean().item()


class Receiver(Worker):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()

    def run(self) -> tuple[str, float]:
        tensor = self.recv("sender", self._world_size - 1 - self._rank)
        return platform.node(), tensor.mean().item()


def main() -> None:
    nodes = int(sys.argv[1].removeprefix("cluster.num_nodes="))
    cluster = Cluster(num_nodes=nodes)
    placement = NodePlacementStrategy(list(range(nodes)))
    kinds: dict[str, Any] = {"sender": Sender, "receiver": Receiver}
    groups = {
        name: kind.create_group().launch(cluster, name=name, placement_strategy=placement)
        for name, kind in kinds.items()
    }
    results = {name: group.run() for name, group in groups.items()}
    for name, result in results.items():
        print(name, *result.wait(), flush=True)


if __name__ == "__main__":
    main()
