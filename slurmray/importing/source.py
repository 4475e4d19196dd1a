"""The text of a script, what is taken out of it, and the variables that its statements set and use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from slurmray.importing.syntax_tree import Node, walk

_ARITHMETIC = ("ArithmExp", "ArithmCmd", "CStyleLoop", "LetClause")
_SETS = re.compile(r"\b([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%]|<<|>>)?=(?!=))")
_COMPARISON = re.compile(r"(?:\[\[?|test) +\S+ +!?==? ")  # e.g. [ "$1" = x ]
_READERS = ("read", "mapfile", "readarray", "getopts", "printf")


@dataclass
class Source:
    """A script, or one within it. edits: replaced bytes, and what is there now.

    places: of a script within a script, offsets of its pieces, and the lines of the outermost script there.
    """

    text: bytes
    places: list[tuple[int, int]] = field(default_factory=list)
    edits: list[tuple[int, int, str | Callable[[], str]]] = field(default_factory=list)

    def text_of(self, node: Node) -> str:
        """Return the source of a node."""
        return self.text[node["Pos"]["Offset"] : node["End"]["Offset"]].decode(errors="replace")

    def lines(self, node: Node) -> list[int]:
        """Return the lines of a node, with its here-documents."""
        if not self.places:
            return list(range(node["Pos"]["Line"], node["Last"][1] + 1))
        start, end = node["Pos"]["Offset"], node["Last"][0]
        return list(range(self._line_at(start), self._line_at(max(start, end - 1)) + 1))

    def _line_at(self, offset: int) -> int:
        place, line = max(each for each in self.places if each[0] <= offset)
        return line + self.text.count(b"\n", place, offset)

    def remove(self, start: int, end: int, text: str | Callable[[], str] = "") -> None:
        """Replace bytes of the source."""
        self.edits.append((start, end, text))

    def insert(self, place: int, text: str) -> None:
        """Insert a text."""
        self.edits.append((place, place, text))

    def render(self, start: int, end: int) -> str:
        """Return the source between these bytes, edited."""
        source, done, pieces = self.text, start, []
        for first, last, text in sorted(self.edits, key=lambda edit: (edit[0], edit[0] < edit[1], -edit[1])):
            if done <= first and last <= end:
                shown = text if isinstance(text, str) else text()
                pieces += [source[done:first].decode(), shown]
                done = last
        return "".join([*pieces, source[done:end].decode()])

    def edits_in(self, node: Node) -> bool:
        """Whether something of a statement's own arguments was replaced, e.g. a secret."""
        place = range(node["Pos"]["Offset"], node["Last"][0])
        return any(first in place and text for first, _, text in self.edits)

    def is_removed(self, node: Node) -> bool:
        """Whether a node was taken out of the source."""
        start, end = (node.get(key, {}).get("Offset", -1) for key in ("Pos", "End"))
        return any(first <= start < end <= last for first, last, _ in self.edits)

    def sets(self, node: Node) -> Iterator[str]:
        """Yield the variables and functions that are left of what a statement sets."""
        for each in walk(node, self.is_removed):
            kind, name = each.get("Type"), each.get("Name")
            if name:
                yield name["Value"]
            elif kind == "ParamExp" and (each.get("Exp") or {}).get("Op") in (":=", "="):
                yield each["Param"]["Value"]
            elif kind in _ARITHMETIC:
                yield from _SETS.findall(self.text_of(each))
            elif kind == "CallExpr" and each.get("Args"):
                first, *rest = map(self.text_of, each["Args"])
                yield from rest if first in _READERS else ()

    def loop_variables(self, node: Node) -> Iterator[str]:
        """Yield the variables of a statement's loops."""
        for each in walk(node):
            if each.get("Type") == "WordIter":
                yield each["Name"]["Value"]
            elif each.get("Type") == "WhileClause":
                yield from (name for condition in each["Cond"] for name in self.sets(condition))

    def uses(self, node: Node, *, in_functions: bool = True) -> Iterator[tuple[str, bool, int]]:
        """Yield what is left of a statement's variables: name, whether it may be missing, and line."""
        tests = [each for each in walk(node) if each.get("Type") in ("TestClause", "CallExpr")]
        tests = [each for each in tests if _COMPARISON.match(self.text_of(each))]
        compared = {id(each) for test in tests for each in walk(test)}
        for each in walk(
            node, lambda at: self.is_removed(at) or (at.get("Type") == "FuncDecl" and not in_functions)
        ):
            if each.get("Type") == "ParamExp":
                has_default = (each.get("Exp") or {}).get("Op") in (":-", "-", ":=", "=", ":+", "+")
                # No environment has arrays.
                may_miss = has_default or bool(each.get("Index")) or id(each) in compared
                yield each["Param"]["Value"], may_miss, self.lines(each)[0]
            elif each.get("Type") in _ARITHMETIC:
                text = self.render(each["Pos"]["Offset"], each["End"]["Offset"])
                for name in re.findall(r"(?<![\w$])[A-Za-z_]\w*", text):
                    yield name, True, self.lines(each)[0]
