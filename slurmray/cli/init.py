"""`slurmray init`: an example as a job spec of the user's own."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from slurmray.cli.flags import FILE, job_flags
from slurmray.errors import Problem, SpecError, UsageError
from slurmray.resources import own

_STDOUT, _JOB = Path("-"), Path("job.yaml")
_CONFIG = ".config.yaml"  # a trainer's own file, which belongs to an example


@click.command(options_metavar="[OPTIONS]")
@click.argument("example", required=False, metavar="[EXAMPLE]")
@job_flags
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    help="The job spec to write; - is standard output.  [default: job.yaml]",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def init(example: str | None, output: Path | None, force: bool, **flags: str | None) -> None:
    """Write an example as a job spec of your own; without EXAMPLE, list the examples.

    The flags set fields of it; other fields stay as they are in the example. Never prompts. A file that
    belongs to it, for example a trainer's own configuration, is written to the current folder.

    \b
    Examples:
      slurmray init
      slurmray init verl --nodes 4 --partition gpu --account rl
      slurmray init rlinf --nodes 2 -o math.yaml
    """
    from slurmray.rendering.output import write_files

    known = _examples()
    if example is None:
        if output or force or any(value is not None for value in flags.values()):
            raise UsageError("slurmray init: no example given; for example: slurmray init verl")
        for name, path in known.items():
            title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            click.echo(f"{name:<{max(map(len, known))}}  {title}")
        return
    if example not in known:
        raise UsageError(f"slurmray init: no example {example!r}, there are {', '.join(known)}")
    answers = [(f"--{name.replace('_', '-')}", value) for name, value in flags.items() if value is not None]
    output = output or _JOB
    job = _JOB if output == _STDOUT else output  # its name in comments
    files = _files(known[example], answers, job)
    spec = files.pop(job) if output == _STDOUT else None
    write_files(files, None if force else _refuse_to_lose)
    if spec is not None:
        click.echo(spec.encode(), nl=False)
        for path in files:
            click.echo(f"wrote {path}, which it names", err=True)
        return
    names = " and ".join(map(str, files))
    click.echo(f"wrote {names}: check image, mounts, paths and the trainer's arguments", err=True)
    for problem in _problems(output, []):
        click.echo(f"still to do: {problem}", err=True)
    click.echo(f"next: slurmray render {shlex.quote(str(output))}", err=True)


def _examples() -> dict[str, Path]:
    """Return the job specs among slurmray's examples, by name."""
    paths = sorted(own("examples").glob("*.yaml"))
    return {path.stem: path for path in paths if not path.name.endswith(_CONFIG)}


def _files(example: Path, answers: list[tuple[str, str]], output: Path) -> dict[Path, str]:
    """Return the job spec and the files that it names, by path; SpecError for a wrong flag."""
    from slurmray.loading.edit import amended
    from slurmray.loading.load import FLAGS

    if wrong := [problem for problem in _problems(example, answers) if problem.where.startswith("--")]:
        raise SpecError(wrong)
    text = example.read_text(encoding="utf-8")
    for flag, value in answers:
        text = amended(text, tuple(FLAGS[flag].split(".")), value)
    places, files = {f"examples/{example.name}": output}, {output: text}
    for path in example.parent.iterdir():
        name = f"examples/{path.name}"
        if path != example and name in text:
            places[name] = Path(path.name)
            if places[name].absolute() == output.absolute():
                raise UsageError(f"{output}: belongs to the example; choose another name with -o")
            files[places[name]] = path.read_text(encoding="utf-8")
    return {path: _moved(content, places) for path, content in files.items()}


def _problems(job: Path, answers: list[tuple[str, str]]) -> list[Problem]:
    from slurmray.loading.load import load_spec

    try:
        load_spec(job, answers)
    except SpecError as error:
        return error.problems
    return []


def _moved(text: str, places: dict[str, Path]) -> str:
    for name, place in places.items():
        text = text.replace(name, str(place))
    return text


def _refuse_to_lose(path: Path) -> None:
    other = "move it away" if path.name.endswith(_CONFIG) else "choose another name with -o"
    raise UsageError(f"{path}: exists already; {other}, or use --force")
