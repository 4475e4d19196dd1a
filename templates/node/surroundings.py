"""What Ray and the trainer are told of the machine they are on, and how much of it they may take.

Everything here is a default: what the job spec sets in `env`, and what the image sets, stays as it is.
"""

import os
import shlex

import network

THREADS_MAX = 16  # more threads of OpenMP for each GPU have not been seen to help
OBJECT_STORE_MIN = 75 * 2**20  # with less Ray refuses to start (OBJECT_STORE_MINIMUM_MEMORY_BYTES)
OBJECT_STORE_MAX = 200 * 10**9  # where the default of Ray ends, too (DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES)
NO_PROXY_MAX = 100_000  # characters; Linux takes 128 KiB for a variable (MAX_ARG_STRLEN)
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL = ("localhost", "127.0.0.1", "::1")


def defaults(user, cpus, gpus, temp_dir):
    """Variables for a user without an entry in /etc/passwd, and for a fair share of the CPUs.

    cpus, gpus: of the job on this node. temp_dir: serves as the home where that of the image is not to be
    written to, as when Docker runs it as the submitter; Triton, Inductor, vLLM and others cache below it.
    """
    env = {"USER": user, "LOGNAME": user}
    # Left to themselves, the libraries of each worker take all CPUs of the host.
    env["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(threads(cpus, gpus)))
    if not os.access(os.environ.get("HOME", ""), os.W_OK):
        env["HOME"] = temp_dir
    return env


def exports(env):
    """Lines for a shell that set these variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())


def threads(cpus, gpus):
    """The CPUs that each GPU has."""
    return min(THREADS_MAX, max(1, cpus // max(1, gpus)))


def object_store(memory, shm="/dev/shm"):  # noqa: S108 - where Ray keeps it
    """Bytes for the object store of Ray, which would go by the memory of the whole host.

    memory: what the job has on this node, MiB; 0: not known, then it is that of the host.
    """
    total = memory * 2**20 or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs(shm)
    room = disk.f_bavail * disk.f_frsize
    return max(OBJECT_STORE_MIN, min(total * 3 // 10, room * 9 // 10, OBJECT_STORE_MAX))


def network_environment(env, address, peers, local):
    """Variables that go by the address of this node.

    env: as known until now. peers: names and addresses of nodes, never to be reached through a proxy.
    local: as network.local_addresses() gives it.
    """
    told = {"VLLM_HOST_IP": address}
    interface = network.interface_of(address, local)
    if interface:  # left to themselves, both may take a bridge of Docker or the loopback
        told.update(NCCL_SOCKET_IFNAME=interface, GLOO_SOCKET_IFNAME=interface)
    told = {name: env.get(name, value) for name, value in told.items()}
    if any(env.get(name) or env.get(name.upper()) for name in PROXIES):
        known = env.get("no_proxy", "") + "," + env.get("NO_PROXY", "")
        listed = [word for word in known.split(",") if word] + [*LOCAL, address, *peers]
        direct = "*" if "*" in listed else ",".join(dict.fromkeys(listed))  # `*` means all only when alone
        if len(direct) > NO_PROXY_MAX:
            direct = direct[:NO_PROXY_MAX].rpartition(",")[0]
        told.update(no_proxy=direct, NO_PROXY=direct)
    return told
