"""Parses YAML, and records the place of every value.

Scalars keep their source text, e.g. `12:00:00`, `1e-6`, `007`, `true` and `on`: the type of the field decides
what they mean, not YAML. Only unquoted `null`, `~` and an empty value are null.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from slurmray.errors import Problem, SpecError

# Of a text: PyYAML without libyaml, which has the exact places, reads 90 KB in a second.
MAX_BYTES = 256 << 10
# Aliases of aliases would fill the memory.
MAX_NODES = 100_000
MAX_CHARACTERS = 1_000_000

Path: TypeAlias = tuple[str | int, ...]
Place: TypeAlias = tuple[int, int]  # line and column, from 1


@dataclass
class Source:
    """A parsed text."""

    name: str
    data: Any = None
    keys: dict[Path, Place] = field(default_factory=dict)  # by path, like values
    values: dict[Path, Place] = field(default_factory=dict)
    names: dict[Path, str] = field(default_factory=dict)  # of the other files that values are from
    problems: list[tuple[Place, Problem]] = field(default_factory=list)  # other than syntax errors

    def where(self, place: Place, path: Path = ()) -> str:
        """Return a place for messages, e.g. `job.yaml:12:5`. path: of its value."""
        return f"{self.names.get(path, self.name)}:{place[0]}:{place[1]}"

    def part(self, path: Path) -> Source:
        """Return the value at a path by itself."""
        data = functools.reduce(lambda at, name: at[name], path, self.data)
        keys, values = (
            {at[len(path) :]: place for at, place in places.items() if at[: len(path)] == path}
            for places in (self.keys, self.values)
        )
        return Source(self.name, data, keys, values)

    def fill(self, other: Source, path: Path = ()) -> None:
        """Add what this text's mappings lack, from those of another text: sections name by name."""
        mine, theirs = (
            functools.reduce(lambda at, name: at[name], path, source.data) for source in (self, other)
        )
        added = {name: value for name, value in theirs.items() if name not in mine}
        mine |= added
        depth = len(path)
        for at, place in other.values.items():
            if len(at) > depth and at[:depth] == path and at[depth] in added:
                self.values[at] = place
                self.names[at] = other.names.get(at, other.name)
                if at in other.keys:
                    self.keys[at] = other.keys[at]
        for name, value in theirs.items():
            if name not in added and isinstance(value, dict) and isinstance(mine[name], dict):
                self.fill(other, (*path, name))

    def add_problem(self, place: Place, text: str) -> None:
        """Add a problem; parsing continues."""
        self.problems.append((place, Problem(self.where(place), text)))


class _Loader(yaml.SafeLoader):
    # Without resolvers every scalar is text, so that any other tag is an explicit one.
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same with libyaml, where PyYAML has it: about ten times as fast, but with less exact errors."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


_NULL = "tag:yaml.org,2002:null"
for _loader in (_Loader, _FastLoader):
    _loader.add_implicit_resolver(_NULL, re.compile(r"(?:~|null|)$"), ["~", "n", ""])
RESOLVERS = _Loader.yaml_implicit_resolvers  # also for what writes YAML


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
    (r"found undefined alias '(.+)'", r"*\1: there is no &\1 above it; correct the name, or quote the value"),
    (r"found duplicate anchor '(.+)';", r"&\1 is used twice; rename one"),
    (r"expected <block end>", "the indentation does not match the lines above; correct it"),
    (r"got '<stream end>'", "a bracket before this is not closed; close it"),
)


_NO_SPACE = re.compile(r"[ -]*[A-Za-z_][\w-]*:(?=[^\s/])")  # name:value; http://host is no such pair


def _syntax_error(text: str, error: yaml.MarkedYAMLError) -> tuple[Place, str]:
    if "while scanning a quoted" in (error.context or "") and "end of stream" in (error.problem or ""):
        return _place(error.context_mark), "this quote is not closed; close it"
    problem = error.problem or "not YAML"
    if "mapping values are not allowed" in problem and error.problem_mark and error.problem_mark.line:
        # YAML takes a line `nodes:2` and the next one for one value, and finds a colon in it.
        line = error.problem_mark.line
        if match := _NO_SPACE.match(text.splitlines()[line - 1]):
            return (line, match.end() + 1), "a space is missing after the colon"
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
        where = Source(name).where(_place_at(raw[: error.start].decode("latin-1"), error.start))
        raise SpecError([Problem(where, "not UTF-8; save the file as UTF-8")]) from None
    if "\0" in text:
        where = Source(name).where(_place_at(text, text.index("\0")))
        raise SpecError([Problem(where, "a NUL character; use a text file")])
    return text


