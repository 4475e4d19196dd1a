"""The `ray start` command line and environment of one node, by the Ray version in the image."""

import importlib.metadata
import importlib.util
import os
import re

import network

TOKEN_SINCE = (2, 52)  # the release notes of Ray: token authentication
IPV6_SINCE = (2, 49)  # the same
HIP_SINCE = (2, 45)  # masks AMD GPUs by HIP_VISIBLE_DEVICES, and fails where ROCR_VISIBLE_DEVICES is set
CLIENT_IPV6_SINCE = (2, 56)  # before, the server for Ray Client fails on IPv6, and the head with it
WORKER_TEMP_DIR_SINCE = (2, 55)  # before, --temp-dir was for the head only and workers took over its path

# Places in a leased block of ports.
GCS, CLIENT, DASHBOARD, MASTER = range(4)  # the head alone uses these
NODE_MANAGER, OBJECT_MANAGER, AGENT, AGENT_GRPC, RUNTIME_ENV, METRICS = range(4, 10)
DASHBOARD_METRICS, AUTOSCALER_METRICS = 11, 12  # the head alone; 10 is the DOOR of preflight.py

# Two processes of the head have metrics ports that no option closes: each tries this one, says in its log
# that there is no such port, and goes on.
NO_PORT = "65536"


def ray_version():
    """(text, (major, minor)) of the Ray that this Python would import; None where there is none."""
    try:
        text = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return None
    return text, tuple(int(number) for number in re.findall(r"\d+", text)[:2])


# To import Ray takes a second, on a network file system many. A worker does so while the head gets ready,
# and is told the words of `ray start` and the rest of its environment on its standard input. Without a port
# for Ray Client, a head would take 10001 unless it believes that Ray Client is not installed.
WAITING_RAY = """
import sys
sys.path.pop(0)  # the working directory may have a json.py
import json, os
import ray.scripts.scripts as ray
sys.argv, more = json.load(sys.stdin)
os.environ.update(more)
if not any(word.startswith("--ray-client-server-port") for word in sys.argv):
    ray.get_ray_client_dependency_error = lambda: "not asked for"
ray.main()
"""


def wants_token(auth, version):
    """Whether Ray shall ask for the token of the job. auth: `ray.auth` of the spec."""
    return auth != "none" and version >= TOKEN_SINCE


def command(name, address, ports, cluster, version, temp_dir, cpus, gpus, object_store, extra):
    """The words of `ray start --block`.

    cluster: None on the head, else `host:port` of the GCS. cpus, gpus: numbers for the scheduler, never
    guessed by Ray, which counts the whole host. object_store: bytes. extra: the words of the user, last, so
    that they win.
    """
    if ":" in address and version < IPV6_SINCE:
        remedy = "use an image with Ray 2.49 or later, or network.family: ipv4 where the nodes have it"
        raise network.NetworkError(f"{address}: Ray {version[0]}.{version[1]} has no IPv6; {remedy}")
    words = ["ray", "start", "--block", f"--node-name={name}"]
    words += [f"--node-ip-address={address}", f"--num-cpus={cpus}", f"--num-gpus={gpus}"]
    words += [
        f"--object-store-memory={object_store}",
        f"--node-manager-port={ports[NODE_MANAGER]}",
        f"--object-manager-port={ports[OBJECT_MANAGER]}",
        f"--dashboard-agent-listen-port={ports[AGENT]}",
        f"--dashboard-agent-grpc-port={ports[AGENT_GRPC]}",
        f"--runtime-env-agent-port={ports[RUNTIME_ENV]}",
        f"--metrics-export-port={ports[METRICS]}",
        # 0: the kernel picks. Two jobs on a node never meet, and nothing is free now and taken later.
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]
    if cluster is None:
        words += ["--head", f"--port={ports[GCS]}", f"--dashboard-port={ports[DASHBOARD]}"]
        served = ":" not in address or version >= CLIENT_IPV6_SINCE
        if served and importlib.util.find_spec("grpc"):  # without it `ray start` refuses the option
            words.append(f"--ray-client-server-port={ports[CLIENT]}")
    else:
        words.append(f"--address={cluster}")
    if cluster is None or version >= WORKER_TEMP_DIR_SINCE:
        words.append(f"--temp-dir={temp_dir}")
    return words + extra


def environment(temp_dir, user_env, token, version, metrics):
    """What Ray and the trainer inherit. user_env: `env` of the spec, which wins over our defaults.

    token: path of its file, or None. metrics: whether Ray exports any; their ports answer everybody.
    """
    env = dict(os.environ)
    env.pop("RAY_ADDRESS", None)  # without a container: of a Ray that the job was submitted from
    if version >= HIP_SINCE and "ROCR_VISIBLE_DEVICES" in env:
        env.setdefault("HIP_VISIBLE_DEVICES", env.pop("ROCR_VISIBLE_DEVICES"))
    env.update(
        PYTHONUNBUFFERED="1",
        RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",  # else Ray builds a virtual environment per worker under `uv run`
        RAY_TMPDIR=temp_dir,
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_register_timeout_seconds="120",  # a cold Python on a network file system
    )
    if not metrics:
        env.update(
            RAY_enable_metrics_collection="0", DASHBOARD_METRIC_PORT=NO_PORT, AUTOSCALER_METRIC_PORT=NO_PORT
        )
    env.update(user_env)
    # Said explicitly: where it is unset, head and workers may decide differently (Ray 2.59 on).
    env["RAY_AUTH_MODE"] = "token" if token else "disabled"
    if token:
        env["RAY_AUTH_TOKEN_PATH"] = token
    return env


def metrics_environment(env, ports):
    """Where Ray exports metrics besides --metrics-export-port; its defaults are the same for every job."""
    places = {"DASHBOARD_METRIC_PORT": DASHBOARD_METRICS, "AUTOSCALER_METRIC_PORT": AUTOSCALER_METRICS}
    return {name: env.get(name, str(ports[place])) for name, place in places.items()}


def trainer_environment(ray_env, head, node_count, gpus_per_node):
    """The environment of Ray and what a trainer asks about the cluster. head: (address, ports)."""
    address, ports = head
    return {
        **ray_env,
        "RAY_ADDRESS": network.host_port(address, ports[GCS]),
        "NNODES": str(node_count),
        "NODE_RANK": "0",
        "GPUS_PER_NODE": str(gpus_per_node),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(ports[MASTER]),
    }
