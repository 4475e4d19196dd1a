"""`slurmray verify`: checks whether scripts were edited after rendering."""

from __future__ import annotations

from pathlib import Path

import click

from slurmray.cli.flags import FILE, flag
from slurmray.cli.terminal import printable
from slurmray.errors import ExitCode, UsageError


@click.command(options_metavar="FILE ... | --print-hash")
@click.argument("files", metavar="", nargs=-1, type=FILE)
@flag(
    "--print-hash",
    help="Print the hashes of each part of this version's agent, and of its story for each runtime.",
)
def verify(files: tuple[Path, ...], *, print_hash: bool) -> int:
    """Check that scripts are as this version renders them, and print one line for each.

    Each is rendered again from its own settings, `#SBATCH` lines and site's commands, and compared byte for
    byte, so it does not matter who wrote it or its hashes. Only its author vouches for those three parts:
    the line names their commands, options and lines, for you to read.

    Exit code 0: as rendered. 1: something else is in one of them. 2: one cannot be verified: another version
    rendered it, slurmray did not, or it cannot be read.

    \b
    Examples:
      slurmray verify generated.sh
      slurmray verify --print-hash          compare with the hashes that an administrator reviewed
    """
    from slurmray.agent.parts import CORE, PARTS, TYPES
    from slurmray.rendering import verification
    from slurmray.rendering.script import MAX_BYTES, part_sha256, story_sha256

    if print_hash:
        for name in (CORE, *(part for part in PARTS if part != TYPES)):
            click.echo(f"{'agent ' + name:<18} {part_sha256(name)}")
        for name, runtimes in verification.STORIES.items():
            click.echo(f"{'story ' + name:<18} {story_sha256(runtimes)}")
        if not files:
            return 0
    if not files:
        raise UsageError("slurmray verify: no file given; use e.g. slurmray verify generated.sh")
    codes = []
    for file in files:
        try:
            with file.open("rb") as stream:
                raw = stream.read(MAX_BYTES + 1)
            is_script = len(raw) <= MAX_BYTES
            verdict = verification.verify(raw.decode(errors="surrogateescape")) if is_script else None
            problem = "not rendered by slurmray" if is_script else "larger than 4 MB, which sbatch refuses"
        except OSError as error:
            verdict, problem = None, str(error.strerror)
        if verdict is None:
            click.echo(printable(f"{file}: {problem}"), err=True)
            codes.append(int(ExitCode.USAGE))
            continue
        click.echo(printable(f"{file}: {verdict.text}"))
        codes.append(verdict.code)
    return max(codes)
