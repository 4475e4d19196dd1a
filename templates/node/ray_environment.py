"""The environment of Ray and of the trainer on one node, by the Ray version in the image."""

import os

import network
import ray_start
import surroundings

TOKEN_SINCE = (2, 52)  # the release notes of Ray: token authentication
HIP_SINCE = (2, 45)  # masks AMD GPUs by HIP_VISIBLE_DEVICES, and fails where ROCR_VISIBLE_DEVICES is set

# Two processes of the head have metrics ports that no option closes: each tries this one, says in its log
# that there is no such port, and goes on.
NO_PORT = "65536"


def of_node(member):
    """What Ray inherits there, with the token of the job where this Ray knows tokens."""
    token = None
    if wants_token(member.one("auth", "auto"), member.version):
        token = os.path.join(member.temp_dir, "token")
        write_private(token, member.one("token"))
    elif member.is_head():
        danger = "runs without a token: every user who reaches it can run code"
        member.say("phase ray", f"Ray {member.version_text} {danger}")
    cpus, gpus = int(member.one("cpus")), int(member.one("gpus"))
    env = surroundings.defaults(member.one("user"), cpus, gpus, member.temp_dir)
    env.update(pair.split("=", 1) for pair in member.conf.get("env", []))
    if member.stages:
        env.update(member.stages.mask())
    return environment(member.temp_dir, env, token, member.version, member.one("metrics") == "true")


def write_private(path, text):
    """Writes a file that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def wants_token(auth, version):
    """Whether Ray shall ask for the token of the job. auth: `ray.auth` of the spec."""
    return auth != "none" and version >= TOKEN_SINCE


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


def deadlines(ready_timeout):
    """What `ray start` inherits besides: Ray gives up a minute later than the probe, which names the node."""
    seconds = ready_timeout + 60
    return {
        "RAY_raylet_start_wait_time_s": str(seconds),
        "RAY_agent_register_timeout_ms": str(seconds * 1000),
    }


def metrics_environment(env, ports):
    """Where Ray exports metrics besides --metrics-export-port; its defaults are the same for every job."""
    places = {
        "DASHBOARD_METRIC_PORT": ray_start.DASHBOARD_METRICS,
        "AUTOSCALER_METRIC_PORT": ray_start.AUTOSCALER_METRICS,
    }
    return {name: env.get(name, str(ports[place])) for name, place in places.items()}


def trainer_environment(ray_env, head, node_count, gpus_per_node):
    """The environment of Ray and what a trainer asks about the cluster. head: (address, ports)."""
    address, ports = head
    return {
        **ray_env,
        "RAY_ADDRESS": network.host_port(address, ports[ray_start.GCS]),
        "NNODES": str(node_count),
        "NODE_RANK": "0",
        "GPUS_PER_NODE": str(gpus_per_node),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(ports[ray_start.MASTER]),
    }
