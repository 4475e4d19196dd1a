"""Readiness probe. Arguments: GPUS_PER_NODE TIMEOUT NODE ...; stdin: `host:port` of the GCS."""

import sys

GPUS, TIMEOUT, *NODES = sys.argv[1:]
read_table = node_table(sys.stdin.read().strip())
expected = dict.fromkeys(NODES, int(GPUS))
lacking = wait_until_ready(
    read_table, expected, float(TIMEOUT), lambda text: print("slurmray: probe:", text, flush=True)
)
if lacking:
    sys.exit("slurmray: " + not_ready(lacking, expected, float(TIMEOUT)))
