"""`slurmray fetch`: copies a job's files from the host on which it was submitted."""

from __future__ import annotations

import os
from pathlib import Path

import click

from slurmray.cli.jobs import complete_job, job_argument
from slurmray.cli.terminal import show
from slurmray.errors import UsageError
from slurmray.slurm.host import SshHost


@click.command()
@click.argument("job", shell_complete=complete_job)
@click.argument("paths", nargs=-1, metavar="[PATH ...]")
def fetch(*, job: str, paths: tuple[str, ...]) -> None:
    """Copy a job's log and run directories from the cluster to the current folder, and each PATH.

    For jobs that were submitted through `host` in a profile. JOB is an id or a name. PATH is a file or folder
    there, relative to the folder from which the job was submitted, and gets the same path here. One from
    elsewhere gets its name. It needs rsync on both sides. Files that are newer here stay as they are.

    \b
    Examples:
      slurmray fetch 1234
      slurmray fetch verl checkpoints /scratch/me/outputs
    """
    submitted, run = job_argument(job)
    host, submitted_from = submitted.host, Path(run.folder)
    if not isinstance(host, SshHost):
        raise UsageError(f"job {submitted.id}: was submitted here, so its files are here")
    given = (os.path.normpath(submitted_from / host.expand(path)) for path in paths)
    places = [*submitted.files(), *map(Path, given)]
    if not places:
        raise UsageError(f"job {submitted.id}: has no files yet; slurmray status {submitted.id} shows why")
    files = []
    for place in places:
        folder = submitted_from if place.is_relative_to(submitted_from) else place.parent
        files.append((folder, str(place.relative_to(folder))))
    host.fetch(files, Path.cwd())
    show(f"copied from {host.name}: {', '.join(path for _, path in files)}", err=True)
