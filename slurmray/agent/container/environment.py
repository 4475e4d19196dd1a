"""The environment of everything that runs in the container, by the machine and the job's share of it.

All of it is a default: what the job spec sets in `env` and what the image sets wins.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Tuple

    from .ray.network import Address

MAX_THREADS = 16  # more threads of OpenMP for each GPU have not been seen to help
MAX_NO_PROXY = 100000  # characters; Linux takes 128 KiB for a variable (MAX_ARG_STRLEN)
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def default_environment(user: str, cpus: int, gpus: int, folder: str) -> "Dict[str, str]":
    """Variables for a user without an entry in /etc/passwd, and for a fair share of the CPUs.

    cpus, gpus: of the job on this node. folder: serves as the home where that of the image is not writable,
    e.g. when Docker runs it as the submitter; Triton, Inductor, vLLM and others cache below it.
    """
    env = {"USER": user, "LOGNAME": user}
    # Left to themselves, the libraries of each worker take all CPUs of the host.
    env["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(threads_per_gpu(cpus, gpus)))
    if not os.access(os.environ.get("HOME", ""), os.W_OK):
        env["HOME"] = folder
    return env


def threads_per_gpu(cpus: int, gpus: int) -> int:
    """The CPUs that each GPU has, at most MAX_THREADS."""
    return min(MAX_THREADS, max(1, cpus // max(1, gpus)))


def network_environment(
    env: "Mapping[str, str]", address: str, peers: "List[str]", local: "List[Tuple[str, Address]]"
) -> "Dict[str, str]":
    """Variables that depend on the address of this node.

    env: as known until now. peers: names and addresses of nodes, never to be reached through a proxy. local:
    what network.local_addresses() returns.
    """
    found = {"VLLM_HOST_IP": address}
    interface = next((name for name, known in local if str(known) == address), "")
    if interface:  # left to themselves, both may take a bridge of Docker or the loopback
        found.update(NCCL_SOCKET_IFNAME=interface, GLOO_SOCKET_IFNAME=interface)
    found = {name: env.get(name, value) for name, value in found.items()}
    if any(env.get(name) or env.get(name.upper()) for name in PROXIES):
        known = env.get("no_proxy", "") + "," + env.get("NO_PROXY", "")
        listed = [name for name in known.split(",") if name] + [*LOCAL_NAMES, address, *peers]
        direct = "*" if "*" in listed else ",".join(dict.fromkeys(listed))  # `*` means all only when alone
        if len(direct) > MAX_NO_PROXY:
            direct = direct[:MAX_NO_PROXY].rpartition(",")[0]
        found.update(no_proxy=direct, NO_PROXY=direct)
    return found


def visible_gpus(first: int, count: int) -> "Dict[str, str]":
    """The variable with which a process sees only so many GPUs of this node."""
    name = "HIP_VISIBLE_DEVICES" if os.path.exists("/dev/kfd") else "CUDA_VISIBLE_DEVICES"
    # Where no container hides other GPUs, Slurm's mask does.
    known = os.environ.get(name) or os.environ.get("ROCR_VISIBLE_DEVICES", "")
    gpus = known.split(",") if known else [str(number) for number in range(first + count)]
    return {name: ",".join(gpus[first : first + count])}


def export_lines(env: "Mapping[str, str]") -> str:
    """Lines for a POSIX shell that set these variables."""
    import shlex

    return "".join("export %s=%s\n" % (name, shlex.quote(value)) for name, value in env.items())


def restore_search_path() -> None:
    """Give this process, if started with -I, the places where other Pythons of this container find packages.

    They come after the standard library, which nothing may replace here, and before the other packages, as
    usual.
    """
    if not sys.flags.isolated:
        return
    import site

    more = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    user = site.getusersitepackages()
    if not os.environ.get("PYTHONNOUSERSITE") and os.path.isdir(user):
        more.append(user)
    places = [index for index, path in enumerate(sys.path) if path.endswith("-packages")]
    index = places[0] if places else len(sys.path)
    sys.path[index:index] = [path for path in more if path not in sys.path]
