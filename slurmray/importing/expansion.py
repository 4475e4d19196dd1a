"""Values of words, as far as they are certain: for fields of the job spec, and to recognise commands.

Commands that stay in the script are never written from these values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from slurmray.importing.draft import TooLargeError
from slurmray.importing.known import SET_IN_JOB
from slurmray.importing.source import Source
from slurmray.importing.syntax_tree import Node
from slurmray.importing.words import Part, Word

_MAX_WORD = 100_000  # characters, so that variables of variables do not fill the memory
_MAX_ALL = 2_000_000
# Variables that are set on every node, or that users set for all their jobs, so that a default is not taken.
_ALWAYS_SET = {*SET_IN_JOB, "SCRATCH", "WORK"}
_DEFAULT = (":-", "-", ":=", "=")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_PATTERN = re.compile(r"(?<!\\)(?:\*|\?|\{[^}]*(?:,|\.\.)[^}]*\})")  # several words, or names of files
_PLAIN = ("Lit", "SglQuoted", "DblQuoted")


@dataclass
class Variables:
    """What the script has set so far: texts and arrays."""

    source: Source
    texts: dict[str, Word] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    defaults: dict[int, str] = field(default_factory=dict)
    """Lines with `${NAME:-default}` where a field has the default, and the names."""
    spent: list[int] = field(default_factory=lambda: [0])

    def expand(self, node: Node) -> list[Word]:
        """Return the words that bash makes of a word of a command."""
        start, end = node["Pos"]["Offset"], node["End"]["Offset"]
        line = self.source.lines(node)[0]
        elements = self._whole_array(node["Parts"])
        if elements is not None:
            return [replace(word, line=line, is_plain=False, start=start, end=end) for word in elements]
        value = self.value(node, line)
        words: list[list[Part]] = [[]]
        for part in value.parts:
            if part.is_quoted or part.kind != "text":
                words[-1].append(part)
                continue
            pieces = re.split(r"[ \t\n]+", part.text)
            words[-1].append(replace(part, text=pieces[0], is_quoted=True))
            words += [[replace(part, text=piece, is_quoted=True)] for piece in pieces[1:]]
        made = [parts for parts in words if any(part.text for part in parts)]
        if not made and any(part["Type"] in ("SglQuoted", "DblQuoted") for part in node["Parts"]):
            made = [[Part("")]]
        return [Word(tuple(parts), line, start, end, value.is_plain) for parts in made]

    def value(self, node: Node | None, line: int) -> Word:
        """Return the value of a word where bash splits nothing, as in an assignment."""
        parts = node["Parts"] if node else []
        made = tuple(self._parts(parts, is_quoted=False, is_first=True))
        size = sum(len(part.text) for part in made)
        self.spent[0] += size
        if size > _MAX_WORD or self.spent[0] > _MAX_ALL:
            raise TooLargeError
        start, end = (node["Pos"]["Offset"], node["End"]["Offset"]) if node else (-1, -1)
        return Word(made, line, start, end, all(map(_is_plain, parts)) and not _has_code(made))

    def script(self, node: Node, *, is_document: bool = False) -> tuple[str, list[tuple[int, int]]] | None:
        """Return the text that `bash -c` gets, and its places; `${NAME}` is what is not certain.

        None if it has code. is_document: a here-document, in which quotes are characters.
        """
        pieces: list[str] = []
        places: list[tuple[int, int]] = []
        size, nodes = 0, node["Parts"]
        if len(nodes) == 1 and nodes[0]["Type"] == "DblQuoted":
            nodes, is_document = nodes[0].get("Parts") or [], True
        for each in nodes:
            parts = self._parts([each], is_quoted=is_document)
            if any(part.kind == "code" and not part.text.startswith("${") for part in parts):
                return None
            line, text = self.source.lines(each)[0], _join(parts)
            source = self.source.text_of(each)
            if each["Type"] == "Lit" and not self.source.places and "\\\n" in source:  # continued lines
                *firsts, _ = re.split(r"(?<!\\)\\\n", source)
                for first in firsts:
                    piece = "".join(part.text for part in _literal(first, is_document, False))
                    places.append((size, line))
                    pieces, size, text = [*pieces, piece], size + len(piece.encode()), text[len(piece) :]
                    line += piece.count("\n") + 1
            places.append((size, line))
            pieces, size = [*pieces, text], size + len(text.encode())
        return "".join(pieces), places or [(0, 1)]

    def is_certain(self, node: Node) -> bool:
        """Whether a text for bash has no values of variables, or is that of one that is written plainly."""
        text = self.source.text_of(node)
        match = re.fullmatch(r'"\$\{?(\w+)\}?"', text)
        is_known = bool(match and match[1] in self.texts and self.texts[match[1]].is_plain)
        return is_known or all(map(_is_plain, node["Parts"]))

    def _parts(self, nodes: list[Node], *, is_quoted: bool, is_first: bool = False) -> list[Part]:
        made: list[Part] = []
        for number, node in enumerate(nodes):
            kind = node["Type"]
            if kind == "Lit":
                made += _literal(node["Value"], is_quoted, is_first and number == 0)
            elif kind == "SglQuoted":
                text = node.get("Value") or ""
                made.append(Part(_unescape(text) if node.get("Dollar") is True else text))
            elif kind == "DblQuoted":
                made += self._parts(node.get("Parts") or [], is_quoted=True)
            elif kind == "ParamExp":
                made += self._parameter(node, is_quoted)
            else:
                made.append(Part(self.source.text_of(node), "code", is_quoted))
        return made

    def _parameter(self, node: Node, is_quoted: bool) -> Iterator[Part]:
        name, index, default = node["Param"]["Value"], node.get("Index"), node.get("Exp")
        known = self.texts.get(name)
        if index is None and name in self.arrays and self.arrays[name]:
            known = self.arrays[name][0]
        unusual = ("Excl", "Length", "Width", "Slice", "Repl", "Names", "Plus", "NestedParam")
        if any(node.get(key) for key in unusual) or not re.fullmatch(r"[A-Za-z_]\w*", name):
            yield Part(self.source.text_of(node), "code", is_quoted)
        elif index is not None:
            number = self.source.text_of(index)
            elements = self.arrays.get(name, [])
            if re.fullmatch("0|[1-9][0-9]{0,6}", number) and int(number) < len(elements):
                yield from (replace(part, is_quoted=is_quoted) for part in elements[int(number)].parts)
            else:
                yield Part(self.source.text_of(node), "code", is_quoted)
        elif default is not None and default["Op"] not in _DEFAULT:
            yield Part(self.source.text_of(node), "code", is_quoted)
        elif known is not None and not (default and known.constant == ""):
            yield from (replace(part, is_quoted=is_quoted) for part in known.parts)
        elif default is not None and (
            name in _ALWAYS_SET or name.startswith("SLURM") or not (default.get("Word") or {}).get("Parts")
        ):
            yield Part(name, "variable", is_quoted)
        elif default is not None:
            line = self.source.lines(node)[0]
            self.defaults[line] = name
            value = self.value(default.get("Word"), line)
            if is_quoted and default.get("Word"):  # in double quotes a single one is a character
                text = self.source.text_of(default["Word"])
                value = (
                    value
                    if "'" not in text
                    else replace(value, parts=(Part(text, "code" if "$" in text else "text"),))
                )
            if default["Op"] in (":=", "="):
                self.texts[name] = replace(value, is_plain=False)
            yield from value.parts
        else:
            yield Part(name, "variable", is_quoted)

    def _whole_array(self, parts: list[Node]) -> list[Word] | None:
        """Return the elements of a word that is `"${NAME[@]}"` or `${NAME[@]}`; None if it is another one."""
        if len(parts) == 1 and parts[0]["Type"] == "DblQuoted":
            parts = parts[0].get("Parts") or []
        if len(parts) != 1 or parts[0]["Type"] != "ParamExp" or not parts[0].get("Index"):
            return None
        node = parts[0]
        is_whole = self.source.text_of(node["Index"]) in ("@", "*") and not node.get("Length")
        return self.arrays.get(node["Param"]["Value"]) if is_whole else None


def _join(parts: list[Part]) -> str:
    return "".join(f"${{{part.text}}}" if part.kind == "variable" else part.text for part in parts)


def _is_plain(part: Node) -> bool:
    is_nested = part["Type"] == "DblQuoted"
    return part["Type"] in _PLAIN and (not is_nested or all(map(_is_plain, part.get("Parts") or [])))


def _has_code(parts: tuple[Part, ...]) -> bool:
    return any(part.kind == "code" for part in parts)


def _literal(text: str, is_quoted: bool, is_first: bool) -> Iterator[Part]:
    if not is_quoted and _PATTERN.search(text[:2000]):
        yield Part(text, "code", False)
        return
    if not is_quoted and is_first and re.match("~(?:/|$)", text):
        yield Part("HOME", "variable")
        text = text[1:]
    escaped = r'\\(["\\$`\n])' if is_quoted else r"\\([\s\S])"
    yield Part(re.sub(escaped, lambda match: match[1].strip("\n"), text))


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)
