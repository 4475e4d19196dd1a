"""Reads a script statement by statement, in order, and hands its commands and variables to the importer."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import Protocol

from slurmray.importing.draft import Draft, TooLargeError
from slurmray.importing.known import NO_FILE, RAY, STRUCTURE
from slurmray.importing.shell_expansion import Variables
from slurmray.importing.syntax_tree import BashSyntaxError, Node, parse
from slurmray.importing.words import Kind, Part, Word, is_log

_MAX_SCRIPTS = 300  # within the script, each a process of the parser
_MAX_DEPTH = 12
_MAX_CALLS = 200
_MAX_COMMANDS = 5000
_WRITES = (">", ">>", ">|", "&>", "&>>")
# Programs after a pipe that only copy or filter what the first one prints.
_FILTERS = ("tee", "cat", "grep", "ts", "sed", "awk", "head", "tail", "tr", "sort", "wc", "cut")


@dataclass(frozen=True)
class Context:
    """Where a command is in the script, and what it runs in.

    is_conditional: in an `if` or the like. is_condition: it is one. is_looped: in a loop. is_background:
    started with &. depth: of scripts within scripts. place: "head" or "all" nodes by an srun, or "".
    is_inside: in a container. image: of it. prefix: commands that have set up its shell, as source, e.g. an
    activation.
    """

    is_conditional: bool = False
    is_condition: bool = False
    is_looped: bool = False
    is_background: bool = False
    depth: int = 0
    place: str = ""
    is_inside: bool = False
    image: str | None = None
    prefix: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command. assignments: before its name. first, last: its lines."""

    words: list[Word]
    assignments: list[tuple[str, Word]]
    first: int
    last: int
    document: Word | None = None
    """Its here-document."""
    reads: Word | None = None
    writes: Word | None = None
    """Files that its standard input and output are."""

    @property
    def lines(self) -> list[int]:
        """All its lines."""
        return list(range(self.first, self.last + 1))


class Handler(Protocol):
    """What acts on commands and variables: the importer."""

    draft: Draft

    def handle_assignment(self, name: str, value: Word, lines: list[int]) -> None:
        """Note an assignment of the shell."""

    def handle_export(self, name: str, value: Word | None, lines: list[int], context: Context) -> None:
        """Set an environment variable. value: None: that of the shell."""

    def handle_missing_path(self, path: Word, lines: list[int]) -> None:
        """Note a path without which the script ends."""

    def handle_command(self, command: Command, context: Context, reader: Reader) -> None:
        """Act on a command. reader: of the script that has it."""


