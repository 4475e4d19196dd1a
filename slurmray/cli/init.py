"""`slurmray init`: writes a job spec, from an example or from a script that starts Ray under Slurm."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from slurmray._version import __version__
from slurmray.cli.flags import FILE, completion, flag, job_flags, output_option
from slurmray.cli.terminal import list_row, print_json, show
from slurmray.errors import Problem, SpecError, UsageError
from slurmray.rendering.output import write_files
from slurmray.resources import data_folder

_STDOUT, _JOB = Path("-"), Path("job.yaml")
# First line of a job spec, for editors with a YAML language server.
_SCHEMA = "https://raw.githubusercontent.com/slurmray/slurmray/v{}/docs/reference/job-spec.schema.json"
_EDITOR_LINE = f"# yaml-language-server: $schema={_SCHEMA.format(__version__)}\n"
_CONFIG = ".config.yaml"  # ends the name of a trainer's configuration file, which comes with an example


def _titles(ctx: click.Context) -> dict[str, str]:
    del ctx
    return {name: _title(path) for name, path in _examples().items()}


@click.command(options_metavar="[OPTIONS]")
@click.argument(
    "example", required=False, metavar="[EXAMPLE] [-- ARGUMENT...]", shell_complete=completion(_titles)
)
@click.option(
    "--from",
    "launcher",
    metavar="SCRIPT",
    type=FILE,
    help="Write the job spec of this bash script, which starts Ray under Slurm; - is standard input.",
)
@job_flags
@output_option("The job spec to write; - is standard output.  [default: job.yaml]")
@flag("--force", help="Overwrite existing files.")
@flag("--json", "is_json", help="Print files: {NAME: TEXT} as JSON, and write nothing.")
@click.pass_obj
def init(
    arguments: list[str],
    /,
    example: str | None,
    launcher: Path | None,
    output: Path | None,
    force: bool,
    is_json: bool,
    **flags: str | None,
) -> None:
    """Write a job spec, from an example or from your own script; without both, list the examples.

    The options change fields of the copy. Other files of the example, e.g. the trainer's configuration, are
    written to the current folder. Never prompts.

    With --from, read a script of yours in place of an example: #SBATCH lines, containers, Ray, data
    preparation, servers and the trainer. Nothing of it is run. Comments in the job spec have what became of
    each line, and which lines you have to look at. ARGUMENT...: those with which you start the script. Exit
    code 2 if no trainer is found; the job spec is written, and says where to fill it in.

    With --json and neither it prints examples: {NAME: TITLE}.

    \b
    Examples:
      slurmray init
      slurmray init verl --nodes 4 --partition gpu --account rl
      slurmray init rlinf --nodes 2 -o math.yaml
      slurmray init --from my_script.slurm
      slurmray init --from my_script.slurm -- Qwen/Qwen3-8B 4
    """
    changes = [(f"--{name.replace('_', '-')}", value) for name, value in flags.items() if value is not None]
    if launcher is not None:
        if example is not None or changes:
            other = changes[0][0] if changes else example
            raise UsageError(f"slurmray init: {other} and --from; leave one of them out")
        _import(launcher, output or _JOB, force, arguments or None, is_json=is_json)
        return
    if arguments:
        raise UsageError("slurmray init: the arguments after -- are those of a script; add --from SCRIPT")
    known = _examples()
    if example is None:
        if output or force or changes:
            raise UsageError("slurmray init: no example given; use e.g. slurmray init verl")
        if is_json:
            print_json({"examples": {name: _title(path) for name, path in known.items()}})
            return
        for name, path in known.items():
            list_row(f"{name:<{max(map(len, known))}}  ", _title(path))
        return
    if example not in known:
        raise UsageError(f"slurmray init: no example {example!r}; use one of {', '.join(known)}")
    output = output or _JOB
    job = _JOB if output == _STDOUT else output  # comments in the files mention this name
    files = _files(known[example], changes, job)
    if is_json:
        _print_files(files)
        return
    spec = files.pop(job) if output == _STDOUT else None
    write_files(files, None if force else _refuse_to_overwrite)
    if spec is not None:
        click.echo(spec.encode(), nl=False)
        for path in files:
            click.echo(f"wrote {path}, which the job spec uses", err=True)
        return
    names = " and ".join(map(str, files))
    click.echo(f"wrote {names}: check image, mounts, paths and the trainer's arguments", err=True)
    _show_next(output)


def _print_files(texts: Mapping[Path, str]) -> None:
    print_json({"files": {str(path): text for path, text in texts.items()}})


def _import(launcher: Path, output: Path, force: bool, arguments: list[str] | None, *, is_json: bool) -> None:
    """Write the job spec of a launcher. UsageError, when that is done, if no trainer is found."""
    from slurmray.importing.launcher import read_launcher

    name = "stdin" if launcher == _STDOUT else str(launcher)
    imported = read_launcher(name, _read_launcher(launcher), arguments)
    text = _EDITOR_LINE + imported.text
    if is_json:
        _print_files({output: text})
        click.echo(imported.summary, err=True)
    elif output == _STDOUT:
        click.echo(text.encode(), nl=False)
        click.echo(imported.summary, err=True)
    else:
        # The script may have secrets of a kind that is not known.
        max_mode = 0o777 if launcher == _STDOUT else launcher.stat().st_mode & 0o777
        write_files({output: text}, None if force else _refuse_to_overwrite, max_mode=max_mode | 0o600)
        click.echo(f"wrote {output}: {imported.summary}", err=True)
        _show_next(output)
    if not imported.has_trainer:
        raise UsageError(f"{name}: no command is known as a trainer; write yours into `run` of {output}")


def _read_launcher(launcher: Path) -> bytes:
    """Return the bytes of a launcher, one more than allowed at most. UsageError."""
    from slurmray.importing.launcher import MAX_BYTES

    try:
        if launcher != _STDOUT:
            with launcher.open("rb") as file:
                return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{launcher}: cannot be read: {error.strerror}; name a bash script") from None
    if sys.stdin is None:
        raise UsageError("stdin: is closed; pipe the script to it, or name a file")
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _show_next(output: Path) -> None:
    """Print what is wrong in a job spec that was written, and how to use it."""
    for problem in _problems(output, []):
        show(f"to fix: {problem}", err=True)
    click.echo(f"next: slurmray render {shlex.quote(str(output))}", err=True)


def _examples() -> dict[str, Path]:
    """Return the paths of the example job specs, by name."""
    paths = sorted(data_folder("examples").glob("*.yaml"))
    return {path.stem: path for path in paths if not path.name.endswith(_CONFIG)}


def _title(example: Path) -> str:
    """Return the description of an example, which is its first line."""
    return example.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _files(example: Path, changes: list[tuple[str, str]], output: Path) -> dict[Path, str]:
    """Return the text of the job spec and of each file it uses, by path; SpecError for a wrong option."""
    from slurmray.loading.edit import set_value
    from slurmray.loading.load import FLAGS

    if wrong := [problem for problem in _problems(example, changes) if problem.where.startswith("--")]:
        raise SpecError(wrong)
    text = example.read_text(encoding="utf-8")
    for option, value in changes:
        text = set_value(text, tuple(FLAGS[option].split(".")), value)
    places, files = {f"examples/{example.name}": output}, {output: _EDITOR_LINE + text}
    for path in example.parent.iterdir():
        name = f"examples/{path.name}"
        if path != example and name in text:
            places[name] = Path(path.name)
            if places[name].absolute() == output.absolute():
                raise UsageError(
                    f"{output}: the example has another file of this name; choose another name with -o"
                )
            files[places[name]] = path.read_text(encoding="utf-8")
    return {path: _replace_paths(content, places) for path, content in files.items()}


def _problems(job: Path, changes: list[tuple[str, str]]) -> list[Problem]:
    from slurmray.loading.load import load_plan

    try:
        load_plan(job, changes)
    except SpecError as error:
        return error.problems
    return []


def _replace_paths(text: str, places: dict[str, Path]) -> str:
    for name, place in places.items():
        text = text.replace(name, str(place))
    return text


def _refuse_to_overwrite(path: Path) -> None:
    other = "move it away" if path.name.endswith(_CONFIG) else "choose another name with -o"
    raise UsageError(f"{path}: already exists; {other}, or use --force")
