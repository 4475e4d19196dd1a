"""Verifies that a script is as rendered, and finds changed lines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurmray import __version__
from slurmray.agent import script as parts
from slurmray.rendering import script
from slurmray.rendering.output import HEADER, is_sealed, sha256
from slurmray.rendering.settings import AUTO_RUNTIMES

# container.runtime -> runtimes in the story. singularity has the story of apptainer.
STORIES: dict[str, tuple[str, ...]] = {
    "auto": AUTO_RUNTIMES,
    "podman": ("podman",),
    "docker": ("docker",),
    "apptainer": ("apptainer",),
    "pyxis": ("pyxis",),
    "none": ("none",),
}

_Lines = list[tuple[int, str]]  # line number from 1 on, text
_FIELD = re.compile(r"^# slurmray-(\w+): ?(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """The result for a file. text: one line. is_changed: whether it differs from the rendered one."""

    text: str
    is_changed: bool


def verify(text: str) -> Verdict | None:
    """Compare a script with what slurmray rendered; None for a file that slurmray did not render.

    A script of another version than the installed one is compared with the hashes in its header only.
    """
    rendered = re.search(rf"^{HEADER} (\S+) .*$", text, re.MULTILINE)
    if not rendered:
        return None
    version = rendered[1]
    fields = dict(_FIELD.findall(text[: text.find(parts.SETTINGS_BEGIN)]))
    if "lines" not in fields:
        return Verdict("header edited", True) if text.startswith("#!") else _of_task(text, version)
    lines = _by_part(text)
    changes = [*_changed_values(text, lines, fields["lines"])]
    if version == __version__:
        changes += _changed_text(text, lines)
    else:
        changes += _changed_hashes(text, fields)
    site = f"site block added by {fields['site']}" if "site" in fields else ""
    if not changes and not is_sealed(text):
        changes = ["site block or header edited" if lines["site"] else "header edited"]
    if changes:
        return Verdict("; ".join([*changes, *([site] if site else [])]), True)
    verdict = f"as rendered by slurmray {version}"
    if version != __version__:
        verdict += f" by the hashes in its header (installed: {__version__})"
    return Verdict(f"{verdict}; {site}" if site else verdict, False)


def _of_task(text: str, version: str) -> Verdict:
    """The verdict on a dstack task, which has no parts."""
    is_changed = not is_sealed(text)
    state = "edited" if is_changed else "unchanged"
    about = f"rendered by the dstack target of slurmray {version}, only the seal can be checked"
    return Verdict(f"{state}; {about}", is_changed)


def _changed_values(text: str, lines: dict[str, _Lines], expected: str) -> Iterator[str]:
    """Directives and settings that differ from their checksums in the header."""
    try:
        found = script.line_sums(text)
    except ValueError:
        yield "settings removed"
        return
    digits = script.SUM_DIGITS
    before = [expected[at : at + digits] for at in range(0, len(expected), digits)]
    numbers = [number for number, _ in [*lines["directives"], *lines["settings"]]]
    first = lines["settings"][0][0] if lines["settings"] else 0
    changed = _changed_numbers(before, found, numbers)
    for part, touched in (
        ("directives", [number for number in changed if number < first]),
        ("settings", [number for number in changed if number >= first]),
    ):
        if touched:
            yield f"{part} edited ({_ranges(touched)})"


def _changed_text(text: str, lines: dict[str, _Lines]) -> Iterator[str]:
    """Parts that differ from those of the installed version."""
    try:
        settings = script.settings_of_text(text)
    except ValueError:
        settings = "{}"
    directives = [line for _, line in lines["directives"]]
    # The runtimes of the settings may have been edited, so the story that differs least is taken.
    stories = [script.assemble(directives, settings, runtimes) for runtimes in STORIES.values()]
    _, text = min((len(_changed_lines(_by_part(each)["story"], lines["story"])), each) for each in stories)
    expected = _by_part(text)
    for part in ("story", "agent", "other"):
        if numbers := _changed_lines(expected[part], lines[part]):
            yield f"{'text between the parts' if part == 'other' else part} changed, {_ranges(numbers)}"


def _changed_hashes(text: str, fields: dict[str, str]) -> Iterator[str]:
    """Parts that differ from their hashes in the header."""
    for part, read in (("story", script.story_of), ("agent", script.agent_of)):
        try:
            found = sha256(read(text))
        except ValueError:
            yield f"{part} removed"
            continue
        if found != fields.get(part):
            yield f"{part} changed"


def _by_part(text: str) -> dict[str, _Lines]:
    """The lines of a script by part. Part `fields`: the hashes in the header."""
    lines: dict[str, _Lines] = {
        part: [] for part in ("directives", "fields", "settings", "story", "site", "agent", "other")
    }
    part = "other"
    all_lines = text.split("\n")
    for number, (line, following) in enumerate(zip(all_lines, [*all_lines[1:], ""], strict=True), start=1):
        if part != "agent" and re.match("# ---- site (prologue|epilogue), from ", following) and not line:
            lines["site"].append((number, line))
            continue
        if part in ("other", "story") and re.match("# ---- site (prologue|epilogue), from ", line):
            outside, part = part, "site"
        elif part == "other" and line.startswith(parts.STORY_BEGIN.strip()):
            part = "story"
        elif (part, line) in (
            ("settings", parts.SETTINGS_END.strip()),
            ("agent", parts.AGENT_END.strip()),
        ):
            part = "other"
        here = part
        if part == "other" and not lines["settings"]:
            here = (
                "directives"
                if line.startswith("#SBATCH")
                else "fields"
                if line.startswith("# slurmray-")
                else part
            )
        lines[here].append((number, line))
        if part == "site" and re.fullmatch("# ---- end of site (prologue|epilogue)", line):
            part = outside
        elif (part, line) == ("story", parts.STORY_END.strip()):
            part = "other"
        elif (part, line) == ("other", parts.SETTINGS_BEGIN.strip()) and not lines["settings"]:
            part = "settings"
        elif (part, line) == ("other", parts.AGENT_BEGIN.strip()):
            part = "agent"
    return lines


def _changed_lines(before: _Lines, after: _Lines) -> list[int]:
    return _changed_numbers(
        [line for _, line in before], [line for _, line in after], [number for number, _ in after]
    )


def _changed_numbers(before: Sequence[str], after: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """Numbers of new lines in `after`, and of lines that follow removed ones. numbers: those of `after`."""
    # difflib is slow for thousands of equal lines.
    same = _common(before, after)
    end = _common(before[same:][::-1], after[same:][::-1])
    if same == len(before) == len(after):
        return []
    old, new = before[same : len(before) - end], after[same : len(after) - end]
    changed: set[int] = set()
    for kind, _, _, first, last in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if kind != "equal":
            here = numbers[same + first :]
            changed.update(here[: last - first] or here[:1] or numbers[-1:] or [0])
    return sorted(changed)


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """Length of the common prefix."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))


def _ranges(numbers: Sequence[int]) -> str:
    """For example `line 12`, `lines 3, 40-42`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    text = ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in ranges)
    return f"{'line' if len(numbers) == 1 else 'lines'} {text}"
