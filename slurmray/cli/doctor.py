"""`slurmray doctor`: what jobs need on this cluster."""

from __future__ import annotations

from collections.abc import Iterable

import click

from slurmray.cli.flags import flag, job_options
from slurmray.cli.submit import follow_job
from slurmray.cli.terminal import list_row, print_json, styled
from slurmray.errors import ExitCode
from slurmray.slurm.site import Row, survey

BURN_IN = ("checks.burn_in=10s",)


@click.command()
@job_options
@flag("--burn-in", "is_burn_in", help="Also measure the nodes' GPUs, with PyTorch of the image.")
@flag("--json", "is_json", help="Print a JSON array, and submit nothing.")
def doctor(
    *, is_burn_in: bool, is_json: bool, settings: tuple[str, ...], **flags: str | tuple[str, ...] | None
) -> int | None:
    """Show what jobs need on this cluster, and with options check its nodes.

    Without options it asks Slurm and this host, and submits nothing. With options of slurmray render it also
    submits a job without a trainer, which checks each node's runtime, GPUs, addresses, ports and limits, and
    shows its log until it ends. The exit code is the job's, or 64 where jobs cannot run.

    \b
    Examples:
      slurmray doctor
      slurmray doctor --nodes 2 --gpus-per-node 8 --time 10
      slurmray doctor --nodes 16 --gpus-per-node 8 --time 10 --image IMAGE --burn-in
          ten seconds of matrix products, copies and all-reduce: which node is slow?
    """
    from slurmray.cli.rendered import given, render_job

    job = given({"settings": (*BURN_IN, *settings) if is_burn_in else settings, **flags})
    rendered = render_job(None, job, [])  # wrong options come first
    if job and not is_json:
        rendered.require_one_job()
        rendered.require_variables()
    rows = list(survey(rendered.host, rendered.folder, rendered.spec.heartbeat_timeout))
    if is_json:
        print_json([row._asdict() for row in rows])
    else:
        _show(rows)
    if any(row.is_wrong for row in rows):
        return ExitCode.CONFIG
    if is_json:
        return None
    if not job:
        click.echo("to check two nodes: slurmray doctor --nodes 2, with the options above", err=True)
        return None
    return follow_job(rendered.submit())


def _show(rows: Iterable[Row]) -> None:
    for row in rows:
        color = "red" if row.is_wrong else "yellow" if row.fix else "green"
        list_row(f"{styled(row.check, color)}: ", row.found)
        if row.fix:
            list_row("  ", row.fix)
