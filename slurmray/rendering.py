"""From a job spec to the text of the sbatch script."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import jinja2

from slurmray.places import own
from slurmray.plan import make_plan
from slurmray.spec import JobSpec


class Verbatim(str):
    """Text that the renderer does not quote: slurmray's own, or already quoted for Slurm."""

    __slots__ = ()


def quoted(value: Any) -> str:
    """Write a value as bash reads it, a list as words. The only way from the spec into the script."""
    if isinstance(value, Verbatim):
        return value
    if isinstance(value, str):
        # sbatch refuses a script with a DOS line break anywhere in it.
        return shlex.quote(value) if "\r" not in value else _ansi_quoted(value)
    if isinstance(value, bool) or value is None:
        raise TypeError(f"a template wrote {value!r}; plan.py decides what stands for it")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return " ".join(quoted(item) for item in value)
    raise TypeError(f"a template wrote a {type(value).__name__}")


def _ansi_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\r", "\\r")
    return f"$'{escaped}'"


def template_root() -> Path:
    """Return the folder of the templates."""
    return own("templates")


def render(spec: JobSpec, command: str = "slurmray render") -> str:
    """Return the script for a job spec; the same for the same input on every machine.

    command: what renders it anew, for bash. The script's messages add options such as `--nodes 4` to its end.
    """
    root = template_root()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(root),
        undefined=jinja2.StrictUndefined,
        finalize=quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The usual mark for comments is in bash's ${#array[@]}.
        comment_start_string="{%#",
        comment_end_string="#%}",
        autoescape=False,  # noqa: S701 - bash, not HTML: `quoted` does it
    )
    environment.filters["verbatim"] = Verbatim
    plan = make_plan(spec, command, root / "node")
    return environment.get_template("job.sbatch.j2").render(plan=plan)
