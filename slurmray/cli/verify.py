"""`slurmray verify`: whether scripts are as they were rendered."""

from __future__ import annotations

from pathlib import Path

import click

from slurmray.cli.flags import FILE
from slurmray.errors import ExitCode, UsageError


@click.command(options_metavar="FILE ... | --print-hash")
@click.argument("files", metavar="", nargs=-1, type=FILE)
@click.option("--print-hash", is_flag=True, help="Print the hashes of this version's agent and stories.")
def verify(files: tuple[Path, ...], *, print_hash: bool) -> int:
    """Check whether scripts are as slurmray rendered them, and print one line for each.

    What a site's template has added is named, and counts as rendered. Exit code 0: all are as rendered.
    1: at least one was changed after rendering. 2: one cannot be read, or slurmray did not render it.

    \b
    Examples:
      slurmray verify generated.sh
      slurmray verify --print-hash          to compare with the hashes that an administrator has reviewed
    """
    from slurmray.rendering import verify as verifying
    from slurmray.rendering.script import agent_sha256, story_sha256

    if print_hash:
        click.echo(f"{'agent':<16} {agent_sha256()}")
        for name, runtimes in verifying.STORIES.items():
            click.echo(f"{'story ' + name:<16} {story_sha256(runtimes)}")
        if not files:
            return 0
    if not files:
        raise UsageError("slurmray verify: no file given: slurmray verify generated.sh")
    codes = []
    for file in files:
        try:
            verdict = verifying.verify(file.read_bytes().decode(errors="surrogateescape"))
            problem = "not rendered by slurmray"
        except OSError as error:
            verdict, problem = None, str(error.strerror)
        if verdict is None:
            click.echo(f"{file}: {problem}", err=True)
            codes.append(int(ExitCode.USAGE))
            continue
        click.echo(f"{file}: {verdict.text}")
        codes.append(int(verdict.is_changed))
    return max(codes)
