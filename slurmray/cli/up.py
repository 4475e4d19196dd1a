"""`slurmray up`: a Ray cluster without a trainer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from slurmray.cli.flags import FILE, job_options
from slurmray.cli.submit import follow_job
from slurmray.cli.terminal import show
from slurmray.slurm.submitted_job import Job

# In place of the trainer; the job's log shows the comment. It exits with 0 at the time limit, whatever
# stop.signal is.
_WAIT = """# none: the cluster stays until slurmray cancel
trap 'exit 0' HUP INT QUIT TERM USR1 USR2; while :; do sleep 3600 & wait $!; done"""
# Fields that go with a trainer.
_TRAINER_ONLY = ("preset", "launch", "ray.runtime_env", "sweep", "slurm.array")
_MAY_IDLE = (("watch.action", "report"), ("watch.stall", "0"))  # while nobody uses it
_AT_ONCE = ("ray.start", "standard")  # people use the dashboard, which otherwise starts seconds later


@click.command(options_metavar="[JOB.yaml] [OPTIONS]")
@click.argument("job", required=False, metavar="", type=FILE)
@job_options
def up(*, job: Path | None, **flags: str | tuple[str, ...] | None) -> int:
    """Start a Ray cluster without a trainer, for notebooks and debugging, and show how to use it.

    JOB.yaml and options are those of slurmray render. The job ignores `run`, preset and `launch`. The cluster
    stays until slurmray cancel, or until its time limit. While it starts, Ctrl-C asks whether to cancel it.

    \b
    Examples:
      slurmray up --nodes 2 --gpus-per-node 8 --time 2:00:00
      slurmray up job.yaml
          with image, mounts, services and so on of a job spec
    """
    from slurmray.cli.rendered import given, render_job

    without = [(field, "null") for field in _TRAINER_ONLY]
    rendered = render_job(job, [*given(flags), *without, *_MAY_IDLE, _AT_ONCE], ["sh", "-c", _WAIT])
    rendered.require_variables()
    submitted = rendered.submit()
    show(f"submitted job {submitted.id}, {rendered.spec.name}: {rendered.resources}", err=True)
    code = follow_job(submitted, lambda events: any(event["event"] == "trainer" for event in events))
    if code is not None:
        return code
    click.echo("\n".join(_how_to_use(submitted)))
    return 0


def _how_to_use(job: Job) -> Iterator[str]:
    attach = f"slurmray attach {job.id}"
    yield "the Ray cluster is ready:"
    yield f"  shell      {attach}"
    yield f"  program    {attach} -- python3 train.py"
    yield f"  Ray job    {attach} -- ray job submit -- python3 train.py"
    yield f"  dashboard  slurmray dashboard {job.id}"
    yield f"  end        slurmray cancel {job.id}"
