"""`ray start`, told late what to do: on its standard input, in JSON, its words and more of its environment.

To import Ray takes a second, on a network file system many. A worker does so while the head gets ready. And
two things that Ray itself would wait for, and need not.
"""

import json
import os
import re
import subprocess
import sys

# A file that is there when `ray start` has started everything and looks after it: on the head, when the
# dashboard answers or has failed.
STARTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "started")


def wants_agent_port(package):
    """Whether the raylet of this Ray takes the port of its dashboard agent; `ray start` does not tell it.

    Such a raylet (2.54 on), where it is not told, waits for a file of the agent before it joins, and dies
    when the agent is not there in 15 seconds (ray-project/ray#65983). package: the folder of Ray.
    """
    words = [os.path.join(package, "core", "src", "ray", "raylet", "raylet"), "--help"]
    try:
        said = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False).stdout
    except OSError:
        return False
    return b"-dashboard_agent_listen_port" in said


def tell_the_raylet(services):
    """Has a raylet told where its dashboard agent will listen.

    services: the module of Ray that starts its processes. The port is that in the words of the agent.
    """
    start = services.start_ray_process

    def start_ray_process(command, *args, **options):
        port = re.search(r" --listen-port=(\d+)", " ".join(command))
        more = [f"--dashboard_agent_listen_port={port[1]}"] if port else []
        return start([*command, *more], *args, **options)

    services.start_ray_process = start_ray_process


def start_the_raylet_early(node, kv):
    """Has a head start its raylet when its dashboard is being started, not when that answers.

    node: the class of Ray that starts one after the other. In between it asks kv, the module of Ray for what
    the GCS keeps, for the address of the dashboard, until that is there. Both may fail as they would anyway.
    """
    start_dashboard, start_raylet, get = node.start_api_server, node.start_ray_processes, kv._internal_kv_get
    failures = []  # once the raylet is started: None, or why it was not

    def start_ray_processes(self):
        if not failures:
            try:
                start_raylet(self)
                failures.append(None)
            except Exception as error:
                failures.append(error)
        if failures[0]:
            raise failures[0]

    def start_api_server(self, **options):
        def get_after_start(*key, **namespace):
            kv._internal_kv_get = get
            start_ray_processes(self)
            return get(*key, **namespace)

        kv._internal_kv_get = get_after_start
        start_dashboard(self, **options)
        kv._internal_kv_get = get

    node.start_api_server, node.start_ray_processes = start_api_server, start_ray_processes


def tell_when_started(node):
    """Has STARTED written when everything is. node: the class of Ray that is made for that."""
    start = node.__init__

    def init(self, *args, **options):
        start(self, *args, **options)
        open(STARTED, "w").close()

    node.__init__ = init


def main():
    """See the text of the module."""
    import ray.scripts.scripts as ray
    from ray._private import node, services
    from ray.experimental import internal_kv

    if wants_agent_port(os.path.dirname(os.path.dirname(ray.__file__))):
        tell_the_raylet(services)
    sys.argv, env = json.load(sys.stdin)
    os.environ.update(env)
    if not any(word.startswith("--ray-client-server-port") for word in sys.argv):
        # Without a port for Ray Client, a head would take 10001 unless it believes that there is none.
        ray.get_ray_client_dependency_error = lambda: "not asked for"
    known = hasattr(node.Node, "start_api_server") and hasattr(node.Node, "start_ray_processes")
    if known and "--enable-resource-isolation" not in sys.argv:  # with it a raylet needs the dashboard first
        start_the_raylet_early(node.Node, internal_kv)
    tell_when_started(node.Node)
    ray.main()


if __name__ == "__main__":
    sys.path.pop(0)  # the programs beside this one have names that others may import
    main()