def read(name: str, text: str, *, is_fast: bool = False) -> Source:
    """Parse a text; SpecError for the first syntax error, or for too much text.

    is_fast: with libyaml, where places and messages are less exact.
    """
    source = Source(name)
    builder = _Builder(source)
    if len(text) > MAX_BYTES:
        raise SpecError([Problem(name, f"is larger than {MAX_BYTES >> 10} KB; put data into other files")])
    try:
        root = yaml.compose(text, _FastLoader if is_fast else _Loader)
        if root is not None:
            source.data = builder.plain((), root, ())
    except yaml.reader.ReaderError as error:
        character = chr(error.character)
        message = f"the control character {character!r}; leave it out, or escape it in quotes"
        raise SpecError([Problem(source.where(_place_at(text, error.position)), message)]) from None
    except yaml.MarkedYAMLError as error:
        place, message = _syntax_error(text, error)
        raise SpecError([Problem(source.where(place), message)]) from None
    except RecursionError:
        raise SpecError([Problem(source.where((1, 1)), "nested too deeply; use fewer levels")]) from None
    for count, limit, unit in (
        (builder.visited, MAX_NODES, "values"),
        (builder.characters, MAX_CHARACTERS, "characters"),
    ):
        if count > limit:
            message = f"more than {limit} {unit}; use fewer aliases"
            raise SpecError([Problem(source.where((1, 1)), message)])
    return source


class _Builder:
    """Makes plain data from nodes. above: the nodes that contain a node; an alias may not be one of them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.visited = 0
        self.characters = 0

    def plain(self, path: Path, node: yaml.Node, above: tuple[yaml.Node, ...]) -> Any:
        """Return the value of a node."""
        place = _place(node.start_mark)
        if not self._visit(node, place, above):
            return None
        self.source.values[path] = place
        if node.tag not in (_NULL, *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            self.source.add_problem(place, f"the tag {tag} is not supported; leave it out")
        above = (*above, node)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain((*path, number), item, above) for number, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            pairs: dict[str, Any] = {}
            self._add_pairs(pairs, path, node, above)
            return pairs
        return None if node.tag == _NULL else node.value

    def _visit(self, node: yaml.Node, place: Place, above: tuple[yaml.Node, ...]) -> bool:
        self.visited += 1
        if isinstance(node, yaml.ScalarNode):
            self.characters += len(node.value)
        if node in above:
            self.source.add_problem(place, "an alias is inside the value that it stands for; write it out")
        return node not in above and self.visited <= MAX_NODES and self.characters <= MAX_CHARACTERS

    def _add_pairs(
        self, pairs: dict[str, Any], path: Path, node: yaml.MappingNode, above: tuple[yaml.Node, ...]
    ) -> None:
        """Add the pairs of a mapping and then those that it merges, except for names that are in `pairs`."""
        source = self.source
        own: set[str] = set()
        merged: list[yaml.Node] = []
        for key, value in node.value:
            place = _place(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                source.add_problem(place, "a name must be text; quote it if it begins with [ or {")
            elif key.value == "<<":
                merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
            elif key.value in own:
                field = (*path, key.value)
                dotted = ".".join(str(part) for part in field)
                first = source.keys[field][0]
                source.add_problem(place, f"{dotted}: set twice, first in line {first}; keep one")
            elif key.value not in pairs:
                own.add(key.value)
                field = (*path, key.value)
                source.keys[field] = place
                pairs[key.value] = self.plain(field, value, above)
        for part in merged:  # yaml.org/type/merge: the first one wins
            place = _place(part.start_mark)
            if not isinstance(part, yaml.MappingNode):
                source.add_problem(place, "<<: expected `name: value` pairs, or a list of them")
            elif self._visit(part, place, above):
                self._add_pairs(pairs, path, part, (*above, part))
