"""Expands words of the syntax tree with the variables that the script has set so far."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from slurmray.importing.draft import TooLargeError
from slurmray.importing.secret_names import is_secret_name
from slurmray.importing.syntax_tree import Node
from slurmray.importing.words import Part, Word

_MAX_WORD = 100_000  # characters, so that variables of variables do not fill the memory
_MAX_ALL = 2_000_000
# Programs and variables that tell nodes and addresses: slurmray finds those itself.
_CLUSTER_PROGRAMS = re.compile(
    r"\b(?:scontrol|hostname|getent|ip (?:-\S+ )*(?:addr|route|a)|nslookup|dig|ping|host)\b"
)
_CLUSTER_VARIABLES = {
    *("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST", "SLURMD_NODENAME", "HOSTNAME"),
    *("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_LAUNCH_NODE_IPADDR"),
}
# What bash expands to several words, or to names of files; and characters above which it is not looked for.
_PATTERN = r"(?<!\\)(?:\*|\{[^}]*(?:,|\.\.)[^}]*\})"
_MAX_PATTERN = 2000
_NUMBER = re.compile("0|[1-9][0-9]{0,8}")  # with a leading zero it is octal in bash
# Of numbers that are not negative, for which bash's division is Python's.
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
}
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


@dataclass
class Variables:
    """What the script has set: texts, and arrays. exported: names that child processes see."""

    source: bytes
    texts: dict[str, Word] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    uncounted: set[str] = field(default_factory=set)
    """Arrays with elements that may be several, e.g. `$(command)`."""
    exported: set[str] = field(default_factory=set)
    defaults: dict[int, str] = field(default_factory=dict)
    """Lines with `${NAME:-default}` where the default was taken, and the names."""
    own_arguments: set[int] = field(default_factory=set)
    """Lines that have the script's own arguments, `$@`, which are left out."""
    calls: int = 0
    """How many functions the statement is in."""
    spent: list[int] = field(default_factory=lambda: [0])
    first_line: int = 1
    joins_lines: bool = False
    """Whether the text of this script still has line continuations that the one around it removes."""

    def child(self, source: bytes, first_line: int, joins_lines: bool) -> Variables:
        """Return the variables of a script within the script."""
        texts = {name: word for name, word in self.texts.items() if name in self.exported}
        return replace(
            self,
            source=source,
            first_line=first_line,
            joins_lines=joins_lines,
            texts=texts,
            arrays={},
            uncounted=set(),
            exported=set(self.exported),
        )

    def own_names(self) -> set[str]:
        """Return the variables that only the script itself has."""
        return {*self.texts, *self.arrays, "IFS"} - self.exported

    def line(self, node: Node) -> int:
        """Return the line of a node in the script."""
        return int(node["Pos"]["Line"]) + self.first_line - 1

    def last_line(self, node: Node) -> int:
        """Return the last line of a node."""
        line, column = int(node["End"]["Line"]), int(node["End"]["Col"])
        return max(line - (column == 1) + self.first_line - 1, self.line(node))

    def text_of(self, node: Node) -> str:
        """Return the source of a node."""
        raw = self.source[node["Pos"]["Offset"] : node["End"]["Offset"]]
        return raw.decode(errors="replace")

    def expand(self, word: Node) -> list[Word]:
        """Return the words that a word becomes: none or several where it has unquoted variables."""
        line = self.line(word)
        fields: list[list[Part] | None] = [None]
        for part, ends_before, ends_after in self._split_parts(word["Parts"]):
            if ends_before and fields[-1] is not None:
                fields.append(None)
            if part is not None:
                fields[-1] = [*(fields[-1] or []), part]
            if ends_after and fields[-1] is not None:
                fields.append(None)
        return [self._counted(Word(tuple(parts), line)) for parts in fields if parts is not None]

    def value(self, word: Node | None, line: int) -> Word:
        """Return a value of an assignment, or a here-document, where bash does not split words."""
        parts = tuple(self._parts(word["Parts"], True, False)) if word else ()
        return self._counted(Word(parts, self.line(word) if word else line))

    def document(self, word: Node, *, drops_tabs: bool, is_quoted: bool) -> Word:
        """Return the text of a here-document. is_quoted: nothing in it is expanded."""
        parts = []
        for node in word["Parts"]:
            if node["Type"] == "Lit":
                text = node["Value"]
                text = re.sub(r"^\t+", "", text, flags=re.MULTILINE) if drops_tabs else text
                parts.append(Part(text if is_quoted else re.sub(r"\\([$`\\])", r"\1", text)))
            else:
                parts += self._parts([node], True, True)
        return self._counted(Word(tuple(parts), self.line(word)))

    def _counted(self, word: Word) -> Word:
        size = sum(len(part.text) for part in word.parts) + len(word.parts)
        self.spent[0] += size
        if size > _MAX_WORD or self.spent[0] > _MAX_ALL:
            raise TooLargeError
        return word

    def _split_parts(self, nodes: list[Node]) -> Iterator[tuple[Part | None, bool, bool]]:
        """Yield parts, and whether one begins or ends a word of its own."""
        for node in nodes:
            if (elements := self._elements(node)) is not None:
                for number, element in enumerate(elements):
                    yield Part(""), number > 0, False
                    for part in element.parts:
                        yield part, False, False
                continue
            is_split = node["Type"] == "ParamExp"
            for part in self._parts([node], False, False):
                if not (is_split and part.kind == "text" and re.search(r"\s", part.text)):
                    if part.text or not is_split or part.kind != "text":
                        yield part, False, False
                    continue
                pieces = part.text.split()
                for number, piece in enumerate(pieces):
                    yield (
                        Part(piece),
                        number > 0 or part.text[0].isspace(),
                        number == len(pieces) - 1 and part.text[-1].isspace(),
                    )

    def _elements(self, node: Node) -> list[Word] | None:
        """Return the elements of an array if the node is all of them: "${name[@]}"."""
        if node["Type"] == "DblQuoted" and len(node.get("Parts") or []) == 1:
            node = node["Parts"][0]
        if node["Type"] == "ParamExp" and node["Param"]["Value"] in ("@", "*") and not self.calls:
            self.own_arguments.add(self.line(node))
            return []
        if node["Type"] != "ParamExp" or _index(node) not in ("@", "*") or _has_operator(node):
            return None
        return self.arrays.get(node["Param"]["Value"])

    def _parts(self, nodes: list[Node], is_value: bool, is_quoted: bool) -> Iterator[Part]:
        for node in nodes:
            kind = node["Type"]
            if kind == "Lit":
                yield from self._literal(node, is_quoted, is_value)
            elif kind == "SglQuoted":
                yield self._single_quoted(node)
            elif kind == "DblQuoted":
                yield Part("")  # an empty word is one, too
                yield from self._parts(node.get("Parts") or [], is_value, True)
            elif kind == "ParamExp":
                yield from self._parameter(node, is_quoted or is_value)
            elif kind == "ArithmExp" and (number := self._number(node.get("X"))) is not None:
                yield Part(str(number))
            else:
                text = self.text_of(node)
                if re.fullmatch(r"\$\((?:pwd|realpath \.|readlink -f \.)\)|`pwd`", text):
                    yield Part("PWD", "variable", is_quoted or is_value)
                else:
                    yield self._code(text, is_quoted or is_value)

    def _number(self, node: Node | None) -> int | None:
        """Return the value of an arithmetic expression; None if it is only known when the script runs."""
        kind = node.get("Type") if node else None
        if node is None or kind not in ("Word", "ParenArithm", "BinaryArithm"):
            return None
        if kind == "Word":
            text = self.value(node, 0).constant or ""
            if text in self.texts:
                text = self.texts[text].constant or ""
            return int(text) if _NUMBER.fullmatch(text) else None
        if kind == "ParenArithm":
            return self._number(node.get("X"))
        left, right = self._number(node.get("X")), self._number(node.get("Y"))
        calculate = _ARITHMETIC.get(node["Op"])
        if calculate is None or left is None or right is None or (node["Op"] in "/%" and right == 0):
            return None
        return calculate(left, right)

    def _literal(self, node: Node, is_quoted: bool, is_value: bool) -> Iterator[Part]:
        text = node["Value"]
        if is_quoted:
            text = re.sub(r'\\([$`"\\])', r"\1", text)
            # shfmt ends a literal where a line is continued.
            is_continued = self.text_of(node) == node["Value"] + "\\"
            yield Part(text, with_breaks=text + "\\\n" if is_continued else "")
            return
        if not is_value and (len(text) > _MAX_PATTERN or re.search(_PATTERN, text)):
            yield Part(text, "code", False)  # bash makes names of files of it, or several words
            return
        if match := re.match(r"~(?=/|$)", text):
            yield Part("HOME", "variable")
            text = text[match.end() :]
        yield Part(re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL))

    def _single_quoted(self, node: Node) -> Part:
        text = node.get("Value", "")
        if self.joins_lines:
            text = text.replace("\\\n", "")
        if node.get("Dollar"):
            if re.search(r"\\[^nt\\'\"]", text):
                return Part(self.text_of(node), "code", False)
            text = re.sub(r"\\(.)", lambda match: _ESCAPES[match[1]], text)
        return Part(text)

    def _parameter(self, node: Node, is_quoted: bool) -> Iterator[Part]:
        name, index = node["Param"]["Value"], _index(node)
        if name in ("@", "*") and not self.calls:
            self.own_arguments.add(self.line(node))
            return
        expansion = node.get("Exp")
        action = expansion.get("Op") if expansion else None
        known = self._element(name, index or "0") if name in self.arrays else self.texts.get(name)
        if _has_operator(node) and action not in (":-", "-", ":=", "="):
            yield self._code(self.text_of(node), is_quoted, known)
        elif known is not None:
            if is_secret_name(name) and known.has("text"):
                yield Part(name, "variable", is_quoted)  # its value must not appear
            else:
                yield from (
                    replace(part, is_quoted=is_quoted) if part.kind != "text" else part
                    for part in known.parts
                )
        elif action and expansion and expansion.get("Word"):
            self.defaults[self.line(node)] = name
            parts = tuple(self._parts(expansion["Word"]["Parts"], True, True))
            if action in (":=", "="):  # they assign it, too
                self.texts[name] = Word(parts, self.line(node))
            yield from parts
        elif name in _CLUSTER_VARIABLES:
            yield Part(self.text_of(node), "cluster", is_quoted)
        elif re.fullmatch(r"[A-Za-z_]\w*", name) and index is None and name not in self.arrays:
            yield Part(name, "variable", is_quoted)
        else:
            yield self._code(self.text_of(node), is_quoted)

    def _element(self, name: str, index: str) -> Word | None:
        """Return an element of an array, or all as one word; None if it is not known."""
        elements = self.arrays[name]
        if index in ("@", "*"):
            parts = [part for element in elements for part in (*element.parts, Part(" "))]
            return Word(tuple(parts[:-1]), 0)
        is_known = _NUMBER.fullmatch(index) and name not in self.uncounted and int(index) < len(elements)
        return elements[int(index)] if is_known else None

    def _code(self, text: str, is_quoted: bool, value: Word | None = None) -> Part:
        is_cluster = _CLUSTER_PROGRAMS.search(text) or (value is not None and value.has("cluster"))
        names = re.findall(r"\$\{?[#!]?(\w+)", text)
        is_cluster = is_cluster or any(self.is_about_cluster(name) for name in names)
        return Part(text, "cluster" if is_cluster else "code", is_quoted)

    def is_about_cluster(self, name: str) -> bool:
        """Whether a variable has names or addresses of nodes."""
        words = [self.texts[name]] if name in self.texts else self.arrays.get(name, [])
        return name in _CLUSTER_VARIABLES or any(word.has("cluster") for word in words)


def _index(node: Node) -> str | None:
    index = node.get("Index")
    if not index:
        return None
    parts = index.get("Parts") or [{}]
    return str(parts[0].get("Value", "?"))


def _has_operator(node: Node) -> bool:
    return any(node.get(name) for name in ("Exp", "Repl", "Slice", "Length", "Excl", "Width", "Names"))
