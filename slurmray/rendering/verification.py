"""Verifies scripts: renders a script again from its own settings, directives and site block, and compares.

Hashes in the header prove nothing against somebody who can compute them. So every byte is compared with what
the installed version renders, except for the values that only this job has; those are named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from slurmray._version import __version__
from slurmray.agent import parts, script_parts
from slurmray.rendering import part_files, script
from slurmray.rendering.directives import ONE_TASK, make_section_lines
from slurmray.rendering.output import HEADER, SEAL, is_sealed, seal
from slurmray.rendering.pretty_json import format_json
from slurmray.slurm import syntax
from slurmray.spec.runtimes import RUNTIMES, candidates

if TYPE_CHECKING:
    from slurmray.agent.wire.settings import Settings

# container.runtime -> runtimes in the story. singularity has the story of apptainer.
STORIES = {name: candidates(name) for name in RUNTIMES if name != "singularity"}
# Fields of the job spec with commands, or options of programs on the host -> their place in the settings.
COMMANDS = {
    **{name: name for name in ("setup", "node_env", "prepare", "services")},
    "run": "trainer.command",
    **{
        f"container.{name}": f"container.{name}"
        for name in ("setup", "command", "build", "args", "step_args")
    },
    **{f"ray.{name}": f"ray.{name}" for name in ("args", "head_args", "worker_args")},
    "ray.runtime_env": "trainer.runtime_env",
}
# Options of sbatch with which something else than the script runs.
_RUNS_SOMETHING = ("bb", "bbf", "get-user-env")
_HASH = re.compile(r"^# slurmray-(story|agent \w+): [0-9a-f]{64}$", re.MULTILINE | re.ASCII)
# What a difference is in -> where that begins.
_PLACES = (
    ("header", "#!"),
    ("settings", script_parts.SETTINGS_BEGIN),
    ("text between settings and story", script_parts.SETTINGS_END),
    ("story", script_parts.STORY_BEGIN),
    ("text between story and agent", script_parts.STORY_END),
    ("agent", script_parts.AGENT_BEGIN),
    ("text after the agent", script_parts.AGENT_END),
)


@dataclass(frozen=True)
class Verdict:
    """The result for a file. text: one line. code: 0 as rendered, 1 edited, 2 cannot be verified."""

    text: str
    code: int


class _EditedError(Exception):
    """A part that slurmray does not write; the message is a verdict."""


def verify(text: str) -> Verdict | None:
    """Compare a script with what the installed slurmray renders; None for a file that is not slurmray's."""
    rendered = re.search(rf"^{HEADER} ([\w.+-]+) .*$", text, re.MULTILINE | re.ASCII)
    if not rendered:
        return None
    if not text.startswith("#!"):  # a dstack task, which has no parts
        if not is_sealed(text):
            return Verdict("edited: the seal in its header is that of another text", 1)
        task = "not a script but a task of dstack"
        return Verdict(f"cannot be verified: {task}; render it again and compare", 2)
    if rendered[1] != __version__:
        by = f"its header names slurmray {rendered[1]}, and this is {__version__}"
        return Verdict(f"cannot be verified: {by}; use the `slurmray verify` of that version", 2)
    try:
        return Verdict(_verify(text, rendered.start()), 0)
    except _EditedError as error:
        return Verdict(str(error), 1)


def _verify(text: str, header: int) -> str:
    """The verdict on a script as rendered; _EditedError for others. header: where the version is."""
    above = text[:header].split("\n")[1:-2]  # without the first line, and the # above the version
    settings, canonical, names = _read_settings(text)
    runtimes = settings["container"]["runtimes"]
    site = _read_site(text[header:].partition("\n#\n")[0])
    blocks = {part: _read_block(text, part, site) for part in ("prologue", "epilogue")} if site else {}
    expected = script.rebuild(above, canonical, runtimes, names, site, blocks)
    own_seal = SEAL.search(text)
    sealed = SEAL.sub(own_seal[0] if own_seal else "", seal(expected), count=1)
    if text != sealed:
        hashes = {match[1]: match[0] for match in _HASH.finditer(text[header:])}
        alike = _HASH.sub(lambda match: hashes.get(match[1], match[0]), sealed, count=2 + len(names))
        # What has changed is of interest, and not its hash.
        raise _EditedError(f"edited: {_describe_difference(text, alike if alike != text else sealed)}")
    if not is_sealed(text):
        raise _EditedError(
            "edited: settings, directives or site's commands; the seal is that of another text"
        )
    carried = ", ".join([part_files.CORE, *names])
    notes = [f"as rendered: story and agent are those of slurmray {__version__}, with {carried}"]
    if commands := _find_commands(settings):
        notes.append(f"its settings have commands of this job: {', '.join(commands)}")
    if unusual := [*_unusual_directives(above, settings, bool(site))]:
        notes.append(f"directives to look at: {', '.join(unusual)}")
    if site:
        lines = [_describe_lines(text, part, site) for part, block in blocks.items() if block]
        notes.append(f"commands of the site's template {site}: {', '.join(lines) or 'only directives'}")
    return "; ".join(notes)


