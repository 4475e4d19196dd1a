"""The environment of everything that runs in the container, as layers, and their order.

A layer is a function of the node's context that returns variables; None removes one. The tuples at the end
are the environments, the lowest layer first: each layer wins over those before it. Their table in
docs/reference/environment.md is printed from here.
"""

import os

from .. import inherited, nodes
from . import node_address, ports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Mapping, Optional, Sequence

    from ..wire.settings import Settings
    from .node_context import NodeContext

    Variables = Mapping[str, Optional[str]]
    Layer = Callable[..., Variables]

TOKEN_SINCE = (2, 52)  # Ray's release notes: token authentication
HIP_SINCE = (2, 45)  # uses HIP_VISIBLE_DEVICES, and fails where ROCR_VISIBLE_DEVICES is set

RAY_DEFAULTS = {
    "PYTHONUNBUFFERED": "1",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # else Ray builds a venv per worker under `uv run`
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_register_timeout_seconds": "120",  # a cold Python on a network file system
}
# Metrics have unauthenticated ports. Two, of processes of the head node, no option turns off: with an invalid
# one, each logs an error and continues.
NO_METRICS = {
    "RAY_enable_metrics_collection": "0",
    "DASHBOARD_METRIC_PORT": "65536",
    "AUTOSCALER_METRIC_PORT": "65536",
}
# Seconds by which Ray's own timeouts are longer than the probe's, whose error names the missing nodes.
TIMEOUT_MARGIN = 60
HEARTBEAT_MARGIN = 6  # seconds after the timeout in which a node is lost: see heartbeat.answer_wait
MAX_NO_PROXY = 100000  # characters; a variable can have 128 KiB on Linux (MAX_ARG_STRLEN)
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def collect(
    layers: "Sequence[Layer]", context: "NodeContext", service: "Optional[Dict[str, Any]]" = None
) -> "Dict[str, str]":
    """Put layers together. service: that of the layers OF_SERVICE, as in the settings."""
    env: "Dict[str, str]" = {}
    for layer in layers:
        if layer in LATE and not context.gcs:
            continue
        for name, value in (layer(context, service) if layer in OF_SERVICE else layer(context)).items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
    return env


def difference(base: "Mapping[str, str]", env: "Mapping[str, str]") -> "Dict[str, str]":
    """The variables of an environment that are not in `base`, or have another value there."""
    return {name: value for name, value in env.items() if base.get(name) != value}


def export_lines(env: "Mapping[str, str]") -> str:
    """POSIX shell commands that export these variables."""
    import shlex

    return "".join("export %s=%s\n" % (name, shlex.quote(value)) for name, value in env.items())


def service_addresses(context: "NodeContext") -> "Variables":
    """`SERVICE_NAME_HOSTS` and `SERVICE_NAME_URL` of each service. All others win over them."""
    import re

    # The URL is that of the readiness check, with the first of the hosts in place of a loopback address.
    settings, values = context.settings, {}
    for item in settings["services"]:
        name = "SERVICE_" + item["name"].upper().replace("-", "_")
        hosts = nodes.places(item["where"], context.job["nodes"], settings["ray"]["nodes"])
        values[name + "_HOSTS"] = ",".join(hosts)
        url = (item.get("ready") or {}).get("http")
        if url:
            loopback = r"(https?://)(?:127(?:\.\d+){3}|localhost|\[::1\]|0\.0\.0\.0)(?=[:/]|$)"
            values[name + "_URL"] = re.sub("^" + loopback, r"\g<1>" + hosts[0], url)
    return values


def start_timeouts(context: "NodeContext") -> "Variables":
    """Timeouts of `ray start`, longer than the readiness probe's, and retries. All others win over them."""
    seconds = context.settings["timeouts"]["ready"] + TIMEOUT_MARGIN
    return {
        "RAY_raylet_start_wait_time_s": str(seconds),
        "RAY_agent_register_timeout_ms": str(seconds * 1000),
        # Ray's default of 5 s is too short for nodes that join while the GCS is busy: `ray start` fails.
        "RAY_gcs_rpc_server_connect_timeout_s": str(seconds),
        # After Ray's default of 30 s the dashboard exits, if one of its modules is still importing Ray from a
        # slow file system (ray/dashboard/subprocesses/handle.py). Ray's job API needs the dashboard.
        "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": str(seconds),
        # A raylet may try to connect to its own object store before that listens, and tries again after a
        # second by default (1,000, at most 10 times). So do processes that connect to a raylet.
        "RAY_raylet_client_connect_timeout_milliseconds": "50",
        "RAY_raylet_client_num_connect_attempts": "200",
        **_health_checks(context.settings),
    }


