"""The command line that runs a command in the container of a running job's node.

It is made of facts: what Slurm says about the job, its script as Slurm keeps it, and typed fields of the
event `attach`, which anything that can write to the run directory may have written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    if "folder" not in event:
        raise SlurmError("rendered by an older version of slurmray: its log has a line `attach:`")
    folder, runtime = _folder(place, settings, event["folder"]), event["runtime"]
    component = [] if place.component is None else [f"--het-group={place.component}"]
    argv = ["srun", *(["--pty"] if is_terminal else []), "--overlap", f"--jobid={place.job}"]
    argv += [*component, "-N1", "-n1", "-w", place.node]
    container = settings["container"]
    if runtime in ("podman", "docker"):
        unset = [f"--unset={name}" for name in event["unset"]]
        argv += ["env", *unset] if unset else []
        argv += [
            container["command"] or runtime,
            "exec",
            *(["--tty"] if is_terminal else []),
            "--interactive",
        ]
        return [*argv, f"slurmray-{place.id}-{place.attempt}-{place.node}", f"{folder}/attach", *command]
    if runtime == "pyxis":
        if "$" in container["image"]:
            raise SlurmError("container.image has a variable: use the line `attach:` in the job's log")
        temp_dir = folder.rpartition("/ray-")[0]
        argv += [f"--container-image={container['image']}", f"--container-mounts={temp_dir}:{temp_dir}"]
    if runtime in ("pyxis", "none"):
        return [*argv, *container["step_args"], "/bin/sh", "-c", _RUN_OWN, folder, "attach", *command]
    return [*argv, "/bin/sh", "-c", _RUN_OWN, folder, "enter", f"{folder}/attach", *command]


def _folder(place: Place, settings: Settings, folder: str) -> str:
    """Return the job's folder. SlurmError if it cannot be that of this attempt."""
    name = rf"ray-{place.id}-{place.attempt}-[0-9a-f]{{6}}(/inside)?"
    given = settings["temp_dir"]
    parent = r"(/[\w-][\w.-]*)+" if "$" in given else re.escape(given.rstrip("/"))
    if not re.fullmatch(f"{parent}/+{name}", folder, re.ASCII):
        raise SlurmError(f"events.jsonl names another folder than this job's: {folder}")
    return folder
