"""Imports Ray early, then reads a request as JSON from stdin and becomes `ray start`.

Role `ray`, with the argument fast or standard. Importing Ray takes a second, on a network file system many; a
worker does so while the head node starts. Standard input: a line with the request, see start.py; its end, at
which the head node's readiness probe begins. Standard output is for messages to the controller. What Ray
prints goes to standard error.

Both wait for the GCS that they start to listen before Ray sends it the token: another user may have taken its
port. Both begin threads once they have started the head node's raylet: the readiness probe, and what watches
Ray's demands. Apart from that, standard is Ray's own `ray start`; see fast_start.py for fast.
"""

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    from ...wire import messages

FAST, STANDARD = "fast", "standard"
NOT_FAST = "ray-start-is-standard"  # file in the job's folder: the reason why fast was not possible
GCS_WAIT = 30.0  # seconds for the GCS to listen; then Ray itself looks for its reason
# Commands of Ray's command line that it does without where they cannot be imported. That takes 0.15 s of CPU.
OTHER_COMMANDS = ("ray.util.state.state_cli", "ray.dashboard.modules.job.cli", "ray.serve.scripts")


def wait_for_own_gcs(port: int) -> None:
    """Return when the GCS listens on its port. Exits if another user's process does."""
    from .. import ports  # here, as no worker needs it

    end = time.monotonic() + GCS_WAIT
    while time.monotonic() < end:
        users = ports.listener_users(port)
        if os.geteuid() in users:
            return
        if users:
            sys.exit("another user's process listens on port %d, the GCS cannot" % port)
        time.sleep(0.01)


def patch_start_process(
    services: "Any", change: "Callable[[List[str], str], List[str]]", then: "Callable[[str], None]"
) -> None:
    """Let Ray change each command with `change` before it starts a process, and call `then` afterwards.

    services: Ray's module that starts processes. Both get the type of the process, e.g. `raylet`.
    """
    start = services.start_ray_process

    def start_ray_process(command: "List[str]", process_type: str, *args: "Any", **options: "Any") -> "Any":
        started = start(change(command, process_type), process_type, *args, **options)
        then(process_type)
        return started

    services.start_ray_process = start_ray_process


def unchanged(command: "List[str]", process_type: str) -> "List[str]":  # noqa: ARG001
    """The command of a process of Ray as Ray gives it."""
    return command


def start_threads(request: "Dict[str, Any]", channel: int) -> None:
    """Start the threads of the head node. channel: descriptor for messages to the controller."""
    from ...wire import codec
    from . import probe

    def send(message: "messages.ToController") -> None:
        os.write(channel, codec.encode_to_controller(message, request["node"]))

    probe.start(request["folder"], request["gcs"], request["expected"], request["timeout"], send)
    if request["watches_demands"]:
        from . import demands

        demands.start(request["gcs"], send)


def main(argv: "List[str]") -> int:
    """Run `ray start`. argv: ["fast"] or ["standard"]."""
    channel = os.dup(1)  # no child gets it
    os.dup2(2, 1)
    for name in OTHER_COMMANDS:
        sys.modules[name] = None  # type: ignore[assignment]
    from ray._private import node, services, utils
    from ray.experimental import internal_kv
    from ray.scripts import scripts

    from . import fast_start

    lacking = STANDARD
    if argv == [FAST]:
        lacking = fast_start.missing_internal(services, node, internal_kv, utils)
    agent_port = not lacking and fast_start.takes_agent_port(
        os.path.dirname(os.path.dirname(scripts.__file__))
    )
    request = json.loads(sys.stdin.readline())
    sys.argv = request["argv"]
    os.environ.update(request["env"])
    folder, is_head = request["folder"], "--head" in sys.argv
    if not any(argument.startswith("--ray-client-server-port") for argument in sys.argv):
        # Without the option, a head node with grpc starts the server for Ray Client at port 10001: a process
        # and a port that no trainer needs. No option turns it off.
        scripts.get_ray_client_dependency_error = lambda: "disabled by slurmray"

    def then(process_type: str) -> None:
        if process_type == "gcs_server":
            wait_for_own_gcs(int(request["gcs"].rpartition(":")[2]))
        elif process_type == "raylet" and is_head:
            # Not before: processes that Ray starts are forks, in which no other thread may hold a lock.
            start_threads(request, channel)

    change = unchanged
    if not lacking:
        fast_start.find_optional_packages(utils)
        commands = fast_start.Commands(folder, agent_port, request["may_wait"])
        change = commands.change
        if "--enable-resource-isolation" not in sys.argv:  # with it the raylet needs the dashboard first
            fast_start.start_raylet_early(node.Node, internal_kv, lambda: commands.dashboard_url)
        started = os.path.join(folder, fast_start.STARTED)
        fast_start.call_after_start(node.Node, lambda: open(started, "w").close())
    elif argv == [FAST]:
        from ... import paths

        paths.replace(os.path.join(folder, NOT_FAST), lacking.encode())
    patch_start_process(services, change, then)
    scripts.main()
    return 0
