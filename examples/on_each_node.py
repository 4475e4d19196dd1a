"""Runs a command once on each node in Ray that offers GPUs, e.g. torchrun or accelerate launch.

usage: python3 on_each_node.py COMMAND ARGUMENT...

In arguments, $NODE_RANK is the number of the node, from 0. Exits with the first exit code that is not 0; Ray
then ends the commands of the other nodes.
"""

import os
import subprocess
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

GPUS = int(os.environ["GPUS_PER_NODE"])


@ray.remote(num_cpus=0, num_gpus=GPUS)
def run(argv, rank):
    """Run the command on this node, and return its exit code."""
    argv = [argument.replace("$NODE_RANK", str(rank)) for argument in argv]
    return subprocess.call(argv, env=dict(os.environ, NODE_RANK=str(rank)))


def main():
    """Start the command on all nodes, and exit with its code."""
    ray.init()
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) >= GPUS]
    nodes.sort(key=lambda node: node["NodeManagerAddress"] != os.environ["MASTER_ADDR"])  # rank 0: the head
    waiting = []
    for rank, node in enumerate(nodes):
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        waiting.append(run.options(scheduling_strategy=place).remote(sys.argv[1:], rank))
    while waiting:
        (done,), waiting = ray.wait(waiting)
        if code := ray.get(done):
            sys.exit(code)


if __name__ == "__main__":
    main()