class Reader:
    """Reads a script, or one within it. variables: those of this script."""

    def __init__(self, parser: str, handler: Handler, variables: Variables, context: Context) -> None:
        self.parser, self.handler, self.variables = parser, handler, variables
        self.draft = handler.draft
        self.context = context
        self.functions: dict[str, Node] = {}
        self.called: set[str] = set()
        self.budget = {"scripts": _MAX_SCRIPTS, "calls": _MAX_CALLS, "commands": _MAX_COMMANDS}
        self.prefix: tuple[str, ...] = context.prefix

    def read(self, tree: Node) -> None:
        """Read all statements."""
        self._statements(tree.get("Stmts") or [], self.context)
        for name, node in self.functions.items():
            if name not in self.called:
                self.draft.look(self._lines(node), f"the function {name}, which nothing calls directly")

    def read_script(self, text: Word, context: Context) -> None:
        """Read a script in a word, e.g. after bash -c. BashSyntaxError if it is none, or too deep."""
        self.budget["scripts"] -= 1
        if context.depth >= _MAX_DEPTH or self.budget["scripts"] < 0:
            raise BashSyntaxError("1:1: too many scripts within scripts")
        source, values = "", {}
        for number, part in enumerate(text.parts):
            name = f"slurmray_part_{number}"
            if part.kind != "text":
                values[name] = Word((part,), text.line)
            source += (part.with_breaks or part.text) if part.kind == "text" else f"${{{name}}}"
        raw = source.encode()
        joins_lines = any(part.with_breaks for part in text.parts)
        variables = self.variables.child(raw, text.line, joins_lines)
        variables.texts.update(values)
        inner = Reader(self.parser, self.handler, variables, replace(context, depth=context.depth + 1))
        inner.budget = self.budget
        inner.read(parse(self.parser, raw))

    def _lines(self, node: Node) -> list[int]:
        return list(range(self.variables.line(node), self.variables.last_line(node) + 1))

    def _statements(self, statements: list[Node], context: Context) -> None:
        for statement in statements:
            self._statement(statement, context)

    def _statement(self, node: Node, context: Context) -> None:
        if node.get("Background") or node.get("Coprocess"):
            context = replace(context, is_background=True)
        command = node.get("Cmd")
        if command is None:
            self.draft.skip(self._lines(node), "it only opens files")
            return
        method = getattr(self, f"_read_{command['Type'].lower()}", None)
        if method is None:
            self.draft.look(self._lines(node), "an unusual statement")
        else:
            method(node, command, context)

    def _read_callexpr(self, node: Node, command: Node, context: Context) -> None:
        variables, lines = self.variables, self._lines(node)
        assignments = [
            (assign["Name"]["Value"], variables.value(assign.get("Value"), lines[0]))
            for assign in command.get("Assigns") or []
        ]
        if not command.get("Args"):
            for assign, (name, value) in zip(command["Assigns"], assignments, strict=True):
                self._assign(assign, name, value, self._lines(assign), context)
            return
        words = [word for argument in command["Args"] for word in variables.expand(argument)]
        if not words:
            self.draft.look(lines, "a command that is only known when it runs")
            return
        self._look_after_comments(command["Args"])
        document, reads, writes = self._redirections(node, lines[0])
        self.budget["commands"] -= 1
        if self.budget["commands"] < 0:
            raise TooLargeError
        name = words[0].constant
        if name in self.functions:
            self.variables.own_arguments.discard(lines[0])
            self._call(name, lines, context)
            return
        if name == "trap":
            for word in words[1:]:
                if word.constant in self.functions:
                    self.called.add(str(word.constant))
                    self.draft.skip(self._lines(self.functions[str(word.constant)]), "slurmray cleans up")
        if name in ("read", "mapfile", "readarray"):
            self._assign_read(words[1:], document or reads, lines)
            return
        if name == "printf" and len(words) > 2 and words[1].constant == "-v":
            self._assign_read(words[2:3], words[-1], lines)
            return
        made = Command(words, assignments, lines[0], self._end(node, lines[-1]), document, reads, writes)
        self.handler.handle_command(made, replace(context, prefix=self.prefix), self)

    def _look_after_comments(self, arguments: list[Node]) -> None:
        """Note the words of a command after a comment, which ends it for bash, but not for shfmt."""
        for before, word in itertools.pairwise(arguments):
            between = self.variables.source[before["End"]["Offset"] : word["Pos"]["Offset"]]
            if re.search(rb"\n[ \t]*#", between):
                self.draft.look(
                    [self.variables.line(word)],
                    "bash ends the command at the comment above, so the command never got this",
                )

    def _end(self, node: Node, line: int) -> int:
        """Return the last line of a statement, with its here-documents."""
        documents = [
            redirection["Hdoc"] for redirection in node.get("Redirs") or [] if redirection.get("Hdoc")
        ]
        return max([line, *map(self.variables.last_line, documents)])

    def _redirections(self, node: Node, line: int) -> tuple[Word | None, Word | None, Word | None]:
        """Return the here-document, and the files of standard input and output."""
        document = reads = writes = None
        for redirection in node.get("Redirs") or []:
            operator, word = redirection["Op"], redirection.get("Word")
            if operator in ("<<", "<<-") and redirection.get("Hdoc"):
                is_quoted = any(part["Type"] != "Lit" for part in word["Parts"])
                document = self.variables.document(
                    redirection["Hdoc"], drops_tabs=operator == "<<-", is_quoted=is_quoted
                )
            elif operator == "<<<":
                document = self.variables.value(word, line)
            elif operator == "<":
                reads = self.variables.value(word, line)
            elif operator in _WRITES and (redirection.get("N") or {}).get("Value") in (None, "1"):
                writes = self.variables.value(word, line)
        return document, reads, writes

    def _call(self, name: str, lines: list[int], context: Context) -> None:
        self.draft.skip(lines, f"it calls {name}, whose lines are below by themselves")
        self.budget["calls"] -= 1
        if name in self.called or self.budget["calls"] < 0:
            return
        self.called.add(name)
        self.variables.calls += 1
        self._statement(self.functions[name]["Body"], context)
        self.variables.calls -= 1

    def _assign_read(self, words: list[Word], source: Word | None, lines: list[int]) -> None:
        """Remember that a command sets variables, to something of `source`."""
        kind = _kind_of([source] if source else [])
        for word in words:
            if (name := word.constant) and name.isidentifier():
                self.variables.texts[name] = Word((Part(f"${name}", kind),), lines[0])
        self.draft.skip(lines, "a variable of the script")

    def _assign(
        self,
        assign: Node,
        name: str,
        value: Word,
        lines: list[int],
        context: Context,
        *,
        is_export: bool = False,
    ) -> None:
        variables = self.variables
        if assign.get("Array") is not None:
            self._assign_array(assign, name, lines, context)
            return
        if assign.get("Index"):
            value = Word((Part(f"${{{name}[@]}}", _kind_of([value])),), lines[0])
            variables.arrays.pop(name, None)
        if assign.get("Append") and name in variables.texts:
            value = replace(value, parts=(*variables.texts[name].parts, *value.parts))
        elif assign.get("Append"):
            value = replace(value, parts=(Part(name, "variable"), *value.parts))
        if context.is_conditional or context.is_looped:
            about = value.has("cluster") or variables.is_about_cluster(name)
            value = Word((Part(f"${name}", "cluster" if about else "code"),), lines[0])
        variables.texts[name] = value
        variables.arrays.pop(name, None)
        if not is_export:
            self.handler.handle_assignment(name, value, lines)
        if is_export or name in variables.exported:
            variables.exported.add(name)
            self.handler.handle_export(name, value, lines, context)

    def _assign_array(self, assign: Node, name: str, lines: list[int], context: Context) -> None:
        variables = self.variables
        elements = [
            word
            for element in assign["Array"].get("Elems") or []
            if element.get("Value")
            for word in variables.expand(element["Value"])
        ]
        before = variables.texts.pop(name, None)
        if not assign.get("Append"):
            variables.arrays[name] = []
            variables.uncounted.discard(name)
        elif before is not None:
            elements.insert(0, before)
        variables.arrays[name] = [*variables.arrays.get(name, []), *elements]
        if not all(word.is_one_word for word in elements):
            variables.uncounted.add(name)
        if context.is_conditional or context.is_looped:
            kind = _kind_of(elements)
            del variables.arrays[name]
            variables.texts[name] = Word((Part(f"${{{name}[@]}}", kind, False),), lines[0])
        self.handler.handle_assignment(name, Word((), lines[0]), lines)

    def _read_declclause(self, node: Node, command: Node, context: Context) -> None:
        arguments = command.get("Args") or []
        options = [
            self.variables.text_of(argument)
            for argument in arguments
            if "Name" not in argument or argument["Name"] is None
        ]
        is_export = command["Variant"]["Value"] == "export" or any("x" in option for option in options)
        if any("f" in option for option in options):
            self.draft.skip(self._lines(node), "a function")
            return
        named = [declaration for declaration in arguments if declaration.get("Name")]
        if not named:
            self.draft.skip(self._lines(node), "it only declares")
        for declaration in named:
            name, lines = declaration["Name"]["Value"], self._lines(declaration)
            if declaration.get("Naked"):
                value = self.variables.texts.get(name)
                if is_export and "-n" not in options:
                    self.variables.exported.add(name)
                    self.handler.handle_export(name, value, lines, context)
                else:
                    self.draft.skip(lines, "it only declares")
                continue
            value = self.variables.value(declaration.get("Value"), lines[0])
            self._assign(declaration, name, value, lines, context, is_export=is_export)

    def _read_binarycmd(self, node: Node, command: Node, context: Context) -> None:
        left, right = command["X"], command["Y"]
        if command["Op"] in ("|", "|&"):
            called = (right.get("Cmd") or {}).get("Args") or []
            words = [word for argument in called for word in self.variables.expand(argument)]
            if words and words[0].constant in _FILTERS:
                self._statement(left, context)
                writes = self._redirections(right, self.variables.line(right))[2]
                files = [*(words[1:] if words[0].constant == "tee" else []), *([writes] if writes else [])]
                if all(is_log(file) or file.beginning.startswith("-") for file in files):
                    self.draft.skip(self._lines(right), "the job's log has the output")
                else:
                    self.draft.look(self._lines(right), NO_FILE)
            elif words and words[0].constant == "xargs" and "kill" in [word.constant for word in words]:
                self.draft.skip(self._lines(node), RAY)
            else:
                self.draft.look(self._lines(node), "a pipe")
            return
        self._statement(left, context)
        is_conditional = command["Op"] == "||" or self._is_test(left)
        self._statement(right, replace(context, is_conditional=True) if is_conditional else context)

    def _is_test(self, node: Node) -> bool:
        """Whether a statement is a test of bash, e.g. `[ -n "$X" ]`."""
        command = node.get("Cmd") or {}
        arguments = command.get("Args") or []
        is_program = bool(arguments) and self.variables.text_of(arguments[0]) in ("[", "test")
        return is_program or command.get("Type") == "TestClause"

    def _read_ifclause(self, node: Node, command: Node, context: Context) -> None:
        if (path := self._missing_path(command)) is not None and not context.is_looped:
            self.handler.handle_missing_path(path, self._lines(node))
            return
        branch: Node | None = command
        while branch:
            self._statements(branch.get("Cond") or [], replace(context, is_condition=True))
            self._statements(branch.get("Then") or [], replace(context, is_conditional=True))
            branch = branch.get("Else")
            if branch:
                self.draft.skip([self.variables.line(branch)], STRUCTURE)
        self._skip_structure(node)

    def _missing_path(self, command: Node) -> Word | None:
        """Return the path of `if [ ! -e PATH ]; then ... exit`, for which a job spec has checks.paths."""
        conditions, then = command.get("Cond") or [], command.get("Then") or []
        last = (then[-1].get("Cmd") or {}).get("Args") if then else None
        ends = bool(last) and (self.variables.text_of(last[0]) == "exit") if last else False
        if len(conditions) != 1 or command.get("Else") or not ends:
            return None
        test = conditions[0].get("Cmd") or {}
        if test.get("Type") == "CallExpr":
            words = [word for argument in test.get("Args") or [] for word in self.variables.expand(argument)]
            texts = [word.constant for word in words]
            if (
                len(words) == 5
                and texts[:2] == ["[", "!"]
                and texts[2] in ("-d", "-e", "-f")
                and texts[4] == "]"
            ):
                return words[3]
        expression = test.get("X") or {}
        if test.get("Type") == "TestClause" and expression.get("Op") == "!":
            inner = expression.get("X") or {}
            if inner.get("Op") in ("-d", "-e", "-f") and (inner.get("X") or {}).get("Type") == "Word":
                return self.variables.value(inner["X"], self.variables.line(inner["X"]))
        return None

    def _read_whileclause(self, node: Node, command: Node, context: Context) -> None:
        looped = replace(context, is_looped=True)
        self._statements(command.get("Cond") or [], replace(looped, is_condition=True))
        self._statements(command.get("Do") or [], looped)
        self._skip_structure(node)

    def _read_forclause(self, node: Node, command: Node, context: Context) -> None:
        loop = command["Loop"]
        if loop["Type"] == "WordIter":
            items = [word for item in loop.get("Items") or [] for word in self.variables.expand(item)]
            kind = _kind_of(items)
            name = loop["Name"]["Value"]
            self.variables.texts[name] = Word((Part(f"${name}", kind),), self.variables.line(node))
        elif name := ((loop.get("Init") or {}).get("X") or {}).get("Parts"):
            self.variables.texts[name[0]["Value"]] = Word(
                (Part(f"${name[0]['Value']}", "cluster"),), self.variables.line(node)
            )
        self._statements(command.get("Do") or [], replace(context, is_looped=True))
        self._skip_structure(node)

    def _read_caseclause(self, node: Node, command: Node, context: Context) -> None:
        for item in command.get("Items") or []:
            first = self.variables.line(item["Patterns"][0])
            last = self.variables.last_line(item) if item.get("End") else first
            self.draft.skip(list(range(first, last + 1)), STRUCTURE)
            self._statements(item.get("Stmts") or [], replace(context, is_conditional=True))
        self._skip_structure(node)

    def _read_block(self, node: Node, command: Node, context: Context) -> None:
        self._statements(command.get("Stmts") or [], context)
        self._skip_structure(node)

    _read_subshell = _read_block

    def _read_timeclause(self, node: Node, command: Node, context: Context) -> None:
        del node
        if command.get("Stmt"):
            self._statement(command["Stmt"], context)

    def _read_funcdecl(self, node: Node, command: Node, context: Context) -> None:
        del context
        self.functions[command["Name"]["Value"]] = command
        self._skip_structure(node)

    def _read_testclause(self, node: Node, command: Node, context: Context) -> None:
        del command, context
        self.draft.skip(self._lines(node), "a test")

    _read_arithmcmd = _read_testclause
    _read_letclause = _read_testclause

    def _skip_structure(self, node: Node) -> None:
        """Note the first and the last line of a statement around others."""
        lines = self._lines(node)
        self.draft.skip([lines[0], lines[-1]], STRUCTURE)


def _kind_of(words: list[Word]) -> Kind:
    """Return the kind of a variable that has something of these words."""
    return "cluster" if any(word.has("cluster") for word in words) else "code"
