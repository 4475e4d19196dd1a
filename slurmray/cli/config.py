"""`slurmray config`: the fields of a profile, and where each is set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurmray.cli.flags import FILE, PROFILE_OPTION, flag
from slurmray.cli.terminal import print_json, show

if TYPE_CHECKING:
    from slurmray.yaml_source import Path as FieldPath
    from slurmray.yaml_source import Source


@click.command(options_metavar="[JOB.yaml] [OPTIONS]")
@click.argument("job", required=False, metavar="", type=FILE)
@PROFILE_OPTION
@flag("--json", "is_json", help="Print a JSON array.")
def config(*, job: Path | None, profile: str | None, is_json: bool) -> None:
    """Show the fields that a profile sets, or a job spec with its profile, and the file and line of each.

    Profiles are defaults for all your job specs. They are in ~/.config/slurmray/config.yaml and in your
    site's /etc/slurmray/config.yaml, or in the file that SLURMRAY_CONFIG names instead of both. `forbid`
    has fields that jobs may not set, and why; `require` lists the values that a field may have, its
    default too. Both save users a mistake and enforce nothing; Slurm's limits and job_submit plugins do.

    \b
    Example:
      profile: gpu              # without it: none, unless --profile or SLURMRAY_PROFILE names one
      profiles:
        gpu:                    # fields of a job spec, which those of a job override
          slurm: {account: vision, partition: h100}
          container: {runtime: podman}
          forbid: {slurm.mem: nodes are not shared here}
          require: {ray.auth: [auto, token]}
        laptop:
          host: login.example   # jobs are submitted there, through your own ssh
          folder: runs/vision   # in this folder of it; it begins in your home
        debug:
          slurm: {account: vision, partition: debug, time: "30"}

    \b
    Examples:
      slurmray config
      slurmray config job.yaml --profile debug
    """
    from slurmray.loading import profile as profiles
    from slurmray.loading.load import read_merged, read_stdin

    chosen = profiles.choose(profile)
    source = read_merged(job, read_stdin(job), chosen, is_fast=False)
    rows = [
        {"field": ".".join(path), "value": value, "from": where} for path, value, where in _fields(source, ())
    ]
    if is_json:
        print_json(rows)
        return
    if chosen:
        show(f"profile {chosen.name}, of {', '.join(map(str, profiles.list_files()))}", err=True)
    else:
        places = ", ".join(map(str, profiles.list_files())) or "no configuration file"
        click.echo(f"no profile ({places})", err=True)
    table = [(row["field"], json.dumps(row["value"], ensure_ascii=False), row["from"]) for row in rows]
    widths = [max((len(cells[column]) for cells in table), default=0) for column in (0, 1)]
    for field, value, where in table:
        show(f"{field:<{widths[0]}}  {value:<{widths[1]}}  {where}")
    if chosen and chosen.host:
        show(f"jobs are submitted on {chosen.host}, in {chosen.submit_folder()}", err=True)
    for demand in chosen.demands if chosen else ():
        show(demand.rule)


def _fields(source: Source, path: FieldPath) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Yield path, value and place of each field; a list is one value."""
    value = source.data
    for name in path:
        value = value[name]
    if isinstance(value, dict):
        for name in value:
            yield from _fields(source, (*path, name))
    else:
        yield tuple(map(str, path)), value, source.where(source.values[path], path)