def _read_settings(text: str) -> tuple[dict[str, Any], str, list[str]]:
    """The settings of a script, also as slurmray writes them, and the parts of the agent that they need."""
    names: list[str] = []
    try:
        settings = cast("dict[str, Any]", script_parts.read_settings(text))
        canonical = format_json(settings)
        names = parts.needed_parts(cast("Settings", settings))
        known = settings["version"] == __version__ and isinstance(settings["setup"], str)
        known = known and tuple(settings["container"]["runtimes"]) in {*STORIES.values(), ("singularity",)}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        known = False
    if not known:
        raise _EditedError("edited: the settings are not those of a job of this version")
    return settings, canonical, names


def _read_site(header: str) -> str:
    """The name of the site's template, escaped as in the header; "" without one."""
    named = re.search(r"^# slurmray-site: (.*)$", header, re.MULTILINE)
    try:
        if named and format_json(json.loads(f'"{named[1]}"')) != f'"{named[1]}"':
            raise ValueError
    except ValueError:
        raise _EditedError("edited: header, the name of the site's template") from None
    return named[1] if named else ""


def _look_up(settings: Mapping[str, Any], path: str) -> object:
    """A value of the settings by its dotted path; None without one."""
    value: object = settings
    for name in path.split("."):
        if isinstance(value, list):
            value = value[int(name)] if name.isdecimal() and int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _find_commands(settings: Mapping[str, Any]) -> list[str]:
    """Fields of COMMANDS that are set, or that a start on fewer nodes sets."""
    starts = settings.get("fewer_nodes")
    parts = starts.values() if isinstance(starts, dict) else ()
    changed = {f"{path}." for part in parts if isinstance(part, dict) for path in part}
    return [
        field
        for field, path in COMMANDS.items()
        if _look_up(settings, path)
        or any(other.startswith(f"{path}.") or f"{path}.".startswith(other) for other in changed)
    ]


def _unusual_directives(lines: list[str], settings: Mapping[str, Any], has_site: bool) -> Iterator[str]:
    """Lines above the header that do not ask for resources alone; _EditedError for those of nobody.

    A site's template may write any; without one, slurmray writes only options that a job spec may have.
    """
    own = {ONE_TASK, syntax.NEXT_COMPONENT}
    may_lose_nodes = _look_up(settings, "on_node_loss") != "fail" or bool(
        _look_up(settings, "groups.0.spares")
    )
    own.update(
        make_section_lines(
            _look_up(settings, "stop.lead"),
            may_lose_nodes and _look_up(settings, "groups.1") is None,
            bool(_look_up(settings, "requeue.max") or _look_up(settings, "requeue.exit_code")),
        )
    )
    for number, line in enumerate(lines, start=2):
        match = syntax.DIRECTIVE.fullmatch(line)
        option, value = (match[1], match[2]) if match else ("", None)
        is_usual = option in syntax.OPTIONS and option not in _RUNS_SOMETHING
        if line in own or option == "job-name" or is_usual or (has_site and re.fullmatch("(#( .*)?)?", line)):
            continue
        try:
            if not match:
                raise ValueError(line)
            syntax.split_extra(f"--{option}" if value is None else f"--{option}={value}")
        except ValueError:
            if not has_site or not line.startswith("#"):
                raise _EditedError(
                    f"edited: directives, line {number}: slurmray writes no such line"
                ) from None
        yield f"--{option} (line {number})" if match else f"line {number}"


def _read_block(text: str, part: str, site: str) -> str:
    """What a site's template renders as a block."""
    begin, end = _marks(part, site)
    block = text.partition(script_parts.AGENT_BEGIN)[0].partition(begin)[2].partition(end)[0]
    return block.removeprefix("site_epilogue() {\n").removesuffix("\n}") if part == "epilogue" else block


def _marks(part: str, site: str) -> tuple[str, str]:
    return f"\n# ---- site {part}, from {site}\n", f"\n# ---- end of site {part}\n"


def _describe_lines(text: str, part: str, site: str) -> str:
    """The lines of a site's block, e.g. `lines 90-94`."""
    first, last = (text.count("\n", 0, text.index(mark)) for mark in _marks(part, site))
    return f"{part} in lines {first + 3}-{last + 1}"


def _describe_difference(text: str, expected: str) -> str:
    """The place of everything that differs, e.g. `story, lines 176-180`."""
    old, new = expected.split("\n"), text.split("\n")
    same = _count_common(old, new)
    same_end = _count_common(old[same:][::-1], new[same:][::-1])
    first, last = same + 1, max(same + 1, len(new) - same_end)
    places = [_find_place(expected, old, number) for number in (same, max(same, len(old) - same_end - 1))]
    return f"{' to '.join(dict.fromkeys(places))}, line{f's {first}-{last}' if last > first else f' {first}'}"


def _find_place(text: str, lines: list[str], number: int) -> str:
    """The part of a script in which a line is; number: from 0 on."""
    offset = sum(len(line) + 1 for line in lines[:number])
    place, at = "", 0
    for name, begin in _PLACES:
        at = text.index(begin, at)
        if at < offset or not place:
            place = name
    return place


def _count_common(before: list[str], after: list[str]) -> int:
    """Length of the common prefix."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))
