"""The `ray start` command line and environment of one node, by the Ray version in the image."""

import importlib.metadata
import importlib.util
import os
import re

import network

TOKEN_SINCE = (2, 52)  # the release notes of Ray: token authentication
WORKER_TEMP_DIR_SINCE = (2, 55)  # before, --temp-dir was for the head only and workers took over its path

# Places in a leased block of ports.
GCS, CLIENT, DASHBOARD, MASTER = range(4)  # the head alone uses these
NODE_MANAGER, OBJECT_MANAGER, AGENT, AGENT_GRPC, RUNTIME_ENV, METRICS = range(4, 10)


def ray_version():
    """(text, (major, minor)) of the Ray that this Python would import; None where there is none."""
    try:
        text = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return None
    return text, tuple(int(number) for number in re.findall(r"\d+", text)[:2])


# To import Ray takes a second, on a network file system many. A worker does so while the head gets ready,
# and is told the words of `ray start` and the rest of its environment on its standard input.
WAITING_RAY = """
import json, os, sys
import ray.scripts.scripts as ray
sys.argv, more = json.load(sys.stdin)
os.environ.update(more)
ray.main()
"""


def wants_token(auth, version):
    """Whether Ray shall ask for the token of the job. auth: `ray.auth` of the spec."""
    return auth != "none" and version >= TOKEN_SINCE


def command(name, address, ports, cluster, version, temp_dir, cpus, gpus, extra):
    """The words of `ray start --block`.

    cluster: None on the head, else `host:port` of the GCS. cpus, gpus: numbers for the scheduler, never
    guessed by Ray, which counts the whole host. extra: the words of the user, last, so that they win.
    """
    words = ["ray", "start", "--block", f"--node-name={name}"]
    words += [f"--node-ip-address={address}", f"--num-cpus={cpus}", f"--num-gpus={gpus}"]
    words += [
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
        if importlib.util.find_spec("grpc"):  # without it `ray start` refuses the option
            words.append(f"--ray-client-server-port={ports[CLIENT]}")
    else:
        words.append(f"--address={cluster}")
    if cluster is None or version >= WORKER_TEMP_DIR_SINCE:
        words.append(f"--temp-dir={temp_dir}")
    return words + extra


def environment(temp_dir, user_env, token):
    """What Ray and the trainer inherit. user_env: `env` of the spec, which wins over our defaults."""
    env = dict(os.environ)
    env.update(
        PYTHONUNBUFFERED="1",
        RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",  # else Ray builds a virtual environment per worker under `uv run`
        RAY_TMPDIR=temp_dir,
        RAY_USAGE_STATS_ENABLED="0",
        RAY_worker_register_timeout_seconds="120",  # a cold Python on a network file system
    )
    env.update(user_env)
    # Said explicitly: where it is unset, head and workers may decide differently (Ray 2.59 on).
    env["RAY_AUTH_MODE"] = "token" if token else "disabled"
    if token:
        env["RAY_AUTH_TOKEN_PATH"] = token
    return env


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
