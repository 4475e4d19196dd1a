"""Measures Ray's GCS with many nodes, with and without the variables that NeMo-RL's ray.sub sets.

usage: python -m bench.gcs [--nodes 32] [--actors 64] [--repeat 3]
Run it from the checkout, on an idle machine with 12 GB of memory. All nodes are raylets of this machine, with
declared CPUs; ways take turns. So it shows what the variables do to a GCS whose clients start as fast as one
machine lets them, not what they do in a network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

THREADS = os.cpu_count() or 1
# ray.sub of NeMo-RL, commit 7ea279a, without its timeouts: slurmray sets those that matter, see variables.py.
VARIABLES = {
    "RAY_gcs_server_rpc_server_thread_num": THREADS,
    "RAY_gcs_server_rpc_client_thread_num": THREADS,
    "RAY_num_server_call_thread": max(1, THREADS // 2),
    "RAY_gcs_max_active_rpcs_per_handler": 200 * THREADS,
    "RAY_raylet_report_resources_period_milliseconds": 500,
    "RAY_task_events_report_interval_ms": 5000,
    "RAY_num_workers_soft_limit": 16,
    "RAY_grpc_keepalive_time_ms": 60_000,
    "RAY_grpc_keepalive_timeout_ms": 60_000,
    "RAY_enable_timeline": "false",
    "RAY_event_stats": "false",
    "RAY_ray_syncer_message_refresh_interval_ms": 10_000,
    "RAY_core_worker_internal_heartbeat_ms": 5000,
    "RAY_health_check_period_ms": 10_000,
}
WAYS: dict[str, dict[str, object]] = {"as Ray is": {}, "with the variables": VARIABLES}
IDLE = 20  # seconds
HANG = 600  # seconds; bounds a hang


def measure(nodes: int, actors: int) -> dict[str, float]:
    """Start a Ray with so many nodes, then so many actors, and return seconds, and CPU seconds of the GCS."""
    import ray
    from ray.cluster_utils import Cluster

    class Actor:
        def ping(self) -> None:
            pass

    start = time.monotonic()
    cluster = Cluster()
    for _ in range(nodes):
        cluster.add_node(wait=False, num_cpus=8, object_store_memory=80_000_000, include_dashboard=False)
    cluster.wait_for_nodes(HANG)
    joined = time.monotonic() - start
    ray.init(address=cluster.address, log_to_driver=False)
    head: Any = cluster.head_node
    stat = Path(f"/proc/{head.all_processes['gcs_server'][0].process.pid}/stat")

    def cpu() -> float:
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    before, start = cpu(), time.monotonic()
    remote: Any = ray.remote(num_cpus=0, scheduling_strategy="SPREAD")(Actor)
    handles = [remote.remote() for _ in range(actors)]
    ray.get([each.ping.remote() for each in handles], timeout=HANG)
    started, burst = time.monotonic() - start, cpu() - before
    before = cpu()
    time.sleep(IDLE)
    found = {"nodes joined, s": joined, "actors answer, s": started, "GCS then, CPU s": burst}
    found[f"GCS in {IDLE} s at rest, CPU s"] = cpu() - before
    ray.shutdown()
    cluster.shutdown()
    return found


def main() -> None:
    """Measure each way in a process of its own, and print medians and ratios to the first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--actors", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.nodes, options.actors)))
        return
    sizes = [f"--nodes={options.nodes}", f"--actors={options.actors}"]
    results: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for number in range(options.repeat):
        for way, variables in WAYS.items():
            print(f"{number + 1} of {options.repeat}: {way}", file=sys.stderr)
            with tempfile.TemporaryDirectory(prefix="gcs-") as home:  # Ray writes its token there
                env = {**os.environ, **{name: str(value) for name, value in variables.items()}, "HOME": home}
                command = [sys.executable, "-m", "bench.gcs", "--one", *sizes]
                done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
            results[way].append(json.loads(done.stdout.splitlines()[-1]))
    first = None
    for way, runs in results.items():
        medians = {name: median(run[name] for run in runs) for name in runs[0]}
        first = first or medians
        texts = (f"{name} {value:.1f} ({value / first[name]:.2f})" for name, value in medians.items())
        print(f"{way}: {', '.join(texts)}")


if __name__ == "__main__":
    main()