def _health_checks(settings: "Settings") -> "Variables":
    """How long the GCS waits for a raylet: longer than slurmray, whose nodes may come back until then.

    While packets are lost, a check takes as long as its timeout; where there is no route, it fails at once.
    Ray waits 3 seconds after either. Its own values, 5 checks of 10 seconds, are 15 to 65 seconds. They stay
    where the job goes on without a lost node, so that Ray starts its actors again as soon as always.
    """
    if settings["on_node_loss"] == "continue":
        return {}
    checks = max(5, 2 + (settings["timeouts"]["heartbeat"] + HEARTBEAT_MARGIN) // 3)
    return {"RAY_health_check_failure_threshold": str(checks), "RAY_health_check_timeout_ms": "3000"}


def network(context: "NodeContext") -> "Variables":
    """`VLLM_HOST_IP`, and the interface for NCCL and Gloo. The image and all others win over them."""
    values = {"VLLM_HOST_IP": context.address}
    interface = node_address.find_interface(context.address, context.interfaces)
    if interface:  # by default, Gloo may choose a bridge of Docker or the loopback
        values["GLOO_SOCKET_IFNAME"] = interface
        is_found = node_address.does_nccl_find(interface, context.interfaces)
        if not (is_found or _has_nccl_conf(collect(GIVEN, context))):
            values["NCCL_SOCKET_IFNAME"] = "=" + interface  # without `=`, eth1 would stand for eth10, too
    return values


def metrics_ports(context: "NodeContext") -> "Variables":
    """With `ray.metrics`: ports that have no option. The image and all others win over them."""
    if not context.settings["ray"]["metrics"]:
        return {}  # Ray's defaults are the same for all jobs
    return {
        "DASHBOARD_METRIC_PORT": str(context.ports[ports.DASHBOARD_METRICS]),
        "AUTOSCALER_METRIC_PORT": str(context.ports[ports.AUTOSCALER_METRICS]),
    }


def image(_context: "NodeContext") -> "Variables":
    """The environment of the image, or, without a container, of the job after `setup`. Those after it win."""
    return os.environ


def python(context: "NodeContext") -> "Variables":
    """`PATH` with the folder of container.python first, if that is a path. The job spec wins over it."""
    folder = os.path.dirname(context.settings["container"]["python"])
    return {"PATH": "%s:%s" % (folder, os.environ.get("PATH", os.defpath))} if folder else {}


def gpus(context: "NodeContext") -> "Variables":
    """Slurm's GPU masks in place of those of the image. The job spec wins over them."""
    return dict(dict.fromkeys(inherited.GPU_MASKS), **context.gpu_masks)


def one_gpu_mask(context: "NodeContext") -> "Variables":
    """No `ROCR_VISIBLE_DEVICES` where Ray or the node's GPUs forbid it. The job spec wins over that."""
    # Slurm sets it for GPUs of any vendor. On NVIDIA's nodes it means nothing, and verl's Worker fails if
    # it, or HIP_VISIBLE_DEVICES with other values, is set beside CUDA_VISIBLE_DEVICES.
    masks = context.gpu_masks
    if not os.path.exists("/dev/kfd"):
        return {"ROCR_VISIBLE_DEVICES": None}
    if "ROCR_VISIBLE_DEVICES" not in masks or context.ray_version < HIP_SINCE:
        return {}
    mask = masks.get("HIP_VISIBLE_DEVICES", masks["ROCR_VISIBLE_DEVICES"])
    return {"HIP_VISIBLE_DEVICES": mask, "ROCR_VISIBLE_DEVICES": None}


def ray_defaults(context: "NodeContext") -> "Variables":
    """Defaults for Ray, and `PYTHONUNBUFFERED`. The job spec wins over them."""
    no_metrics = {} if context.settings["ray"]["metrics"] else NO_METRICS
    return dict(RAY_DEFAULTS, RAY_TMPDIR=context.folder, **no_metrics)


def user(context: "NodeContext") -> "Variables":
    """`USER` and `LOGNAME`; `HOME` where the image's is not writable. The job spec wins over them."""
    # The user may not be in /etc/passwd, and Docker may run the image as the submitter. Triton, Inductor,
    # vLLM and others have their caches in HOME.
    # No OMP_NUM_THREADS: Ray sets it to the num_cpus of each task, but only where its workers do not inherit
    # one (set_omp_num_threads_if_unset() in ray/_private/utils.py). The trainer and services, which run once,
    # may use all CPUs that Slurm lets them use, which is OpenMP's default.
    home = os.environ.get("HOME", "")
    # Without a container it is the user's, which some sites mount read-only on nodes.
    is_usable = os.path.isdir(home) if context.runtime == "none" else os.access(home, os.W_OK)
    given = {} if is_usable else {"HOME": context.folder}
    return dict(given, USER=context.user, LOGNAME=context.user)


def env_file(context: "NodeContext") -> "Variables":
    """`env_file` of the job spec. `env` and those after it win over it."""
    return context.env_file


def env(context: "NodeContext") -> "Variables":
    """`env` of the job spec, and what it lacks of the preset's. `node_env` and those after it win."""
    return dict(context.settings["env"], **context.job["env"])


def node_env(context: "NodeContext") -> "Variables":
    """`node_env` of the job spec. Those after it win over it."""
    return context.node_env


def container_setup(context: "NodeContext") -> "Variables":
    """What `container.setup` exports, and without what it unsets. Those after it win over it."""
    return context.setup_env


def gpus_of_ray(context: "NodeContext") -> "Variables":
    """The GPU mask of a node where services have GPUs: all but theirs. It wins over the job spec."""
    used = sum(item["gpus"] for item in context.own_items(context.settings["services"]))
    return _visible_gpus(context, 0, context.group["gpus_per_node"] - used) if used else {}


def all_gpus(context: "NodeContext") -> "Variables":
    """The GPU mask without `gpus_of_ray`, so that GPUs of services are checked, too."""
    given = collect(GIVEN, context)
    return {name: given.get(name) or None for name in gpus_of_ray(context)}


def no_other_ray(_context: "NodeContext") -> "Variables":
    """Nothing: removes what leads to another Ray, of the image, the shell, `env_file` or `node_env`."""
    return dict.fromkeys(inherited.FOREIGN)


def token(context: "NodeContext") -> "Variables":
    """`RAY_AUTH_MODE` and `RAY_AUTH_TOKEN_PATH`, of `ray.auth`. They win over the job spec."""
    return auth_variables(context.token)


def no_proxy(context: "NodeContext") -> "Variables":
    """Where a proxy is set: `no_proxy` and `NO_PROXY`, with the job's nodes and the loopback added."""
    given = collect(GIVEN, context)
    if not any(given.get(name) or given.get(name.upper()) for name in PROXIES):
        return {}
    known = given.get("no_proxy", "") + "," + given.get("NO_PROXY", "")
    head = node_address.split_host_port(context.gcs)[0]
    listed = [name for name in known.split(",") if name]
    listed += [*LOCAL_NAMES, context.address, head, *context.job["nodes"], *context.peers]
    direct = "*" if "*" in listed else ",".join(dict.fromkeys(listed))  # `*` is only valid alone
    if len(direct) > MAX_NO_PROXY:
        direct = direct[:MAX_NO_PROXY].rpartition(",")[0]
    return {"no_proxy": direct, "NO_PROXY": direct}


def preset(context: "NodeContext") -> "Variables":
    """Variables of the preset that depend on the node, without those in `env`. They win over all before."""
    head, port = node_address.split_host_port(context.gcs)
    facts = {
        "rank": str(context.rank),
        "nodes": str(len(context.ray_nodes)),
        "head": head,
        "ray_port": str(port),
        "interface": node_address.find_interface(context.address, context.interfaces),
    }
    return {name: facts[fact] for name, fact in context.settings["preset_env"].items()}


def job(context: "NodeContext") -> "Variables":
    """`NNODES`, `NODE_RANK`, `SLURM_JOB_ID` and other facts about the job. A preset wins for the trainer."""
    of_job, settings = context.job, context.settings
    values = {
        "NNODES": str(settings["trainer"]["nnodes"]),
        "NODE_RANK": str(context.rank),
        "GPUS_PER_NODE": str(settings["ray"]["gpus"]),
        "SLURMRAY_ATTEMPT": str(of_job["attempt"] + of_job["restarts_before"] + of_job["restart"]),
        "SLURMRAY_RESTART": str(of_job["restart"]),
        "SLURMRAY_RUN_DIR": of_job["run_dir"],
        "SLURMRAY_END_TIME": context.end_time,
        "SLURM_JOB_ID": of_job["id"],
        "SLURM_JOB_NAME": of_job["name"],
    }
    array, is_task, task = of_job["name_for_commands"].partition("_")
    if is_task:
        values.update(SLURM_ARRAY_JOB_ID=array, SLURM_ARRAY_TASK_ID=task)
    return values


def ray_address(context: "NodeContext") -> "Variables":
    """`RAY_ADDRESS`, on nodes in Ray, once the cluster is ready. It wins over the job spec."""
    return {"RAY_ADDRESS": context.gcs} if context.is_ready and context.is_in_ray else {}


def master(context: "NodeContext") -> "Variables":
    """`MASTER_ADDR` and `MASTER_PORT`, of the head node. The preset wins over them."""
    return {"MASTER_ADDR": context.address, "MASTER_PORT": str(context.ports[ports.MASTER])}


def gpus_of_service(context: "NodeContext", item: "Dict[str, Any]") -> "Variables":
    """The GPU mask of a service: after those of Ray, in the order of the job spec. Its `env` wins over it."""
    if item["needs_ray"] and not item["gpus"]:
        return {}
    own = context.own_items(context.settings["services"])
    left = sum(service["gpus"] for service in own[own.index(item) :])
    return _visible_gpus(context, context.group["gpus_per_node"] - left, item["gpus"])


def env_of_service(_context: "NodeContext", item: "Dict[str, Any]") -> "Variables":
    """`env` of the service. It wins over all others."""
    return dict(item["env"])


# Layers of which there is nothing before Ray has an address on this node; and those of a service.
LATE = (network, metrics_ports, no_proxy, preset)
OF_SERVICE = (gpus_of_service, env_of_service)

SETUP = (image, python, gpus, user, env_file, env, node_env)
GIVEN = (*SETUP, container_setup)  # by image, user and job spec
# Also of the readiness probe.
RAY = (
    *(network, metrics_ports, image, python, gpus, one_gpu_mask, ray_defaults, user, env_file, env, node_env),
    *(container_setup, gpus_of_ray, no_other_ray, token, no_proxy, preset),
)
RAY_START = (start_timeouts, *RAY)
GPU_CHECK = (*RAY, all_gpus)
ATTACHED = (*RAY, ray_address)
PREPARE = (*RAY, job, ray_address)
SERVICE = (*PREPARE, *OF_SERVICE)  # and its readiness check
# In addition to the host's, or that of the service's own image.
OUTSIDE_SERVICE = (env_file, env, node_env, no_other_ray, job, ray_address, *OF_SERVICE)
# Also of a job of Ray. `preset` again: to ROLL, the numbers and MASTER_ADDR are those of its Ray.
TRAINER = (service_addresses, *RAY, job, ray_address, master, preset)


def auth_variables(path: str) -> "Dict[str, str]":
    """Variables for Ray's token authentication. path: of the token's file; "": no authentication."""
    if not path:
        # Explicit, as the default may differ between head and worker nodes (Ray 2.59 on).
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": path}


def _has_nccl_conf(env: "Mapping[str, str]") -> bool:
    """Whether NCCL's configuration files set the interface; the environment would override them.

    As NCCL 2.32 reads them: the first line that begins so counts, and a single letter is no interface.
    """
    own = env.get("NCCL_CONF_FILE") or os.path.join(env.get("HOME", ""), ".nccl.conf")
    for path in (own, "/etc/nccl.conf"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    name, equals, value = line.rstrip("\r\n").partition("=")
                    if equals and name == "NCCL_SOCKET_IFNAME":
                        return len(value) > 1
        except OSError:
            pass
    return False


def _visible_gpus(context: "NodeContext", first: int, count: int) -> "Dict[str, str]":
    """The variable that limits a process to `count` of the job's GPUs, from `first` on."""
    name = "HIP_VISIBLE_DEVICES" if os.path.exists("/dev/kfd") else "CUDA_VISIBLE_DEVICES"
    # Without a container, Slurm's mask selects the job's GPUs.
    known = context.gpu_masks.get(name) or context.gpu_masks.get("ROCR_VISIBLE_DEVICES", "")
    all_of_job = known.split(",") if known else [str(number) for number in range(first + count)]
    return {name: ",".join(all_of_job[first : first + count])}
