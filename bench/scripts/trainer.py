"""The trainer of the benchmark: prints its start time and the CPU counters; fails if a node is missing.

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
joined = sum(node["Alive"] for node in ray.nodes())
print(f"trainer sees {joined} nodes, {ray.cluster_resources().get('GPU', 0):g} GPUs", flush=True)
sys.exit(0 if joined == int(sys.argv[1]) else 3)
