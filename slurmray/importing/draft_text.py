"""Writes a job spec whose comments have what is left to do, and what became of each line of the script."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from slurmray.importing.draft import Draft, Notes
from slurmray.importing.known import CONTINUES, NO_FILE, STRUCTURE
from slurmray.loading.write import write_yaml
from slurmray.presets.ranks import spans
from slurmray.spec.job_spec import JobSpec
from slurmray.spec.types import FILL_IN

_ORDER = list(JobSpec.model_fields)
_MAX_SHOWN = 80  # characters of a line of the script
_CODE = re.compile(r"#SBATCH|\s*[^\s#]")
# Reasons that name what the job does not do, and slurmray does nothing in its place.
_LOST = re.compile(rf"{NO_FILE}|--privileged|of a step")


class Imported(NamedTuple):
    """A job spec; how many lines of the launcher became fields, are not needed, and need a look.

    variables: those whose values only the user has.
    """

    text: str
    became: int
    skipped: int
    looks: int
    variables: list[str]
    has_trainer: bool

    @property
    def summary(self) -> str:
        """The counts, in one line."""
        total = self.became + self.skipped + self.looks
        counts = f"{self.became} became fields, {self.skipped} not needed, {self.looks} to look at"
        unset = f"; {len(self.variables)} to export" if self.variables else ""
        return f"{total} lines of code: {counts}{unset}"


class Verdict(NamedTuple):
    """What became of a line. more: about its parts."""

    kind: Literal["became", "skipped", "look"]
    text: str
    more: str


def write_job_spec(name: str, script: str, draft: Draft, has_trainer: bool) -> Imported:
    """Return the fields, with comments about each line of a script. SpecError if it is too large."""
    lines = dict(enumerate(script.split("\n"), start=1))
    verdicts = dict(_verdicts(draft, lines))
    looks = {number: verdict for number, verdict in verdicts.items() if verdict.kind == "look"}
    others = ((number, each.text + each.more) for number, each in verdicts.items() if each.kind != "look")
    variables = [path[1] for path, value in draft.fields.items() if path[0] == "env" and value is None]
    kinds = Counter(verdict.kind for verdict in verdicts.values())
    imported = Imported("", kinds["became"], kinds["skipped"], kinds["look"], variables, has_trainer)
    to_do = [*_places_to_fill(draft, variables), *_looks(looks, lines, draft)]
    lost = [f"{reason}: {place}" for reason, place in _fold(_lost(draft))]
    ends = [f"{place}: {verdict}" for verdict, place in _fold(others)]
    parts = [
        f"# From {clean(draft.hide(name))}, by slurmray init --from: {imported.summary}.\n",
        _section("Left to do", to_do),
        _section("What the script did and the job does not", lost),
        _write_fields(draft),
        _section("The other lines of the script", ends),
    ]
    return imported._replace(text="".join(parts))


def clean(text: str) -> str:
    """Return a text on one line, without control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)


# Comments.


def _section(title: str, entries: list[str]) -> str:
    lines = [f"# {title}:", *(f"#   {entry}" for entry in entries)]
    return "".join(f"{line}\n" for line in lines) if entries else ""


def _verdicts(draft: Draft, lines: dict[int, str]) -> Iterator[tuple[int, Verdict]]:
    """Yield what became of each line, but for comments."""
    sections: defaultdict[int, dict[str, None]] = defaultdict(dict)
    for path, numbers in draft.lines.items():
        for number in numbers:
            sections[number][path[0]] = None
    unknown = Notes(looks=["slurmray init does not know it"])
    for number, line in lines.items():
        if _CODE.match(line) or (line.strip() and number in draft.notes):
            kind, *texts = _verdict(draft.notes.get(number, unknown), ", ".join(sections[number]))
            yield number, Verdict(kind, *(clean(draft.hide(text)) for text in texts))


def _verdict(notes: Notes, sections: str) -> Verdict:
    """Return what became of a line. sections: of the job spec, in which it is."""
    reasons = "; ".join(each for each in notes.skipped if each not in (STRUCTURE, CONTINUES))
    became = f"became {sections}"
    remarks = [became] * bool(sections and notes.looks) + notes.remarks
    if sections and reasons:  # only a part of the line became a field
        remarks.append(f"left out because: {reasons}")
    more = f" ({'; '.join(remarks)})" if remarks else ""
    if notes.looks:
        return Verdict("look", f"please look: {'; '.join(notes.looks)}", more)
    if sections:
        return Verdict("became", became, more)
    return Verdict("skipped", f"not needed because: {reasons or '; '.join(notes.skipped)}", more)


def _lost(draft: Draft) -> Iterator[tuple[int, str]]:
    """Yield what the job does not do, with the lines that did it."""
    for number, notes in sorted(draft.notes.items()):
        yield from ((number, clean(draft.hide(reason))) for reason in notes.skipped if _LOST.search(reason))


def _places_to_fill(draft: Draft, variables: list[str]) -> Iterator[str]:
    if variables:
        yield f"export before you submit, or move from env to env_file: {clean(', '.join(variables))}"
    if FILL_IN in str(draft.get("run")):
        yield f"write into run what each {FILL_IN.rstrip(':')} asks for"


def _looks(verdicts: dict[int, Verdict], lines: dict[int, str], draft: Draft) -> Iterator[str]:
    """Yield the lines to look at, those that follow each other with the same reason as one."""
    runs = itertools.groupby(enumerate(verdicts), lambda pair: (pair[1] - pair[0], verdicts[pair[1]]))
    for (_, verdict), pairs in runs:
        numbers = [number for _, number in pairs]
        source = lines[numbers[0]].strip()
        shown = "" if draft.mentions_secret(source) else f": {clean(source)}"
        if len(shown) > _MAX_SHOWN:
            shown = f"{shown[:_MAX_SHOWN]}..."
        yield f"{_lines(numbers)}: {verdict.text}{shown}{verdict.more}"


def _fold(texts: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Yield each text with its lines."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for number, text in texts:
        numbers[text].append(number)
    return ((text, _lines(group)) for text, group in numbers.items())


def _lines(numbers: Collection[int]) -> str:
    return f"line{'s' if len(numbers) > 1 else ''} {spans(numbers)}"


def _write_fields(draft: Draft) -> str:
    """Return the fields as YAML, each with the lines that it is from."""
    spec: dict[str, Any] = {}
    for path in sorted(draft.fields, key=lambda path: _ORDER.index(path[0])):
        section = spec
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section[path[-1]] = draft.fields[path]
    return write_yaml(spec, {path: _lines(numbers) for path, numbers in draft.lines.items()})
