"""Ray on one node: its command line, environment, addresses and ports, its start, and the readiness probe."""
