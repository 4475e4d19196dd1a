"""What a node is checked for in its container: findings for the table in the log of the job."""

import contextlib
import os
import platform
import resource
import socket
import threading

import network

FILES_WANTED = 65535  # open files; Ray opens several for each worker process
FILES_NEEDED = 8192  # with fewer, large trainers have been seen to fail
DOOR = 10  # place in a leased block of ports, after those of ray_start.py
KNOCK_TIMEOUT = 5.0  # seconds for the head to reach a worker, and the other way round


def raise_limits():
    """Sets the soft limit of open files to what Ray may need, as far as the hard limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limits():
    """Rows (check, found, wanted, remedy) for limits that are lower than a trainer may need."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < FILES_NEEDED:
        yield "open files", f"at most {hard}", FILES_WANTED, "container.ulimits: [nofile=65535:65535]"
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if os.path.isdir("/dev/infiniband") and locked != resource.RLIM_INFINITY:
        remedy = "container.ulimits: [memlock=-1:-1]"
        yield "locked memory", f"{locked} bytes", "no limit, for InfiniBand", remedy


def versions(ray):
    """What must be the same on all nodes. ray: its version as a text."""
    return f"Ray {ray}, Python {platform.python_version()}"


def reaches_head(cluster, say):
    """Looks, in the background, whether this worker reaches the GCS. say: takes the fields of a row."""
    host, _, port = cluster.rpartition(":")

    def knock():
        if not network.is_open(host.strip("[]"), int(port), KNOCK_TIMEOUT):
            found = f"cannot reach the head at {cluster}"
            say("connection", found, "a connection", "open its firewall, or set network.interface")

    threading.Thread(target=knock, daemon=True).start()


def open_door(address, port):
    """Lets the head try, once, whether it reaches this worker at that port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    os.set_inheritable(door.fileno(), False)
    door.settimeout(60)
    door.bind((address, port))
    door.listen(1)

    def answer():
        with contextlib.suppress(OSError), door:
            door.accept()[0].close()

    threading.Thread(target=answer, daemon=True).start()


def reaches_worker(place, say):
    """Looks, in the background, whether the head reaches a worker. place: `NODE ADDRESS PORT`."""
    node, address, port = place.split(" ")

    def knock():
        if not network.is_open(address, int(port), KNOCK_TIMEOUT):
            found = f"cannot reach {node} at {network.host_port(address, port)}"
            say("connection", found, "a connection", "open its firewall, or set network.interface")

    threading.Thread(target=knock, daemon=True).start()
