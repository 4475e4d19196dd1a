"""The environment of Ray and the trainer on one node, for the Ray version in the image."""

import os

from . import network
from . import ports as port_places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional

    from .command import Version

TOKEN_SINCE = (2, 52)  # Ray's release notes: token authentication
HIP_SINCE = (2, 45)  # uses HIP_VISIBLE_DEVICES, and fails where ROCR_VISIBLE_DEVICES is set

# Variables with which another Ray, its token or its numbers would win over the job's own.
FOREIGN = (
    "RAY_ADDRESS",
    "RAY_API_SERVER_ADDRESS",  # of Ray's job API, before RAY_ADDRESS
    "RAY_AUTH_TOKEN",  # before RAY_AUTH_TOKEN_PATH
    "RAY_CLIENT_MODE",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",  # of the Ray job in which this one was submitted
    "RAY_JOB_HEADERS",
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING",
    "RAY_OVERRIDE_RESOURCES",  # before the options of `ray start`
)
# Two processes of the head node have metrics ports that no option turns off. With this invalid port, each
# logs an error and continues.
NO_PORT = "65536"
# Seconds by which Ray's own timeouts are longer than the probe's, whose error names the missing nodes.
TIMEOUT_MARGIN = 60


def write_private(path: str, text: str) -> None:
    """Write a file that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def uses_token(auth: str, version: "Version") -> bool:
    """Whether Ray requires the job's token. auth: `ray.auth` of the job spec."""
    return auth != "none" and version >= TOKEN_SINCE


def default_variables(temp_dir: str, metrics: bool) -> "Dict[str, str]":
    """Defaults for Ray and the trainer. metrics: whether Ray exports any; their ports are unauthenticated."""
    env = {
        "PYTHONUNBUFFERED": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else Ray builds a venv per worker under `uv run`
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_register_timeout_seconds": "120",  # a cold Python on a network file system
        "RAY_TMPDIR": temp_dir,
    }
    if not metrics:
        env.update(
            RAY_enable_metrics_collection="0", DASHBOARD_METRIC_PORT=NO_PORT, AUTOSCALER_METRIC_PORT=NO_PORT
        )
    return env


def auth_variables(token: "Optional[str]") -> "Dict[str, str]":
    """Variables for Ray's token authentication. token: path of its file; None: no authentication."""
    if token is None:
        # Explicit, as the default may differ between head and worker nodes (Ray 2.59 on).
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token}


def ray_environment(
    temp_dir: str, user_env: "Mapping[str, str]", token: "Optional[str]", version: "Version", metrics: bool
) -> "Dict[str, str]":
    """Environment that Ray and the trainer inherit; user_env, of the job spec, overrides the defaults.

    temp_dir, metrics: of default_variables(). token: of auth_variables().
    """
    env = dict(os.environ)
    if "ROCR_VISIBLE_DEVICES" in env:
        # Slurm sets it for GPUs of any vendor. On NVIDIA's nodes it means nothing, and verl's Worker fails if
        # it, or HIP_VISIBLE_DEVICES with other values, is set beside CUDA_VISIBLE_DEVICES.
        if not os.path.exists("/dev/kfd"):
            del env["ROCR_VISIBLE_DEVICES"]
        elif version >= HIP_SINCE:
            env.setdefault("HIP_VISIBLE_DEVICES", env.pop("ROCR_VISIBLE_DEVICES"))
    env.update(default_variables(temp_dir, metrics))
    env.update(user_env)
    for name in FOREIGN:  # of the shell without a container, of the image, of env_file or node_env
        env.pop(name, None)
    env.update(auth_variables(token))
    return env


def start_timeouts(ready_timeout: int) -> "Dict[str, str]":
    """Timeouts of `ray start`, longer than the probe's. ready_timeout: seconds."""
    seconds = ready_timeout + TIMEOUT_MARGIN
    return {
        "RAY_raylet_start_wait_time_s": str(seconds),
        "RAY_agent_register_timeout_ms": str(seconds * 1000),
        # Ray's default of 5 s is too short for nodes that join while the GCS is busy: `ray start` fails.
        "RAY_gcs_rpc_server_connect_timeout_s": str(seconds),
        # After Ray's default of 30 s the dashboard exits, if one of its modules is still importing Ray from a
        # slow file system (ray/dashboard/subprocesses/handle.py). Ray's job API needs the dashboard.
        "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": str(seconds),
    }


def metrics_environment(env: "Mapping[str, str]", ports: "List[int]") -> "Dict[str, str]":
    """Metrics ports that have no option. Ray's defaults are the same for all jobs."""
    places = {
        "DASHBOARD_METRIC_PORT": port_places.DASHBOARD_METRICS,
        "AUTOSCALER_METRIC_PORT": port_places.AUTOSCALER_METRICS,
    }
    return {name: env.get(name, str(ports[place])) for name, place in places.items()}


def trainer_environment(
    ray_env: "Mapping[str, str]", facts: "Mapping[str, str]", address: str, ports: "List[int]"
) -> "Dict[str, str]":
    """Ray's environment and the addresses of the cluster. address, ports: of the head node."""
    env = dict(ray_env)
    env.update(facts)
    env.update(
        RAY_ADDRESS=network.join_host_port(address, ports[port_places.GCS]),
        MASTER_ADDR=address,
        MASTER_PORT=str(ports[port_places.MASTER]),
    )
    return env
