"""`slurmray submit`: renders a job, submits it with sbatch, and follows it if asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurmray import history
from slurmray.agent.controller.host_list import host_list
from slurmray.api import job_of
from slurmray.cli.cancel import cancel_job
from slurmray.cli.flags import FILE, flag, job_options
from slurmray.cli.jobs import job_argument
from slurmray.cli.terminal import LogPrinter, can_ask, print_json, show
from slurmray.errors import SlurmError, UsageError
from slurmray.slurm import slurm_commands
from slurmray.slurm.follow import follow
from slurmray.slurm.states import Event
from slurmray.slurm.submitted_job import Job

if TYPE_CHECKING:
    from slurmray.cli.rendered import Rendered

_LONGEST_REASON = 200  # characters
INTERRUPTED = 130  # as a shell's exit code for Ctrl-C


@click.command(options_metavar="[JOB.yaml] [OPTIONS] [-- COMMAND ...]")
@click.argument("job", required=False, metavar="", type=FILE)
@job_options
@flag("-f", "--follow", "is_followed", help="Show the job's log until it ends, and return its exit code.")
@click.option(
    "--after",
    metavar="JOB",
    help="Start when this job, an id or a name, has exited with 0; cancelled if it ends otherwise.",
)
@flag(
    "--exclude-bad",
    help="Exclude nodes that the last job of this name and folder lost, set aside or had a finding on.",
)
@flag("--dry-run", help="Print the script instead.")
@flag("--test-only", help="Ask Slurm when it could start, and submit nothing.")
@flag("--json", "is_json", help="Print the job as JSON.")
@flag("--one-job", "is_one", hidden=True)  # for slurmray mcp
@click.pass_obj
def submit(
    trainer: list[str],
    /,
    job: Path | None,
    is_followed: bool,
    after: str | None,
    exclude_bad: bool,
    dry_run: bool,
    test_only: bool,
    is_json: bool,
    is_one: bool,
    **flags: str | tuple[str, ...] | None,
) -> int | None:
    """Render a job and submit it with sbatch.

    JOB.yaml, options and COMMAND are those of slurmray render. It writes no script: Slurm keeps it. slurmray
    list, status, logs and cancel know the job from then on, by its id or its name.

    With --follow, Ctrl-C asks whether to cancel the job. Without an answer the job goes on.

    \b
    Examples:
      slurmray submit job.yaml --nodes 4
      slurmray submit job.yaml --follow -- python train.py
      slurmray submit evaluate.yaml --after verl
          when the job named verl, the newest one, has ended well
      slurmray submit job.yaml --exclude-bad
      slurmray submit job.yaml --test-only
    """
    from slurmray.cli.rendered import given, render_job, show_remarks

    if is_json and (is_followed or dry_run or test_only):
        other = "--follow" if is_followed else "--dry-run" if dry_run else "--test-only"
        raise UsageError(f"slurmray submit: {other} prints a text, so leave --json out")
    rendered = render_job(job, given(flags), trainer)
    if is_followed and rendered.spec.sweep:
        raise UsageError("--follow: each task of a sweep has its own log; leave it out")
    spec, host = rendered.spec, rendered.host
    rendered.require_one_job()
    if is_one and spec.sweep:
        raise UsageError("sweep: makes several jobs: submit it with slurmray submit")
    if is_one and "wait" in dict(spec.slurm.given()):
        raise UsageError("slurm.wait: there would be no answer before the job's end; leave it out")
    arguments = []
    if after is not None:
        arguments = _wait_for(after, rendered)
    if exclude_bad:
        arguments += _exclude_bad(rendered)
    if not dry_run:
        rendered.require_variables()
    show_remarks(rendered.remarks)
    if dry_run:
        click.echo(rendered.text.encode(), nl=False)
        return 0
    if test_only:
        show_remarks(rendered.check_submission())
        show(slurm_commands.test_only(*arguments, text=rendered.text, host=host))
        return 0
    submitted = rendered.submit(*arguments)
    is_over = "wait" in dict(spec.slurm.given())
    if is_json:
        fields = {"id": submitted.id, "cluster": submitted.cluster, "host": host.name, "name": spec.name}
        print_json(fields)
        return _exit_code(submitted) if is_over else 0
    place = f" on {host.name}" if host.name else ""
    show(f"submitted job {submitted.id}{place}, {spec.name}: {rendered.summary}", err=is_followed)
    if is_followed:
        return follow_job(submitted)
    if is_over:
        return _exit_code(submitted)
    follow = f"status {submitted.id}" if spec.sweep else f"logs -f {submitted.id}"
    click.echo(f"follow it with: slurmray {follow}", err=True)
    return 0


def _exit_code(job: Job) -> int:
    """Exit code of a job whose end sbatch has waited for.

    sbatch returns 0 for one that was cancelled before its start, and 1 for any signal (Slurm 22.05 to 26.05).
    """
    try:
        if tasks := job.tasks():
            return job.sbatch_code or int(any(task.state != "COMPLETED" for task in tasks))
        return job.wait().shell_code
    except SlurmError:  # Slurm has forgotten it, or does not answer
        return job.sbatch_code


def _wait_for(after: str, rendered: Rendered) -> list[str]:
    """Return sbatch's options for a job that starts when another one has exited with 0."""
    from slurmray.loading.submission import chosen_clusters

    options = dict(rendered.spec.slurm.given())
    if "dependency" in options:
        raise UsageError("--after and slurm.dependency are both set; use one of them")
    earlier_job = job_argument(after)[0]
    if earlier_job.host is not rendered.host:
        raise UsageError(f"--after {after}: was submitted on {earlier_job.host.name or 'this host'}")
    if earlier_job.cluster not in (None, chosen_clusters(rendered.spec, rendered.host)):
        raise UsageError(
            f"--after {after}: is on the cluster {earlier_job.cluster}; set slurm.clusters to it"
        )
    kill = [] if "kill-on-invalid-dep" in options else ["--kill-on-invalid-dep=yes"]  # or it waits for ever
    return [f"--dependency=afterok:{earlier_job.name}", *kill]


