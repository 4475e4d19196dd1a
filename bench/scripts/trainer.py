"""The trainer of the benchmark: says at once when it began, then fails if the cluster is not whole.

usage: trainer.py NODES
"""

import importlib
import sys
import time

print(f"trainer began {time.time():.3f}", flush=True)

ray = importlib.import_module("ray")  # only now: the line above must not wait for it

ray.init(address="auto", log_to_driver=False)
alive = sum(node["Alive"] for node in ray.nodes())
print(f"trainer sees {alive} nodes, {ray.cluster_resources().get('GPU', 0):g} GPUs", flush=True)
sys.exit(0 if alive == int(sys.argv[1]) else 3)
