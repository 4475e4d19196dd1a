"""The built-in check, role `check`: a trainer that runs a Ray task on every node and counts CPUs and GPUs."""

import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple


def main(argv: "List[str]") -> int:
    """Print one line per node and a total. Exit code 0 if all nodes answered. argv: number of nodes."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Nested, so that Ray pickles the function: its workers cannot import this module.
    @ray.remote(num_cpus=0)  # type: ignore[untyped-decorator, unused-ignore]
    def report() -> "Tuple[str, List[str]]":
        """Return the node's host name and the device files of its GPUs."""
        devices = sorted(os.listdir("/dev"))
        gpus = [name for name in devices if name.startswith("nvidia") and name[6:].isdigit()]
        if "kfd" in devices and "dri" in devices:
            gpus += [name for name in sorted(os.listdir("/dev/dri")) if name.startswith("renderD")]
        return socket.gethostname(), gpus

    ray.init(logging_level="warning")
    rows = sorted((row for row in ray.nodes() if row["Alive"]), key=lambda row: str(row["NodeName"]))
    places = [NodeAffinitySchedulingStrategy(row["NodeID"], soft=False) for row in rows]
    answers = ray.get([report.options(scheduling_strategy=place).remote() for place in places])
    total_cpus = total_gpus = 0
    for row, (host, devices) in zip(rows, answers):
        cpus, gpus = (int(row["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        total_cpus += cpus
        total_gpus += gpus
        seen = ", devices " + " ".join(devices) if devices else ""
        has = "%s, %s" % (_counted(cpus, "CPU"), _counted(gpus, "GPU"))
        print("%s: a task ran on %s, %s%s" % (row["NodeName"], host, has, seen))
    totals = (len(rows), "node"), (total_gpus, "GPU"), (total_cpus, "CPU")
    print(", ".join(_counted(*total) for total in totals))
    wanted = int(argv[0])
    if len(rows) != wanted:
        sys.stderr.write("expected %s\n" % _counted(wanted, "node"))
        return 1
    return 0


def _counted(number: int, noun: str) -> str:
    """As job_log.counted. This file imports nothing of the agent, as dstack's script contains it alone."""
    return "%d %s%s" % (number, noun, "s" * (number != 1))
