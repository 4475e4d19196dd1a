"""Default environment variables in the container, derived from the host and the job's share of it.

`env` of the job spec and the environment of the image have priority.
"""

import os
import sys

from .ray import network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Tuple

    from .ray.network import Address

MAX_NO_PROXY = 100000  # characters; a variable can have 128 KiB on Linux (MAX_ARG_STRLEN)
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def default_environment(user: str, folder: str) -> "Dict[str, str]":
    """USER, LOGNAME and HOME, as the user may not be in /etc/passwd.

    folder: for HOME where the image's is not writable, e.g. when Docker runs it as the submitter. Triton,
    Inductor, vLLM and others have their caches there.
    """
    # No OMP_NUM_THREADS: Ray sets it to the num_cpus of each task, but only where its workers do not inherit
    # one (set_omp_num_threads_if_unset() in ray/_private/utils.py). The trainer and services, which run once,
    # may use all CPUs that Slurm lets them use, which is OpenMP's default.
    env = {"USER": user, "LOGNAME": user}
    if not os.access(os.environ.get("HOME", ""), os.W_OK):
        env["HOME"] = folder
    return env


def network_environment(
    env: "Mapping[str, str]", address: str, peers: "List[str]", local: "List[Tuple[str, Address]]"
) -> "Dict[str, str]":
    """Variables that depend on the address of this node.

    env: the environment so far, which has priority. peers: names and addresses of nodes, for no_proxy.
    local: as returned by network.local_addresses().
    """
    found = {"VLLM_HOST_IP": address}
    interface = network.interface_of(address, local)
    if interface:  # by default, Gloo may choose a bridge of Docker or the loopback
        found["GLOO_SOCKET_IFNAME"] = interface
        if not (network.does_nccl_find(interface, local) or _sets_nccl_conf("NCCL_SOCKET_IFNAME")):
            found["NCCL_SOCKET_IFNAME"] = "=" + interface  # without `=`, eth1 would stand for eth10, too
    found = {name: env.get(name, value) for name, value in found.items()}
    if any(env.get(name) or env.get(name.upper()) for name in PROXIES):
        known = env.get("no_proxy", "") + "," + env.get("NO_PROXY", "")
        listed = [name for name in known.split(",") if name] + [*LOCAL_NAMES, address, *peers]
        direct = "*" if "*" in listed else ",".join(dict.fromkeys(listed))  # `*` is only valid alone
        if len(direct) > MAX_NO_PROXY:
            direct = direct[:MAX_NO_PROXY].rpartition(",")[0]
        found.update(no_proxy=direct, NO_PROXY=direct)
    return found


def _sets_nccl_conf(name: str, path: str = "/etc/nccl.conf") -> bool:
    """Whether NCCL's configuration file sets a variable, which the environment would override."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return any(line.partition("=")[0].strip() == name for line in file)
    except OSError:
        return False


def visible_gpus(first: int, count: int) -> "Dict[str, str]":
    """The variable that limits a process to `count` of the job's GPUs, from `first` on."""
    name = "HIP_VISIBLE_DEVICES" if os.path.exists("/dev/kfd") else "CUDA_VISIBLE_DEVICES"
    # Without a container, Slurm's mask selects the job's GPUs.
    known = os.environ.get(name) or os.environ.get("ROCR_VISIBLE_DEVICES", "")
    gpus = known.split(",") if known else [str(number) for number in range(first + count)]
    return {name: ",".join(gpus[first : first + count])}


def export_lines(env: "Mapping[str, str]") -> str:
    """POSIX shell commands that export these variables."""
    import shlex

    return "".join("export %s=%s\n" % (name, shlex.quote(value)) for name, value in env.items())


def restore_search_path() -> None:
    """Add PYTHONPATH and the user's packages to sys.path, which -I leaves out.

    They come after the standard library, so that they cannot replace its modules, and before site-packages.
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
