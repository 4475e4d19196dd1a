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
    places = [NodeAffinitySchedulingStrategy(row["NodeID"], soft=False) for row in rows]
    answers = ray.get([look.options(scheduling_strategy=place).remote() for place in places])
    total_cpus = total_gpus = 0
    for row, (host, devices) in zip(rows, answers):
        cpus, gpus = (int(row["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        total_cpus += cpus
        total_gpus += gpus
        seen = ", devices " + " ".join(devices) if devices else ""
        name = row["NodeName"]
        print(f"{name}: a task ran on {host}, {cpus} CPUs, {gpus} GPUs{seen}")
    print(f"{len(rows)} nodes, {total_gpus} GPUs, {total_cpus} CPUs")
    wanted = int(os.environ["NNODES"])
    if len(rows) != wanted:
        print(f"expected {wanted} nodes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
