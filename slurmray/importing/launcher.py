"""Reads a launcher and writes a job spec whose comments have what became of each of its lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurmray import yaml_source
from slurmray.errors import Problem, SpecError
from slurmray.importing.assembly import assemble
from slurmray.importing.draft import Draft, TooLargeError
from slurmray.importing.draft_text import Imported, clean, write_job_spec
from slurmray.importing.expansion import Variables
from slurmray.importing.importer import Importer
from slurmray.importing.kinds import check_kind
from slurmray.importing.reader import Context, Reader
from slurmray.importing.secrets import secrets_in
from slurmray.importing.slurm_options import read_directives
from slurmray.importing.source import Source
from slurmray.importing.syntax_tree import BashSyntaxError, find_parser, parse
from slurmray.importing.words import constant

MAX_BYTES = yaml_source.MAX_BYTES

_BY_HAND = "write a job spec by hand"
# Hydra's --multirun or -m, which is before or behind its overrides; python's own -m is before a module.
_MULTIRUN = re.compile(r"\s(?:--multirun|-m\s+[\w.+/@~-]+=\S*|-m$)")


def read_launcher(name: str, raw: bytes, arguments: Sequence[str] | None = None) -> Imported:
    """Return the job spec of a bash script. SpecError, UsageError.

    name: of its file, for messages. arguments: with which it was started, if they are known.
    """
    parser = find_parser()
    if len(raw) > MAX_BYTES:
        raise SpecError([Problem(name, f"is larger than {MAX_BYTES >> 10} KB; no launcher is")])
    text = yaml_source.decode(name, raw)
    check_kind(name, text)
    draft = Draft()
    try:
        has_trainer = _read(parser, text, arguments, draft)
    except BashSyntaxError as error:
        place, _, message = str(error).partition(": ")
        raise SpecError([Problem(f"{name}:{place}", clean(message))]) from None
    except TooLargeError:
        raise SpecError([Problem(name, f"has too many commands or too long values; {_BY_HAND}")]) from None
    except RecursionError:
        raise SpecError([Problem(name, f"nested too deeply; {_BY_HAND}")]) from None
    return write_job_spec(name, text, draft, has_trainer)


def _read(parser: str, text: str, arguments: Sequence[str] | None, draft: Draft) -> bool:
    """Set the fields of a bash script; return whether it has a trainer."""
    text = re.sub(r"\\(?=\s*\Z)", " ", text)  # bash ignores it at the end
    tree = parse(parser, text.encode())
    for secret in secrets_in(text):
        draft.add_secret(secret)
    importer = Importer(draft)
    given = read_directives(text, importer)
    variables = Variables(Source(text.encode()))
    variables.texts.update((key, constant(value, 0)) for key, value in given.items())
    context = Context(is_inside=draft.get("container.image") is not None)
    reader = Reader(parser, importer, variables, context)
    reader.read(tree)
    for line, variable in variables.defaults.items():
        if any(line in lines for path, lines in draft.lines.items() if path[0] != "run"):
            draft.remark(line, f"{variable}: its default, not your environment")
    for program in importer.programs:
        if _MULTIRUN.search(program.text):
            draft.look(program.lines[:1], "Hydra starts one run after another here: a job for each is sweep")
    return assemble(importer, reader, arguments, given)
