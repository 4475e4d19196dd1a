"""Copies Ray's file with the addresses of its metrics into the run directory, for `ray.metrics`."""

import glob
import os

from .. import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .agent_interface import NodeApi

# Ray's dashboard writes it on the head node, in the format of Prometheus' file_sd_config, and again when
# nodes come or go: ray/_private/metrics_agent.py, PrometheusServiceDiscoveryWriter. In later versions it is
# in the folder of the session, and the other one is a link with the path in the container.
FILE = "prom_metrics_service_discovery.json"
FOLDERS = ("session_2*", "")
MAX_SIZE = 1 << 20  # bytes


def copy(node: "NodeApi") -> None:
    """Copy the file as it is now, if it is there. OSError."""
    files = [path for folder in FOLDERS for path in glob.glob(os.path.join(node.inside, folder, FILE))]
    if not files:
        return
    data, _ = paths.read_begin(files[0], MAX_SIZE)  # programs in the container can write there
    folder = os.path.join(node.job["run_dir"], paths.METRICS)
    os.makedirs(folder, 0o755, exist_ok=True)
    paths.replace(os.path.join(folder, "ray.json"), data)
