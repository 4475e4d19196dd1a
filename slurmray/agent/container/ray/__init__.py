"""Ray on one node: `ray start`, what watches it, and the readiness probe."""
