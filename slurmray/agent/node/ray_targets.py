"""Copies Ray's file with the addresses of its metrics into the run directory, for `ray.metrics`."""

import os

from .. import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .agent_interface import NodeApi

# Ray's dashboard writes it on the head node, in the format of Prometheus' file_sd_config, and again when
# nodes come or go: ray/_private/metrics_agent.py, PrometheusServiceDiscoveryWriter.
FILE = "prom_metrics_service_discovery.json"
MAX_SIZE = 1 << 20  # bytes


def copy(node: "NodeApi") -> None:
    """Copy the file as it is now, if it is there. OSError."""
    try:
        # Programs in the container can write there: no link, nothing that blocks.
        source = os.open(os.path.join(node.inside, FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    with open(source, "rb") as file:
        data = file.read(MAX_SIZE)
    folder = os.path.join(node.job["run_dir"], paths.METRICS)
    os.makedirs(folder, 0o755, exist_ok=True)
    paths.replace(os.path.join(folder, "ray.json"), data)
