"""Imports Ray early, then reads argv and environment as JSON from stdin and becomes `ray start`.

Role `ray`, with the argument fast or plain. Importing Ray takes a second, on a network file system many; a
worker does so while the head node starts. Standard input: {"argv": [...], "env": {...}, "folder": FOLDER,
"gcs": ADDRESS, "node": NAME}. Where there is a NAME, a thread watches Ray's demands: see demands.py. Standard
output is for its messages; what Ray prints goes to standard error.

Both wait for the GCS that they start to listen before Ray sends it the token: another user may have taken its
port. plain: apart from that Ray's own `ray start`. fast removes two waits from it and adds a file:
- the raylet of the head node starts while the dashboard starts, not afterwards;
- a raylet gets its dashboard agent's port as an option and does not wait for its file (Ray 2.54 on);
- the file STARTED in FOLDER appears when everything has been started.

`ray.init().dashboard_url` is right with both. Ray publishes the dashboard's address when the dashboard
answers. That may be after the start of the trainer, so fast publishes it before it starts the raylet.
"""

import json
import os
import re
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, List, Tuple

FAST, PLAIN = "fast", "plain"
TESTED = ((2, 44), (2, 52), (2, 60))  # versions of Ray for which fast is used
# File in the job's folder: all has been started; on the head node, the dashboard answers or has failed.
STARTED = "ray-started"
NOT_FAST = "ray-start-is-plain"  # file in the job's folder: the reason why fast was not possible
GCS_WAIT = 30.0  # seconds for the GCS to listen; then Ray itself looks for its reason
WEBUI_URL = "webui:url"  # key of the dashboard's address in the GCS, read by drivers


def reason_for_plain(start: str, text: str, version: "Tuple[int, ...]") -> str:
    """The reason to use Ray's own start; "" for fast. start: `ray.start`. text, version: of this Ray."""
    if start == PLAIN:
        return "ray.start is plain"
    if version not in TESTED:
        tested = ", ".join("%d.%d" % release for release in TESTED)
        return "ray.start: fast was tested with Ray %s, this is %s" % (tested, text)
    return ""


def missing_internal(services: "ModuleType", node: "ModuleType", kv: "ModuleType") -> str:
    """The first of Ray's internals used by fast that is missing or has changed; "" if none."""
    import inspect

    # Its first arguments, which others may follow; its only ones; or some of them, as keywords.
    wanted = [
        (services, "start_ray_process", "first", "command process_type"),
        (node, "Node.__init__", "first", "self ray_params head"),
        (node, "Node.start_api_server", "some", "self include_dashboard"),
        (node, "Node.start_ray_processes", "only", "self"),
        (kv, "_internal_kv_get", "some", "key namespace"),
        (kv, "_internal_kv_put", "some", "key value overwrite namespace"),
        (kv, "_internal_kv_del", "some", "key namespace"),
    ]
    for module, path, which, names in wanted:
        member: "Any" = module
        for part in path.split("."):
            member = getattr(member, part, None) if member else None
        name = "%s.%s" % (getattr(module, "__name__", "ray"), path)
        if not callable(member):
            return "this Ray has no " + name
        needed, given = names.split(), list(inspect.signature(member).parameters)
        begin = given[: len(needed)] if which == "first" else given
        if not (set(needed) <= set(given) if which == "some" else begin == needed):
            return "%s takes other arguments in this Ray" % name
    return ""


