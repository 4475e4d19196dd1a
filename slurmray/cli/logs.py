"""`slurmray logs`: the log of a job, of one of its nodes, or of a service."""

from __future__ import annotations

import sys
from typing import Any

import click

from slurmray.cli.flags import flag
from slurmray.cli.jobs import complete_job, complete_service, job_argument, node_option
from slurmray.cli.submit import follow_job
from slurmray.cli.terminal import LogPrinter, print_json, printable, show
from slurmray.diagnosis.causes import LOG
from slurmray.errors import UsageError
from slurmray.slurm.follow import LAST_BYTES, last_lines


@click.command()
@click.argument("job", required=False, shell_complete=complete_job)
@flag("-f", "--follow", "is_followed", help="Go on until the job ends.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the last N lines, and with -f what follows.",
)
@node_option("What setup, runtime, Ray and prepare steps printed on this node.")
@click.option(
    "--service",
    metavar="NAME",
    help="What this service printed, on all its nodes or with --node on one.",
    shell_complete=complete_service,
)
@flag("--ray", "is_rays", help="With --node: Ray's own logs, which are kept after a failure (ray.keep_logs).")
@click.option(
    "--attempt", type=int, metavar="N", help="With --node or --service: of this attempt.  [default: the last]"
)
@flag("--json", "is_json", help="Print a JSON object; with --ray one for each log.")
def logs(
    *,
    job: str | None,
    is_followed: bool,
    lines: int | None,
    node: str | None,
    service: str | None,
    is_rays: bool,
    attempt: int | None,
    is_json: bool,
) -> int | None:
    """Print the log of a job, progress and the trainer's output; or that of a node, or of a service.

    JOB is an id or a name. Without JOB it is the newest one. With -f the exit code is the job's, and Ctrl-C
    asks whether to cancel it. A log of more than 1 GiB is shown with -n, or from near its end with -f. On a
    terminal it shows control characters as \\x1b and the like, except for colours and progress bars.

    With --json it prints id, task, source (which log it is), lines, and is_all: whether these are all. Of a
    progress bar, which writes over its line, it has the last version.

    \b
    Examples:
      slurmray logs -f
      slurmray logs -n 50
      slurmray logs 1234 --node gpu-7
      slurmray logs verl --node gpu-7 --attempt 0
      slurmray logs verl --node gpu-7 --ray | less
      slurmray logs verl --service judge
    """
    chosen_job, _ = job_argument(job)
    if is_followed and (node or service) is not None:
        raise UsageError("-f: follows the log of the job; for that of a node or a service use tail -f")
    if is_followed and is_json:
        raise UsageError("-f: prints the log as it grows, so leave --json out")
    last = LAST_BYTES if lines else None

    def put(source: str, text: str) -> None:
        if is_json:
            print_json({"id": chosen_job.id, "task": chosen_job.task, "source": source, **cut(text, lines)})
        else:
            print_log(text, lines)

    if service is not None:
        if is_rays:
            raise UsageError("--ray: a service has no logs of Ray; leave out --service")
        put(f"log of {service}", chosen_job.service_log(service, node, attempt, last))
        return 0
    if node is not None:
        if not is_rays:
            put(f"log of {node}", chosen_job.node_log(node, attempt, last))
            return 0
        for name, log in chosen_job.ray_logs(node, attempt).items():
            if not is_json:
                print_log(f"==> {printable(name)} <==\n")
            put(f"{name} of {node}", f"{log}\n")
        return 0
    if is_rays:
        raise UsageError("--ray: Ray's logs are of one node each; name it with --node")
    if attempt is not None:
        raise UsageError("--attempt: the log of the job has all attempts; use it with --node or --service")
    if is_followed:
        return follow_job(chosen_job, last=lines)
    text = chosen_job.logs(last)
    if not text:
        show(f"job {chosen_job.name}: no log yet; slurmray status {chosen_job.name} shows why", err=True)
    put(LOG, text)
    return 0


def print_log(text: str, last: int | None = None) -> None:
    """Print a log, see LogPrinter. last: number of lines at its end; None: all."""
    sys.stdout.flush()
    LogPrinter().write(last_lines(text.encode(errors="surrogateescape"), last))


def cut(text: str, last: int | None) -> dict[str, Any]:
    """Return the last lines of a log, None: all, and whether nothing before them was left out."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n") if text]
    kept = lines[-last:] if last else lines
    is_all = len(kept) == len(lines) and not (last and len(text.encode(errors="replace")) >= LAST_BYTES)
    return {"lines": kept, "is_all": is_all}