def _exclude_bad(rendered: Rendered) -> list[str]:
    """Return sbatch's option that excludes what the job's last run lost or set aside; [] if that is nothing.

    Prints which nodes these are, and why.
    """
    name, host = rendered.spec.name, rendered.host
    # As api.submit_script records it: an absolute path without links.
    argv = ["readlink", "-m", "--", str(host.expand(str(rendered.folder)))]
    folder = slurm_commands.call(argv, host=host).stdout.rstrip("\n")
    run = history.last_run(name, folder, host.name)
    if run is None:
        raise UsageError(
            f"--exclude-bad: no job named {name!r} was submitted from {folder} yet; leave it out"
        )
    if run.sweep:
        raise UsageError(f"--exclude-bad: job {run.id} is a sweep; name the nodes of its tasks in --exclude")
    reasons: dict[str, list[str]] = {}
    for node, why in job_of(run).bad_nodes().items():
        reasons.setdefault(" ".join(why.split())[:_LONGEST_REASON], []).append(node)
    if not reasons:
        show(f"--exclude-bad: job {run.id} lost no node and set none aside", err=True)
        return []
    bad = host_list(node for nodes in reasons.values() for node in nodes)
    excluded = {dict(component.given()).get("exclude") for component in rendered.spec.slurm.components}
    if len(excluded) > 1:  # sbatch's option counts for all groups
        raise UsageError(f"--exclude-bad: the groups exclude different nodes; add {bad} to each exclude")
    own = excluded.pop()
    if own and "/" in own:
        raise UsageError(f"--exclude-bad: slurm.exclude is a file, {own}; add {bad} to it")
    why = "; ".join(f"{host_list(nodes)} ({reason})" for reason, nodes in reasons.items())
    option = f"--exclude={own + ',' if own else ''}{bad}"
    show(f"{option}, because of job {run.id}: {why}", err=True)
    return [option]


def follow_job(
    job: Job, is_enough: Callable[[Sequence[Event]], bool] = lambda _: False, last: int | None = None
) -> int | None:
    """Show a job's log until it ends; return its exit code, or INTERRUPTED after Ctrl-C.

    is_enough: None is returned once it is true of the job's events. last: number of lines of the log so far
    that are shown; None: all.
    """
    try:
        end = follow(job, LogPrinter().write, lambda line: show(line, err=True), is_enough, last)
    except KeyboardInterrupt:
        return _ask_to_cancel(job)
    if end is None:
        return None
    click.echo(f"job {job.name}: {end.state}", err=True)
    return end.shell_code


def _ask_to_cancel(job: Job) -> int:
    click.echo("", err=True)
    try:
        is_wanted = can_ask() and click.confirm(f"Cancel job {job.name}?", err=True)
    except click.Abort:  # Ctrl-C again
        is_wanted = False
    if is_wanted:
        cancel_job(job)
        click.echo(f"cancelled job {job.name}", err=True)
    else:
        click.echo(f"job {job.name} goes on; cancel it with: slurmray cancel {job.name}", err=True)
    return INTERRUPTED
