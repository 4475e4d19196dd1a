"""Pulls of images with Podman and Docker, and the early end of those from a registry out of reach.

A pull has no deadline: a large image may take an hour, and a busy registry may need minutes to answer. But
where nothing answers, Podman tries for four minutes. So a pull ends early in two cases:

- Podman says that it could not connect, and wants to try again. It has tried all mirrors by then.
- For 10 s the runtime has printed nothing but that it begins. In the next 10 s no address of the registry
  accepts a connection of ours, and then the runtime is still trying to connect to the registry itself, which
  it does after its mirrors, and not with a proxy. A slow registry accepts connections: its kernel does.

A check of our own before the pull would have to know the mirrors and proxies in registries.conf,
containers.conf and those of Docker's daemon, or end jobs that can pull.
"""

import re
import time

from .. import background_io, hosts
from ..fixes import TRANSIENT, UNREACHABLE
from .image_commands import record_failure, run_with_tmpdir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..hosts import Target
    from .agent_interface import NodeApi
    from .runtime_interface import ImageStore

TRIES = 3
PULLS_PER_SECOND = 4  # started on all nodes together, to spare the registry
QUIET = 10  # seconds without output, after which the log has a line
CONNECT_TIMEOUT = 10  # seconds
# Podman's warning, as a line of logrus or as plain text: containers/common, pkg/retry.
RETRY = re.compile(r"retrying in [^\n]*? Error: ([^\n]*(?:%s))" % UNREACHABLE)
# A line of a pull that the registry has answered. `time=`: a warning of Podman's.
PROGRESS = re.compile(r"^(?!Trying to pull |time=|Error).", re.MULTILINE)


def pull(node: "NodeApi", runtime: "ImageStore", name: str) -> bool:
    """Pull an image, repeatedly after transient errors. Return whether it is there."""
    import random

    jitter = random.SystemRandom()
    node.wait(jitter.random() * (len(node.job["nodes"]) - 1) / PULLS_PER_SECOND)
    for attempt in range(1, TRIES + 1):
        watch = Watch(node, "%s pull %s" % (runtime.program, name), registry(name))
        result = run_with_tmpdir(node, runtime.program, ["pull", name], name, watch.is_hopeless)
        if result.code == 0 and not watch.why:  # Podman ends with 0 after SIGTERM
            return True
        is_unreachable = re.search(UNREACHABLE, result.out) and not PROGRESS.search(result.out)
        result.out = watch.why or result.out
        if attempt == TRIES or watch.why or is_unreachable or not re.search(TRANSIENT, result.out):
            break
        node.wait(attempt * 10 + jitter.random() * 10)
    record_failure(node, runtime.program, "pull", name, result)
    return False


def registry(name: str) -> "List[Target]":
    """The host of an image's registry, with each port at which it may listen. name: with registry."""
    place = name.partition("/")[0]
    host, _, port = place.rpartition(":")
    if not port.isdigit():
        host, port = place, ""
    if host == "docker.io":
        host = "registry-1.docker.io"
    return [(host, host, number) for number in ([int(port)] if port else [443, 80])]


class Watch:
    """Watches a pull. why: why it cannot succeed; "" if it may. what: the command, for the log."""

    def __init__(self, node: "NodeApi", what: str, names: "List[Target]") -> None:
        self.why = ""
        self._node = node
        self._what = what
        self._names = names
        self._no_answer = ""  # set by a thread
        self._due = time.monotonic() + QUIET

    def is_hopeless(self, output: bytearray) -> bool:
        """Whether the pull is to be ended. Called several times a second, with the output so far."""
        text = output.decode("utf-8", "replace")
        if PROGRESS.search(text):
            return False
        retry = RETRY.search(text)
        self.why = retry.group(1).replace('\\"', '"') if retry else self._no_answer
        if time.monotonic() > self._due:
            self._due = float("inf")
            host = self._names[0][0]
            self._node.phase("image", "%s: no answer from %s for %d s" % (self._what, host, QUIET))
            background_io.start("questions to a registry", self._connect)
        return bool(self.why)

    def _connect(self) -> None:
        """Find out whether the runtime itself tries to connect to a registry that accepts no connection."""
        targets = [(host, address, port) for host, _, port in self._names for address in hosts.resolve(host)]
        codes = hosts.connect(targets, CONNECT_TIMEOUT).values()
        if not any(code in hosts.ANSWERS for code in codes) and hosts.is_connecting(targets):
            where = " or ".join("%s:%d" % (host, port) for host, _, port in self._names)
            self._no_answer = "no answer from %s for %d s" % (where, QUIET + CONNECT_TIMEOUT)
