"""Whether the nodes reach each other: the head each worker, and each worker the head."""

import contextlib
import os
import socket
import threading

import network

DOOR = 10  # place in a leased block of ports, after those of ray_start.py
KNOCK_TIMEOUT = 5.0  # seconds for the head to reach a worker, and the other way round


def knock(who, address, port, say):
    """Looks, in the background, whether this node reaches another one. say: takes the fields of a row."""

    def try_it():
        if not network.is_open(address, port, KNOCK_TIMEOUT):
            found = f"cannot reach {who} at {network.host_port(address, port)}"
            say("connection", found, "a connection", "open its firewall, or set network.interface")

    threading.Thread(target=try_it, daemon=True).start()


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
