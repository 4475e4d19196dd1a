"""Writes a job spec with comments."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from slurmray.importing.draft import Draft, Notes, Path
from slurmray.importing.known import CONTINUES, STRUCTURE
from slurmray.loading.edit import as_json, format_scalar
from slurmray.presets.ranks import spans
from slurmray.spec.job_spec import JobSpec

_MAX_SHOWN = 80  # characters of a line of the script


def write_fields(draft: Draft) -> str:
    """Return the fields as YAML, each with the lines that it is from."""
    spec = draft.nested()
    order = list(JobSpec.model_fields)
    text: list[str] = []
    for name in sorted(spec, key=order.index):
        text += _field(name, spec[name], (name,), draft, 0)
    return "".join(f"{line}\n" for line in text)


def write_looks(draft: Draft, numbers: Iterable[int], lines: Sequence[str]) -> str:
    """Return comments about what is left to do: variables, and lines of the script that need a look."""
    looks = [number for number in numbers if draft.notes[number].looks]
    given = [path[1] for path, value in draft.fields.items() if path[0] == "env" and value is None]
    text = [f"# Export before sbatch, or write into env_file: {clean(', '.join(given))}"] * bool(given)
    text += ["# Please look at these lines of the script:"] * bool(looks)
    for first, last, notes in _runs(draft, looks):
        source = _shown(draft, lines[first - 1].strip())
        text.append(
            f"#   {_range(first, last)}: please look: {_reasons(draft, notes)}"
            + (f": {source}" if source else "")
        )
    return "".join(f"{line}\n" for line in text)


def write_lines(draft: Draft, numbers: Iterable[int]) -> str:
    """Return a comment about each of the other lines."""
    text = ["# The other lines of the script:"]
    others = [number for number in numbers if not draft.notes[number].looks]
    for first, last, notes in _runs(draft, others):
        text.append(f"#   {_range(first, last)}: {_reasons(draft, notes)}")
    return "".join(f"{line}\n" for line in text) if others else ""


def _reasons(draft: Draft, notes: Notes) -> str:
    became = ", ".join(dict.fromkeys(name.partition(".")[0] for name in notes.became))
    skipped = [reason for reason in notes.skipped if reason not in (STRUCTURE, CONTINUES)]
    remarks = [f"became {became}"] * bool(became and notes.looks) + notes.remarks
    if became and skipped:  # only a part of the line became a field
        remarks.append(f"left out because: {'; '.join(skipped)}")
    if notes.looks:
        text = "; ".join(notes.looks)
    elif became:
        text = f"became {became}"
    else:
        text = f"not needed because: {'; '.join(skipped or notes.skipped)}"
    return clean(draft.hide(text + (f" ({'; '.join(remarks)})" if remarks else "")))


def _runs(draft: Draft, numbers: Sequence[int]) -> Iterator[tuple[int, int, Notes]]:
    """Yield first and last of lines that follow each other with the same notes."""
    for _, group in itertools.groupby(
        enumerate(numbers), key=lambda pair: (pair[1] - pair[0], _reasons(draft, draft.notes[pair[1]]))
    ):
        run = [number for _, number in group]
        yield run[0], run[-1], draft.notes[run[0]]


def _range(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _shown(draft: Draft, line: str) -> str:
    """Return a line of the script for a comment; nothing if it may have a secret."""
    if draft.mentions_secret(line):
        return ""
    line = clean(line)
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 3] + "..."


def clean(text: str) -> str:
    """Return a text on one line, without control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _field(name: str, value: Any, path: Path, draft: Draft, depth: int, beginning: str = "") -> Iterator[str]:
    """Yield the lines of a field. beginning: in place of the indentation, `- ` of a list's item."""
    indent = "  " * depth
    start = (beginning or indent) + f"{format_scalar(name)}:"
    comment = _comment(draft.lines.get(path, set()))
    if isinstance(value, dict):
        if not value:
            yield f"{start} {{}}{comment}"
            return
        yield start + comment
        for key, item in value.items():
            yield from _field(str(key), item, (*path, str(key)), draft, depth + 1)
    elif isinstance(value, list):
        yield f"{start}{comment}" if value else f"{start} []{comment}"
        for number, item in enumerate(value):
            yield from _item(item, (*path, str(number)), draft, depth + 1)
    elif isinstance(value, str) and _is_block(value):
        yield f"{start} |-{comment}"
        yield from (f"{indent}  {line}" for line in value.split("\n"))
    else:
        yield f"{start} {_scalar(value)}{comment}"


def _item(item: Any, path: Path, draft: Draft, depth: int) -> Iterator[str]:
    indent = "  " * depth
    comment = _comment(draft.lines.get(path, set()))
    if isinstance(item, dict) and item:
        for number, (key, value) in enumerate(item.items()):
            lines = _field(
                str(key), value, (*path, str(key)), draft, depth + 1, "" if number else f"{indent}- "
            )
            first, *rest = lines
            yield first + (comment if number == 0 else "")
            yield from rest
    elif isinstance(item, list | dict):
        yield f"{indent}- {as_json(item)}{comment}"
    else:
        yield f"{indent}- {_scalar(item)}{comment}"


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return format_scalar(str(value))


def _is_block(text: str) -> bool:
    """Whether a text is written as a block: several lines that YAML reads as they are."""
    lines = text.split("\n")
    return (
        len(lines) > 1
        and all(line.isprintable() and line == line.rstrip() and line for line in lines)
        and not lines[0].startswith(" ")
    )


def _comment(lines: Collection[int]) -> str:
    return f" # line{'s' if len(lines) > 1 else ''} {spans(lines)}" if lines else ""
