"""Ray on one node: address, ports, environment, `ray start` and readiness probe."""
