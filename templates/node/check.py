"""The built-in entrypoint: places one task on every node of the cluster and counts what is there."""

import os
import socket
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=0)
def look():
    """Runs on a node: its host name and the device files that a GPU job would use."""
    devices = sorted(os.listdir("/dev"))
    gpus = [name for name in devices if name.startswith("nvidia") and name[6:].isdigit()]
    if "kfd" in devices and "dri" in devices:
        gpus += [name for name in sorted(os.listdir("/dev/dri")) if name.startswith("renderD")]
    return socket.gethostname(), gpus


def main():
    """Prints one line per node and a total; 0 where as many nodes answered as the job has."""
    ray.init(logging_level="warning")
    rows = sorted((row for row in ray.nodes() if row["Alive"]), key=lambda row: row["NodeName"])
    answers = ray.get(
        [
            look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(row["NodeID"], soft=False)).remote()
            for row in rows
        ]
    )
    total = {"CPU": 0, "GPU": 0}
    for row, (host, devices) in zip(rows, answers):
        count = {kind: int(row["Resources"].get(kind, 0)) for kind in total}
        for kind in total:
            total[kind] += count[kind]
        seen = f", devices {' '.join(devices)}" if devices else ""
        print(f"{row["NodeName"]}: a task ran on {host}, {count['CPU']} CPUs, {count['GPU']} GPUs{seen}")
    print(f"{len(rows)} nodes, {total['GPU']} GPUs, {total['CPU']} CPUs")
    wanted = int(os.environ["NNODES"])
    if len(rows) != wanted:
        print(f"expected {wanted} nodes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
