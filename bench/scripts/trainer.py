"""The trainer of the benchmark: prints when it began, the CPU counters, and when a task had run on each node.

It fails if a node is missing.

usage: trainer.py NODES
"""

import importlib
import sys
import time
from pathlib import Path

print(f"trainer began {time.time():.3f}")
print(Path("/proc/stat").read_text().splitlines()[0], flush=True)

ray = importlib.import_module("ray")  # not at the top: the lines above must not wait for it

ray.init(address="auto", log_to_driver=False)
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
print(f"trainer sees {len(nodes)} nodes, {ray.cluster_resources().get('GPU', 0):g} GPUs", flush=True)
strategies = importlib.import_module("ray.util.scheduling_strategies")
task = ray.remote(num_cpus=1)(lambda: None)
on_nodes = [strategies.NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
ray.get([task.options(scheduling_strategy=node).remote() for node in on_nodes])
print(f"tasks done {time.time():.3f}", flush=True)
sys.exit(0 if len(nodes) == int(sys.argv[1]) else 3)
