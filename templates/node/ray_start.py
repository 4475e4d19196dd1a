"""The `ray start` command line of one node, by the Ray version in the image."""

import importlib.metadata
import importlib.util
import re

import network

IPV6_SINCE = (2, 49)  # the release notes of Ray
CLIENT_IPV6_SINCE = (2, 56)  # before, the server for Ray Client fails on IPv6, and the head with it
WORKER_TEMP_DIR_SINCE = (2, 55)  # before, --temp-dir was for the head only and workers took over its path

# Places in a leased block of ports.
GCS, CLIENT, DASHBOARD, MASTER = range(4)  # the head alone uses these
NODE_MANAGER, OBJECT_MANAGER, AGENT, AGENT_GRPC, RUNTIME_ENV, METRICS = range(4, 10)
DASHBOARD_METRICS, AUTOSCALER_METRICS = 11, 12  # the head alone; 10 is the DOOR of preflight.py


def ray_version():
    """(text, (major, minor)) of the Ray that this Python would import; None where there is none."""
    try:
        text = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return None
    return text, tuple(int(number) for number in re.findall(r"\d+", text)[:2])


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
