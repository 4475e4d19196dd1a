"""`ray` in the temp folder: the command line of Ray for those who come into the container from outside.

`podman exec` and `docker exec` start with the environment of the image, which has neither the address of the
cluster nor its token, nor `env` of the job spec.
"""

import os
import shlex
import sys

import surroundings

# Modules are not looked for in the current folder, and `ray` need not be in PATH.
PROGRAM = """
import sys
del sys.path[0]
from ray.scripts.scripts import main
sys.argv[0] = "ray"
main()
"""
SCRIPT = """#!/bin/sh
{exports}exec {python} -c {program} "$@"
"""


def write(path, env):
    """Writes the command, for its owner alone. env: what Ray shall find in its environment."""
    given = os.environ if os.getpid() == 1 else {}  # else no container gives it
    # Functions that bash exports are no names.
    new = {name: env[name] for name in sorted(env) if given.get(name) != env[name] and name.isidentifier()}
    python, program = shlex.quote(sys.executable), shlex.quote(PROGRAM)
    text = SCRIPT.format(exports=surroundings.exports(new), python=python, program=program)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:
        file.write(os.fsencode(text))


def call(job, node, enter, path):
    """How to use it from outside. job: `JOBID-ATTEMPT`. enter: what brings one into this container."""
    number = job.rpartition("-")[0]
    return " ".join(f"srun --overlap --jobid={number} -N1 -n1 -w {node} {enter} {path}".split())
