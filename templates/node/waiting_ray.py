"""`ray start`, told late what to do: on its standard input, in JSON, its words and more of its environment.

To import Ray takes a second, on a network file system many. A worker does so while the head gets ready.
"""

import json
import os
import re
import sys


def tell_the_raylet(services):
    """Has a raylet told where its dashboard agent will listen: see `wants_agent_port` in ray_start.py.

    services: the module of Ray that starts its processes. The port is that in the words of the agent.
    """
    start = services.start_ray_process

    def start_ray_process(command, *args, **options):
        port = re.search(r" --listen-port=(\d+)", " ".join(command))
        more = [f"--dashboard_agent_listen_port={port[1]}"] if port else []
        return start([*command, *more], *args, **options)

    services.start_ray_process = start_ray_process


if __name__ == "__main__":
    sys.path.pop(0)  # the programs beside this one have names that others may import
    import ray.scripts.scripts as ray

    sys.argv, env, wants_agent_port = json.load(sys.stdin)
    os.environ.update(env)
    if not any(word.startswith("--ray-client-server-port") for word in sys.argv):
        # Without a port for Ray Client, a head would take 10001 unless it believes that there is none.
        ray.get_ray_client_dependency_error = lambda: "not asked for"
    if wants_agent_port:
        from ray._private import services

        tell_the_raylet(services)
    ray.main()
