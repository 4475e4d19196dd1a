"""The command line that runs a command in the container of a running job's node.

It is made of facts: what Slurm says about the job, its script as Slurm keeps it, and typed fields of the
event `attach`, which anything that can write to the run directory may have written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from slurmray.agent.container.ray.attach_programs import ATTACHED
from slurmray.agent.controller import attach_command
from slurmray.agent.paths import container_name
from slurmray.errors import SlurmError
from slurmray.slurm.states import Event

if TYPE_CHECKING:
    from slurmray.agent.wire.settings import Settings

# Runs a program of the job's folder, unless somebody else has made the folder or the program. Arguments:
# folder, program, its own. It runs in the folder, so that nobody can replace it after the check.
_RUN_OWN = (
    '[ ! -L "$0" ] && cd -P -- "$0" 2>/dev/null && [ -O . ] && [ -O "$1" ] || '
    '{ echo "$0: no folder of yours with the program $1" >&2; exit 1; }; '
    'program=$1; shift; exec "./$program" "$@"'
)

# Runs `podman exec` or `docker exec`. If they are killed, the command goes on in the container. So the
# program `attach` ends it when the FIFO, which only this shell has open for writing, ends without a line.
# A code above 128 has none, as Slurm may have killed them a moment before this shell. Arguments: the job's
# folder, argv.
_HOLD_FIFO = (
    f'fifo=attached-$$; export {ATTACHED}="$0/$fifo"; cd -P -- "$0/inside" 2>/dev/null && [ -O .. ] && '
    'mkfifo -m 666 "$fifo" && exec 9<>"$fifo" || { echo "$0: no folder of yours" >&2; exit 1; }; '
    '"$@" 9>&-; code=$?; [ "$code" -gt 128 ] || echo >&9; rm -f "$fifo"; exit "$code"'
)


class Place(NamedTuple):
    """A node of a job. number: of the attempt. component: of a heterogeneous job; None in others.

    job: its name for srun, which for a task of an array is not its id.
    """

    job: str
    id: int
    attempt: int
    node: str
    component: str | None


def attach_argv(
    place: Place, settings: Settings, event: Event, command: Sequence[str], *, is_terminal: bool
) -> list[str]:
    """Return the argv. event: `attach` of the running attempt. SlurmError if it is not of this attempt."""
    _check_folder(place, settings, event["folder"])
    container = settings["container"]
    if event["runtime"] not in container["runtimes"]:
        raise SlurmError(f"events.jsonl names another runtime than this job's: {event['runtime']}")
    if event["runtime"] == "pyxis" and "$" in container["image"]:
        raise SlurmError("container.image has a variable: use the line `attach:` in the job's log")
    options = [*(["--tty"] if is_terminal else []), "--interactive", "--env", ATTACHED]
    hold_fifo = ["/bin/sh", "-c", _HOLD_FIFO, event["folder"]]
    node = (place.job, place.component, place.node)
    name = container_name(str(place.id), place.attempt, place.node)
    run_own = ["/bin/sh", "-c", _RUN_OWN]
    argv = attach_command.attach_argv(*node, name, container, event, command, options, hold_fifo, run_own)
    return [argv[0], *(["--pty"] if is_terminal else []), *argv[1:]]


def _check_folder(place: Place, settings: Settings, folder: str) -> None:
    """SlurmError if it cannot be the job's folder of this attempt."""
    temp_dir = settings["temp_dir"]
    parent = r"(/[\w-][\w.-]*)+" if "$" in temp_dir else re.escape(temp_dir.rstrip("/"))
    if not re.fullmatch(
        f"{parent}/+ray-{place.id}-{place.attempt}-[0-9a-f]{{6}}(/inside)?", folder, re.ASCII
    ):
        raise SlurmError(f"events.jsonl names another folder than this job's: {folder}")
