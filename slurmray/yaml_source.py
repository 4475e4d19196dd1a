"""Parses YAML, and records the place of every value.

Scalars keep their source text, e.g. `12:00:00`, `1e-6`, `007`, `true` and `on`: the type of the field decides
what they mean, not YAML. Only unquoted `null`, `~` and an empty value are null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from slurmray.errors import Problem, SpecError

Path: TypeAlias = tuple[str | int, ...]
Place: TypeAlias = tuple[int, int]  # line and column, from 1


@dataclass
class Source:
    """A parsed text. keys, values: their places, by path. problems: mistakes other than syntax errors."""

    name: str
    data: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    problems: list[tuple[Place, Problem]] = field(default_factory=list)

    def where(self, place: Place) -> str:
        """Return a place for messages, e.g. `job.yaml:12:5`."""
        return f"{self.name}:{place[0]}:{place[1]}"

    def add_problem(self, place: Place, text: str) -> None:
        """Add a problem; parsing continues."""
        self.problems.append((place, Problem(self.where(place), text)))


class _Loader(yaml.SafeLoader):
    # Without resolvers every scalar is text, so that any other tag is an explicit one.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            text = f"*{event.anchor}: aliases are not supported; write the value out, or quote it"
            raise yaml.composer.ComposerError(None, None, text, event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


_NULL = "tag:yaml.org,2002:null"
_Loader.add_implicit_resolver(_NULL, re.compile(r"(?:~|null|)$"), ["~", "n", ""])


def _place_at(text: str, offset: int) -> Place:
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def _place(mark: yaml.Mark | None) -> Place:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


# Error of PyYAML (a regex) -> message for users.
_MESSAGES = (
    (r"found character '\\t'", "a tab; indent with spaces"),
    (r"found another document", "a second document (---); a job spec is one document"),
    (
        r"mapping values are not allowed",
        "unexpected colon: correct the indentation, or quote the value",
    ),
    (r"could not find expected ':'", "expected `name: value`, found no colon"),
    (r"expected alphabetic or numeric", "quote a value that begins with * or &"),
    (r"found character (.+) that cannot start any token", r"quote a value that begins with \1"),
    (r"expected <block end>", "the indentation does not match the lines above; correct it"),
    (r"got '<stream end>'", "a bracket before this is not closed; close it"),
)


def _syntax_error(error: yaml.MarkedYAMLError) -> tuple[Place, str]:
    if "while scanning a quoted" in (error.context or "") and "end of stream" in (error.problem or ""):
        return _place(error.context_mark), "this quote is not closed; close it"
    problem = error.problem or "not YAML"
    for pattern, message in _MESSAGES:
        if match := re.search(pattern, problem):
            problem = match.expand(message)
            break
    return _place(error.problem_mark or error.context_mark), problem


def decode(name: str, raw: bytes) -> str:
    """Return the text of a file; SpecError if it is not UTF-8, or has a NUL character."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _place_at(raw[: error.start].decode("latin-1"), error.start)
        raise SpecError(
            [Problem(f"{name}:{place[0]}:{place[1]}", "not UTF-8; save the file as UTF-8")]
        ) from None
    if "\0" in text:
        place = _place_at(text, text.index("\0"))
        raise SpecError([Problem(f"{name}:{place[0]}:{place[1]}", "a NUL character; use a text file")])
    return text


def read(name: str, text: str) -> Source:
    """Parse a text; SpecError for the first syntax error."""
    source = Source(name)
    try:
        root = yaml.compose(text, _Loader)
    except yaml.reader.ReaderError as error:
        place = _place_at(text, error.position)
        source.add_problem(
            place, f"the control character {chr(error.character)!r}; leave it out, or escape it in quotes"
        )
    except yaml.MarkedYAMLError as error:
        source.add_problem(*_syntax_error(error))
    except RecursionError:
        source.add_problem((1, 1), "nested too deeply; use fewer levels")
    if source.problems:
        raise SpecError([problem for _, problem in source.problems])
    if root is not None:
        source.data = _plain(source, (), root)
    return source


def _plain(source: Source, path: Path, node: yaml.Node) -> Any:
    place = _place(node.start_mark)
    source.values[path] = place
    if node.tag not in (_NULL, *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))):
        source.add_problem(
            place, f"the tag {node.tag.replace('tag:yaml.org,2002:', '!!')} is not supported; leave it out"
        )
    if isinstance(node, yaml.SequenceNode):
        return [_plain(source, (*path, number), item) for number, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(source, path, node)
    return None if node.tag == _NULL else node.value


def _mapping(source: Source, path: Path, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        place = _place(key.start_mark)
        if not isinstance(key, yaml.ScalarNode):
            source.add_problem(place, "a name must be text; quote it if it begins with [ or {")
            continue
        name = key.value
        dotted = ".".join(str(part) for part in (*path, name))
        if name == "<<":
            source.add_problem(place, f"{dotted}: merge keys are not supported; write the values out")
        elif name in found:
            source.add_problem(
                place, f"{dotted}: set twice, first in line {source.keys[*path, name][0]}; keep one"
            )
        else:
            source.keys[*path, name] = place
            found[name] = _plain(source, (*path, name), value)
    return found
