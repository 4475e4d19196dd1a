"""Reads a launcher and writes a job spec whose comments have what became of each of its lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from slurmray import yaml_source
from slurmray.errors import Problem, SpecError
from slurmray.importing.assembly import assemble
from slurmray.importing.draft import Draft, TooLargeError
from slurmray.importing.draft_text import clean, write_fields, write_lines, write_looks
from slurmray.importing.expansion import Variables
from slurmray.importing.importer import Importer
from slurmray.importing.reader import Context, Reader
from slurmray.importing.sbatch_lines import count_gpus, read_directives
from slurmray.importing.secrets import secrets_in
from slurmray.importing.syntax_tree import BashSyntaxError, find_parser, parse
from slurmray.importing.words import constant

MAX_BYTES = yaml_source.MAX_BYTES


class Imported(NamedTuple):
    """A job spec, and how many lines of the launcher became fields, are not needed, and need a look."""

    text: str
    became: int
    skipped: int
    looks: int
    has_trainer: bool

    @property
    def summary(self) -> str:
        """The counts, in one line."""
        total = self.became + self.skipped + self.looks
        return (
            f"{total} lines: {self.became} became fields, {self.skipped} not needed, {self.looks} to look at"
        )


def read_launcher(name: str, raw: bytes, arguments: Sequence[str] | None = None) -> Imported:
    """Return the job spec of a bash script. SpecError, UsageError.

    name: of its file, for messages. arguments: with which it was started, if they are known.
    """
    parser = find_parser()
    if len(raw) > MAX_BYTES:
        raise SpecError([Problem(name, f"is larger than {MAX_BYTES >> 10} KB; no launcher is")])
    text = yaml_source.decode(name, raw)
    _check_shell(name, text)
    draft = Draft()
    try:
        tree = parse(parser, text.encode())
        for secret in secrets_in(text):
            draft.add_secret(secret)
        importer = Importer(draft)
        given = read_directives(text, draft, importer.containers.read_srun_option)
        importer.gpus = count_gpus(draft)
        variables = Variables(text.encode())
        variables.texts.update((key, constant(value, 0)) for key, value in given.items())
        reader = Reader(
            parser, importer, variables, Context(is_inside=draft.get("container.image") is not None)
        )
        reader.read(tree)
        for line, variable in variables.defaults.items():
            if draft.notes.get(line) and any(name != "run" for name in draft.notes[line].became):
                draft.remark(line, f"{variable}: its default, not your environment")
        has_trainer = assemble(importer, reader, arguments, given)
    except BashSyntaxError as error:
        place, _, message = str(error).partition(": ")
        raise SpecError([Problem(f"{name}:{place}", clean(message))]) from None
    except TooLargeError:
        raise SpecError(
            [Problem(name, "has too many commands or too long values; write a job spec by hand")]
        ) from None
    except RecursionError:
        raise SpecError([Problem(name, "nested too deeply; write a job spec by hand")]) from None
    return _write(name, text, draft, has_trainer)


def _check_shell(name: str, text: str) -> None:
    first = text.partition("\n")[0]
    if not text.strip():
        raise SpecError([Problem(name, "is empty; name a bash script that starts Ray under Slurm")])
    if "\r\n" in text:
        raise SpecError([Problem(name, "has the line ends of Windows, which sbatch refuses; use dos2unix")])
    is_other = first.startswith("#!") and not re.search(r"\b(?:bash|sh)\b", first)
    if is_other or name.endswith((".py", ".yaml", ".yml")):
        raise SpecError([Problem(f"{name}:1:1", "is no bash script; init --from reads only bash")])


def _write(name: str, text: str, draft: Draft, has_trainer: bool) -> Imported:
    lines = text.split("\n")
    counted = [
        number for number, line in enumerate(lines, start=1) if _is_code(line) or number in draft.notes
    ]
    counted = [number for number in counted if number <= len(lines) and lines[number - 1].strip()]
    for number in counted:
        if number not in draft.notes:
            draft.look([number], "slurmray init does not know it")
    notes = [draft.notes[number] for number in counted]
    looks = sum(bool(note.looks) for note in notes)
    became = sum(bool(note.became) and not note.looks for note in notes)
    imported = Imported("", became, len(notes) - looks - became, looks, has_trainer)
    parts = [
        f"# From {clean(draft.hide(name))}, by slurmray init --from: {imported.summary}.\n",
        write_looks(draft, counted, lines),
        write_fields(draft),
        write_lines(draft, counted),
    ]
    return imported._replace(text="".join(parts))


def _is_code(line: str) -> bool:
    return not line.lstrip().startswith("#") or line.startswith("#SBATCH")
