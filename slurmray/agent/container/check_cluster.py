"""The built-in check, role `check`: a trainer that runs a Ray task on every node and counts CPUs and GPUs."""

import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def main(argv: "List[str]") -> int:
    """Print one line per node and a total. Exit code 0 if all nodes answered. argv: number of nodes."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Nested, so that Ray pickles the function: its workers cannot import this module.
    @ray.remote(num_cpus=0)  # type: ignore[untyped-decorator, unused-ignore]
    def host_name() -> str:
        """Return the node's host name."""
        return socket.gethostname()

    ray.init(logging_level="warning")
    rows = sorted((row for row in ray.nodes() if row["Alive"]), key=lambda row: str(row["NodeName"]))
    places = [NodeAffinitySchedulingStrategy(row["NodeID"], soft=False) for row in rows]
    answers = ray.get([host_name.options(scheduling_strategy=place).remote() for place in places])
    total_cpus = total_gpus = 0
    for row, host in zip(rows, answers):
        cpus, gpus = (int(row["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        total_cpus += cpus
        total_gpus += gpus
        # Ray asks the driver for it.
        kinds = [name.partition(":")[2] for name in row["Resources"] if name.startswith("accelerator_type:")]
        kind = " (%s)" % ", ".join(kinds) if kinds else ""
        has = "%s, %s" % (_counted(cpus, "CPU"), _counted(gpus, "GPU"))
        print("%s: a task ran on %s, %s%s" % (row["NodeName"], host, has, kind))
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
