"""`ray.start: fast`: changes to Ray's start on a node, where its internals are as in the tested versions.

- The raylet of the head node starts while the dashboard starts, not afterwards.
- A raylet gets its dashboard agent's port as an option and does not wait for its file (Ray 2.54 on).
- A raylet starts one worker process beforehand, not one for each CPU; others start when they are needed.
- Processes that nobody waits for start later: see PROGRAM.
- What the dashboard needs is looked for, not imported.
- The file STARTED in the job's folder appears when everything has been started.

`ray.init().dashboard_url` is right. Ray publishes the dashboard's address when the dashboard answers. That is
after the start of the trainer, so it is published before the raylet starts.
"""

import importlib.util
import os
import re
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, List, Tuple

TESTED = ((2, 44), (2, 52), (2, 60))  # versions of Ray
# File in the job's folder: all has been started; on the head node, the dashboard answers or has failed.
STARTED = "ray-started"
WEBUI_URL = "webui:url"  # key of the dashboard's address in the GCS, read by drivers
# What ray/dashboard/optional_deps.py imports, which takes 0.2 s of CPU on each node.
OPTIONAL = (
    *("aiohttp", "aiohttp_cors", "grpc", "opencensus", "opentelemetry.exporter.prometheus"),
    *("opentelemetry.proto", "prometheus_client", "pydantic"),
)
START_LATER = "start-later"  # program in the job's folder
READY = "ray-ready"  # file in the job's folder: the cluster is ready
# $1: READY. $2: seconds after it. $3: nice value. Then a command. READY is awaited for 15 seconds: a raylet
# waits for 30 until its agents answer, and has no metrics after that.
PROGRAM = """ready=$1 seconds=$2 nice=$3; shift 3
for _ in $(seq 75); do [ ! -e "$ready" ] || break; sleep 0.2; done
sleep "$seconds"
exec nice -n "$nice" "$@"
"""
WHEN_READY = ("0", "0")  # $2 and $3 for what tasks need: their output, runtime environments
LATER = ("5", "10")  # for what only people look at


def reason_against(version: "Tuple[int, ...]", text: str) -> str:
    """Why this version of Ray has its own start; "" if it has the fast one. text: the version's."""
    if version in TESTED:
        return ""
    tested = ", ".join("%d.%d" % release for release in TESTED)
    return "ray.start: fast was tested with Ray %s, this is %s" % (tested, text)


def missing_internal(
    services: "ModuleType", node: "ModuleType", kv: "ModuleType", utils: "ModuleType"
) -> str:
    """The first of Ray's internals used here that is missing or has changed; "" if none."""
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
        (utils, "get_dashboard_dependency_error", "only", ""),
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


class Commands:
    """Changes the command lines of Ray's processes.

    folder: of the job. agent_port: see takes_agent_port(). may_wait: whether processes may start later.
    """

    def __init__(self, folder: str, agent_port: bool, may_wait: bool) -> None:
        self._folder = folder
        self._agent_port = agent_port
        self._may_wait = may_wait
        self.dashboard_url = ""  # its address, once Ray starts it
        with open(os.path.join(folder, START_LATER), "w") as file:
            file.write(PROGRAM)

    def change(self, command: "List[str]", process_type: str) -> "List[str]":
        """The command line to use for a process of Ray."""
        if process_type == "dashboard":
            self.dashboard_url = dashboard_url(command)
            # Without an address to publish, the trainer's `ray.init` waits for the dashboard.
            return self._later(command, LATER) if self.dashboard_url else command
        if process_type == "monitor":
            return self._later(command, LATER)
        if process_type == "log_monitor":
            return self._later(command, WHEN_READY)
        return self._change_raylet(command) if process_type == "raylet" else command

    def _change_raylet(self, command: "List[str]") -> "List[str]":
        port = re.search(r" --listen-port=(\d+)", " ".join(command))
        changed = []
        for argument in command:
            name, equals, value = argument.partition("=")
            if name == "--dashboard_agent_command" and value:
                value = self._prefix(LATER) + value
            elif name == "--runtime_env_agent_command" and value:
                value = self._prefix(WHEN_READY) + value
            elif name == "--num_prestart_python_workers":
                value = "1"
            changed.append(name + equals + value)
        if self._agent_port and port:
            changed.append("--dashboard_agent_listen_port=" + port.group(1))
        return changed

    def _later(self, command: "List[str]", when: "Tuple[str, str]") -> "List[str]":
        program, ready = (os.path.join(self._folder, name) for name in (START_LATER, READY))
        return ["sh", program, ready, *when, *command] if self._may_wait else command

    def _prefix(self, when: "Tuple[str, str]") -> str:
        return "".join(each + " " for each in self._later([], when))


def find_optional_packages(utils: "Any") -> None:
    """Let Ray look for the packages of its dashboard. It imports them only if one is missing, for the error.

    utils: Ray's module with that check.
    """
    check = utils.get_dashboard_dependency_error

    def get_dashboard_dependency_error() -> "Any":
        try:
            if all(map(importlib.util.find_spec, OPTIONAL)):
                return None
        except ImportError:  # of the package that one is in
            pass
        return check()

    utils.get_dashboard_dependency_error = get_dashboard_dependency_error


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