def takes_agent_port(package: str) -> bool:
    """Whether this raylet has an option for its dashboard agent's port, which `ray start` does not set.

    Without it, such a raylet (Ray 2.54 on) waits for the agent's file before it joins, and exits after 15
    seconds (ray-project/ray#65983). package: the folder of Ray.
    """
    argv = [os.path.join(package, "core", "src", "ray", "raylet", "raylet"), "--help"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    except OSError:
        return False
    return b"-dashboard_agent_listen_port" in done.stdout


def dashboard_url(command: "List[str]") -> str:
    """The address that Ray will publish for the dashboard; "" if unknown. command: argv of the dashboard."""
    options = dict(argument[2:].partition("=")[::2] for argument in command if argument.startswith("--"))
    host, port = options.get("host", ""), options.get("port", "")
    if "minimal" in options or "disable-frontend" in options or options.get("port-retries") != "0":
        return ""
    if not port.isdigit() or host in ("", "localhost", "::1"):  # versions of Ray differ on these hosts
        return ""
    # Unless it listens on the loopback, Ray publishes it with the node's address.
    address = host if host == "127.0.0.1" else options.get("node-ip-address", "")
    return ("[%s]:%s" if ":" in address else "%s:%s") % (address, port) if address else ""


def wait_for_own_gcs(services: "Any", port: int) -> None:
    """Let Ray continue after the start of the GCS only when that listens on its port.

    Exits if another user's process does. services: Ray's module that starts processes. port: of the GCS.
    """
    from .. import ports  # here, as no worker needs it

    start = services.start_ray_process

    def start_ray_process(command: "List[str]", process_type: str, *args: "Any", **options: "Any") -> "Any":
        started = start(command, process_type, *args, **options)
        end = time.monotonic() + GCS_WAIT
        while process_type == "gcs_server" and time.monotonic() < end:
            users = ports.listener_users(port)
            if os.geteuid() in users:
                break
            if users:
                sys.exit("another user's process listens on port %d, the GCS cannot" % port)
            time.sleep(0.01)
        return started

    services.start_ray_process = start_ray_process


def patch_start_process(services: "Any", agent_port: bool) -> "Callable[[], str]":
    """Pass the dashboard agent's port to the raylet, with agent_port. services: as in wait_for_own_gcs().

    Returns a function for the dashboard's address, "" before Ray starts it.
    """
    start, url = services.start_ray_process, ""

    def start_ray_process(command: "List[str]", process_type: str, *args: "Any", **options: "Any") -> "Any":
        nonlocal url
        if process_type == "dashboard":
            url = dashboard_url(command)
        port = re.search(r" --listen-port=(\d+)", " ".join(command)) if agent_port else None
        if port:
            command = [*command, "--dashboard_agent_listen_port=" + port.group(1)]
        return start(command, process_type, *args, **options)

    services.start_ray_process = start_ray_process
    return lambda: url


def start_raylet_early(node_class: "Any", kv: "Any", find_url: "Callable[[], str]") -> None:
    """Start the head node's raylet while the dashboard starts.

    Ray starts the dashboard first and polls the GCS for its address; the raylet starts at the first poll.
    Errors of both are raised as usual. kv: Ray's module for values in the GCS. find_url: returns the address.
    """
    start_dashboard, start_raylet = node_class.start_api_server, node_class.start_ray_processes
    get = kv._internal_kv_get
    results: "List[Any]" = []  # after the start of the raylet: None or its error

    def start_ray_processes(node: "Any") -> None:
        if not results:
            try:
                start_raylet(node)
                results.append(None)
            except Exception as error:
                results.append(error)
        if results[0]:
            raise results[0]

    def start_api_server(node: "Any", **options: "Any") -> None:
        published: "Dict[str, Any]" = {}

        def get_after_start(*key: "Any", **namespace: "Any") -> "Any":
            kv._internal_kv_get = get
            if find_url():
                published.update(namespace)
                kv._internal_kv_put(WEBUI_URL, find_url(), True, **namespace)
                node._webui_url = find_url()  # the raylet passes it to its workers
            start_ray_processes(node)
            return get(*key, **namespace)

        kv._internal_kv_get = get_after_start
        start_dashboard(node, **options)
        kv._internal_kv_get = get
        if published and not node._webui_url:  # the dashboard has failed, and Ray only logs that
            kv._internal_kv_del(WEBUI_URL, **published)

    node_class.start_api_server, node_class.start_ray_processes = start_api_server, start_ray_processes


def call_after_start(node_class: "Any", call: "Callable[[], None]") -> None:
    """Call a function when everything has been started."""
    start = node_class.__init__

    def init(node: "Any", *args: "Any", **options: "Any") -> None:
        start(node, *args, **options)
        call()

    node_class.__init__ = init


def main(argv: "List[str]") -> int:
    """Run `ray start`. argv: ["fast"] or ["plain"]."""
    channel = os.dup(1)  # no child gets it
    os.dup2(2, 1)
    from ray._private import node, services
    from ray.experimental import internal_kv
    from ray.scripts import scripts

    lacking = missing_internal(services, node, internal_kv) if argv == [FAST] else "plain"
    agent_port = not lacking and takes_agent_port(os.path.dirname(os.path.dirname(scripts.__file__)))
    request = json.load(sys.stdin)
    sys.argv = request["argv"]
    os.environ.update(request["env"])
    if not any(argument.startswith("--ray-client-server-port") for argument in sys.argv):
        # Without the option, a head node with grpc starts the server for Ray Client at port 10001: a process
        # and a port that no trainer needs. No option turns it off.
        scripts.get_ray_client_dependency_error = lambda: "disabled by slurmray"
    if "--head" in sys.argv:
        port = next(argument.partition("=")[2] for argument in sys.argv if argument.startswith("--port="))
        wait_for_own_gcs(services, int(port))
    if not lacking:
        find_url = patch_start_process(services, agent_port)
        if "--enable-resource-isolation" not in sys.argv:  # with it the raylet needs the dashboard first
            start_raylet_early(node.Node, internal_kv, find_url)
        started = os.path.join(request["folder"], STARTED)
        call_after_start(node.Node, lambda: open(started, "w").close())
    elif argv == [FAST]:
        from ... import paths

        paths.replace(os.path.join(request["folder"], NOT_FAST), lacking.encode())
    if request["node"]:
        from . import demands

        # Not before: processes that Ray starts are forks, in which no other thread may hold a lock.
        call_after_start(node.Node, lambda: demands.start(request["node"], request["gcs"], channel))
    scripts.main()
    return 0
