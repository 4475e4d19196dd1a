"""The programs `attach` and `ray` in the job's folder, for users who attach to the job from outside.

`podman exec` and `docker exec` have only the image's environment, without the cluster's address and token and
`env` of the job spec. `attach` sets them and runs a command, by default a shell, in the trainer's working
directory. If these two are killed, e.g. with their step, the command goes on. So `attach` ends its process
group when the FIFO of the variable ATTACHED ends without a line. `ray` is Ray's command line.
"""

import os
import sys

from ...inherited import FOREIGN, GPU_MASKS
from .. import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

ATTACHED = "SLURMRAY_ATTACHED"
# The process that reads the FIFO is no child of the command, which may wait for all of its children.
ATTACH = """#!/bin/sh
if [ -p "$SLURMRAY_ATTACHED" ]; then
    exec 8<"$SLURMRAY_ATTACHED"
    ( (trap '' HUP TSTP; read -r _ || { kill -s HUP 0; sleep 5; kill -s KILL 0; }) <&8 >/dev/null 2>&1 8<&- &)
    exec 8<&-
fi
unset SLURMRAY_ATTACHED
umask %04o
%sPATH=%s:$PATH
cd %s 2>/dev/null || : # pyxis starts another container, where it may not be
[ $# -gt 0 ] || set -- "$(command -v bash || echo sh)"
exec "$@"
"""
# Does not search modules in the current folder, and needs no `ray` in PATH.
RAY = """#!/bin/sh
exec %s -c '
import sys
del sys.path[0]
from ray.scripts.scripts import main
sys.argv[0] = "ray"
main()
' "$@"
"""


def write_programs(folder: str, workdir: str, umask: int, env: "Mapping[str, str]") -> None:
    """Write both programs, for their owner alone.

    folder: the job's. workdir, umask, env: working directory, umask and environment that `attach` sets.
    """
    import shlex

    given = os.environ if os.getpid() == 1 else {}  # what the container gives to each `exec`
    # isidentifier: not functions that bash has exported.
    new = {name: env[name] for name in sorted(env) if given.get(name) != env[name] and name.isidentifier()}
    # Of the image, or of who attaches.
    foreign = [name for name in FOREIGN + GPU_MASKS if name not in env]
    lines = "unset %s\n%s" % (" ".join(foreign), variables.export_lines(new))
    attach = ATTACH % (umask, lines, shlex.quote(folder), shlex.quote(workdir))
    for name, program in (("attach", attach), ("ray", RAY % shlex.quote(sys.executable))):
        path = os.path.join(folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "wb") as file:
            file.write(os.fsencode(program))
