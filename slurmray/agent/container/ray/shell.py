"""`ray` in the job's folder: Ray's command line for people who come into the container from outside.

`podman exec` and `docker exec` start with the environment of the image, which has neither the cluster's
address nor its token, nor `env` of the job spec.
"""

import os
import sys

from .. import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping

# No modules are searched in the current folder, and `ray` need not be in PATH.
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
    """Write the command, for its owner alone. env: what Ray shall find in its environment."""
    import shlex

    given = os.environ if os.getpid() == 1 else {}  # else no container gives it
    # Functions that bash exports are no names.
    new = {name: env[name] for name in sorted(env) if given.get(name) != env[name] and name.isidentifier()}
    text = SCRIPT % (environment.export_lines(new), shlex.quote(sys.executable), shlex.quote(PROGRAM))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:
        file.write(os.fsencode(text))


def attach_command(job: str, node: str, exec_prefix: "List[str]", path: str) -> str:
    """The command with which a person uses it. job: for Slurm's commands. path: of the written command."""
    import shlex

    # A container of pyxis is entered by options of srun itself, which are the prefix then.
    argv = ["srun", "--overlap", "--jobid=" + job, "-N1", "-n1", "-w", node, *exec_prefix, path]
    return " ".join(map(shlex.quote, argv))
