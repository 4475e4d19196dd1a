"""`slurmray verify`: checks whether scripts were edited after rendering."""

from __future__ import annotations

from pathlib import Path

import click

from slurmray.cli.flags import FILE
from slurmray.errors import ExitCode, UsageError
from slurmray.files import read_given


@click.command(options_metavar="FILE ... | --print-hash")
@click.argument("files", metavar="", nargs=-1, type=FILE)
@click.option(
    "--print-hash",
    is_flag=True,
    help="Print the hashes of this version's agent and of its bash part for each runtime.",
)
def verify(files: tuple[Path, ...], *, print_hash: bool) -> int:
    """Check whether scripts were edited after rendering, and print one line for each.

    Blocks added by a site's template are listed, and count as rendered. Exit code 0: no script was edited. 1:
    at least one was edited. 2: one cannot be read, or slurmray did not render it.

    \b
    Examples:
      slurmray verify generated.sh
      slurmray verify --print-hash          compare with the hashes that an administrator reviewed
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
        raise UsageError("slurmray verify: no file given; use e.g. slurmray verify generated.sh")
    codes = []
    for file in files:
        try:
            verdict = verifying.verify(read_given(file).decode(errors="surrogateescape"))
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
