"""The program `ray` in the job's folder: Ray's command line for users who attach to the cluster from outside.

`podman exec` and `docker exec` have only the image's environment, without the cluster's address and token and
`env` of the job spec. This program sets them.
"""

import os
import sys

from .. import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping

# Does not search modules in the current folder, and needs no `ray` in PATH.
PROGRAM = """
import sys
del sys.path[0]
from ray.scripts.scripts import main
sys.argv[0] = "ray"
main()
"""
SCRIPT = """#!/bin/sh
%sexec %s -c %s "$@"
"""


def write_ray_command(path: str, env: "Mapping[str, str]") -> None:
    """Write the program, readable by its owner alone. env: the environment it sets."""
    import shlex

    given = os.environ if os.getpid() == 1 else {}  # what the container gives to each `exec`
    # isidentifier: not functions that bash has exported.
    new = {name: env[name] for name in sorted(env) if given.get(name) != env[name] and name.isidentifier()}
    text = SCRIPT % (environment.export_lines(new), shlex.quote(sys.executable), shlex.quote(PROGRAM))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:
        file.write(os.fsencode(text))


def attach_command(job: str, node: str, exec_prefix: "List[str]", path: str) -> str:
    """The command that runs the program from outside. job: for Slurm's commands. path: of the program."""
    import shlex

    # For pyxis and none, exec_prefix has options of srun.
    argv = ["srun", "--overlap", "--jobid=" + job, "-N1", "-n1", "-w", node, *exec_prefix, path]
    return " ".join(map(shlex.quote, argv))
