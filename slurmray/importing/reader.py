"""Reads a script statement by statement, in order, and takes out of it what belongs to the cluster.

What is left stays bash, as it was written: edits remove parts of the source, and nothing is written again.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from slurmray.importing.draft import Draft, TooLargeError
from slurmray.importing.expansion import Variables
from slurmray.importing.known import (
    ASKS_CLUSTER,
    CLUSTER_CODE,
    FILTERS,
    HEAD_VARIABLES,
    NO_FILE,
    OF_CONTAINER,
    RAY,
    STRUCTURE,
    VARIABLE,
    has_effect,
)
from slurmray.importing.source import Source
from slurmray.importing.syntax_tree import BashSyntaxError, Node, calls_in, parse, walk
from slurmray.importing.words import Part, Word, is_log, text_of

_MAX_SCRIPTS = 300  # within the script, each a process of the parser
_MAX_DEPTH = 12
_MAX_COMMANDS = 5000
WRITES = (">", ">>", ">|", "&>", "&>>")


class Left(enum.IntEnum):
    """What is left of a statement. INERT: only variables or output, needed if something else uses it.

    OPTION: it changes how bash runs the others. EXIT: it may end the script. SETUP: what programs after it
    have. ACTIVE: a program.
    """

    NOTHING = 0
    INERT = 1
    OPTION = 2
    EXIT = 3
    SETUP = 4
    ACTIVE = 5


@dataclass(frozen=True)
class Context:
    """Where a command is in the script, and what it runs in.

    is_top: a statement of its own, neither in a function nor in a structure. place: "head" or "all" nodes by
    an srun, or "". is_inside: in a container. image: of it. depth: of scripts within scripts.
    """

    is_top: bool = True
    is_conditional: bool = False
    is_looped: bool = False
    is_background: bool = False
    place: str = ""
    is_inside: bool = False
    image: str | None = None
    depth: int = 0


@dataclass
class Statement:
    """A statement of a script. inner: the script that it runs, of which something is left."""

    node: Node
    reader: Reader
    own: Left = Left.NOTHING
    inner: Reader | None = None

    @property
    def left(self) -> Left:
        """What is left of it."""
        return self.inner.left if self.inner else self.own

    @property
    def lines(self) -> list[int]:
        """Its lines."""
        return self.reader.source.lines(self.node)

    @property
    def text(self) -> str:
        """What is left of it."""
        start, end = self.node["Pos"]["Offset"], self.node["Last"][0]
        semicolon = (self.node.get("Semicolon") or {}).get("Offset")
        if semicolon == end - 1 and not self.node.get("Background"):
            end = semicolon
        return self.reader.source.render(start, end)

    @property
    def names(self) -> set[str]:
        """The variables and functions that it sets."""
        return set(self.reader.source.sets(self.node))


@dataclass(frozen=True)
class Command:
    """A simple command. words: of it, or the rest behind e.g. srun. node: the statement."""

    words: list[Word]
    all_words: list[Word]
    assigns: list[tuple[str, Word]]
    node: Node
    context: Context
    reader: Reader

    @property
    def lines(self) -> list[int]:
        """The lines of these words; to the end of the statement if they are its last ones."""
        whole = self.reader.source.lines(self.node)
        is_end = self.words[-1] is self.all_words[-1]
        first, last = self.words[0].line, self.words[-1].line
        return list(range(first, max(first, whole[-1] if is_end else last) + 1))

    @property
    def program(self) -> str:
        """The name of its program, without folders; empty if it is not certain."""
        return self.words[0].program

    @property
    def verb(self) -> str | None:
        """The first argument, e.g. a subcommand."""
        return self.words[1].constant if len(self.words) > 1 else None

    @property
    def text(self) -> str:
        """The command with the values that are certain, for patterns."""
        return text_of(self.words)[:20_000]

    def rest(self, words: list[Word], **context: object) -> Command:
        """Return what it runs: the command of these words."""
        return replace(self, words=words, context=replace(self.context, **context))  # type: ignore[arg-type]


class Handler(Protocol):
    """What acts on commands and variables: the importer."""

    draft: Draft

    def handle_assignment(self, name: str, value: Word, lines: list[int]) -> bool:
        """Note an assignment of the shell; return whether its value is a secret."""

    def handle_export(self, name: str, value: Word | None, lines: list[int], context: Context) -> Left:
        """Set an environment variable. value: None: that of the shell."""

    def handle_missing_path(self, path: Word, lines: list[int]) -> bool:
        """Note a path without which the script ends; return whether the job checks it."""

    def handle_command(self, command: Command) -> Left:
        """Act on a command."""

    def handle_runner(self, command: Command) -> Left:
        """Act on a call of a function that runs its arguments."""

    def judge_condition(self, words: list[Word]) -> tuple[Left, bool]:
        """Return what a command of a condition is, and whether it asks about the cluster."""


@dataclass
class Reader:
    """Reads a script, or one within it. head_names: variables that have nodes or addresses, and the job's."""

    parser: str
    handler: Handler
    variables: Variables
    context: Context
    statements: list[Statement] = field(default_factory=list)
    functions: dict[str, Node] = field(default_factory=dict)
    called: dict[str, Left] = field(default_factory=dict)
    head_names: dict[str, str] = field(default_factory=dict)
    budget: dict[str, int] = field(
        default_factory=lambda: {"scripts": _MAX_SCRIPTS, "commands": _MAX_COMMANDS}
    )
    lost_exits: int = 0

    @property
    def draft(self) -> Draft:
        """The job spec."""
        return self.handler.draft

    @property
    def source(self) -> Source:
        """The text of the script."""
        return self.variables.source

    def read(self, tree: Node) -> None:
        """Read all statements."""
        for node in tree.get("Stmts") or []:
            self.statements.append(Statement(node, self))
            self.statements[-1].own = self._statement(node, self.context)
        for name, node in self.functions.items():
            if name not in self.called:
                self.draft.look(self.source.lines(node), f"the function {name}, which nothing calls directly")

    @property
    def left(self) -> Left:
        """What is left of the script."""
        return max((statement.left for statement in self.statements), default=Left.NOTHING)

    def read_script(self, text: str, places: list[tuple[int, int]], command: Command) -> Reader:
        """Read a script within this one, e.g. after bash -c. BashSyntaxError if it is none, or too deep."""
        self.budget["scripts"] -= 1
        depth = command.context.depth + 1
        if depth > _MAX_DEPTH or self.budget["scripts"] < 0:
            raise BashSyntaxError("1:1: too many scripts within scripts")
        variables = replace(self.variables, source=Source(text.encode(), places))
        context = replace(command.context, depth=depth, is_top=command.context.is_top)
        inner = Reader(self.parser, self.handler, variables, context, budget=self.budget)
        inner.head_names = self.head_names
        inner.read(parse(self.parser, text.encode()))
        return inner

    def body(self) -> str:
        """Return what is left of the script."""
        return "\n".join(each.text for each in self.statements if each.left).strip("\n")

    def count_nodes(self, node: Node) -> None:
        """Replace the lengths of arrays of nodes by the job's number."""
        for each in walk(node):
            is_length = each.get("Type") == "ParamExp" and each.get("Length") and each.get("Index")
            if is_length and each["Param"]["Value"] in self.head_names:
                self.source.remove(each["Pos"]["Offset"], each["End"]["Offset"], "$NNODES")

    # Statements.

    def _block(self, nodes: list[Node], context: Context) -> Left:
        """Read the statements of a structure, which needs one of them."""
        context = replace(context, is_top=False)
        results = [self._statement(node, context) for node in nodes]
        if Left.NOTHING in results and max(results) == Left.EXIT:  # if the cluster did not start
            results = [Left.NOTHING] * len(nodes)
            self.lost_exits += 1
        if nodes and not any(results):
            end = nodes[-1]["End"]["Offset"]
            semicolon = ";" * (self.source.text[end - 1 : end] == b";")
            self.source.remove(nodes[0]["Pos"]["Offset"], end, f":{semicolon}")
        for node, left in zip(nodes, results, strict=True):
            if any(results) and not left:
                self._remove_statement(node)
        return max(results, default=Left.NOTHING)

    def _remove_statement(self, node: Node) -> None:
        """Remove a statement of a structure, with its line if there is nothing else on it."""
        source, start = self.source.text, node["Pos"]["Offset"]
        end = max(node["Last"][0], (node.get("Semicolon") or {}).get("Offset", -1) + 1)
        before = re.search(rb"(?:^|\n)([ \t]*)$", source[:start])
        after = re.match(rb"[ \t]*\n", source[end:])
        if before and after:
            start, end = start - len(before[1]), end + after.end()
        self.source.remove(start, end)

    def _statement(self, node: Node, context: Context) -> Left:
        if node.get("Background") or node.get("Coprocess"):
            context = replace(context, is_background=True)
        command = node.get("Cmd")
        if command is None:
            return Left.ACTIVE
        method = self._METHODS.get(command["Type"])
        return method(self, node, command, context) if method else Left.ACTIVE

    def _read_callexpr(self, node: Node, command: Node, context: Context) -> Left:
        variables, lines = self.variables, self.source.lines(node)
        self.budget["commands"] -= 1
        if self.budget["commands"] < 0:
            raise TooLargeError
        assigns = command.get("Assigns") or []
        if not command.get("Args"):
            return max(self._assign(assign, context) for assign in assigns)
        words = [word for argument in command["Args"] for word in variables.expand(argument)]
        self._look_after_comments(command["Args"])
        if not words:
            return Left.ACTIVE
        name = words[0].constant or ""
        pairs = [
            (OF_CONTAINER.sub("", each["Name"]["Value"]), variables.value(each.get("Value"), lines[0]))
            for each in assigns
        ]
        made = Command(words, words, pairs, node, context, self)
        if name in self.functions and len(words) > 1 and self._runs_arguments(self.functions[name]):
            self.called.setdefault(name, Left.INERT)
            self.draft.skip(self.source.lines(self.functions[name]), STRUCTURE)
            return self.handler.handle_runner(made)
        if name in self.functions:
            return self._call(name, lines, context)
        if name == "trap":
            for word in words[1:]:
                if word.constant in self.functions:
                    self.called[str(word.constant)] = Left.NOTHING
                    self.draft.skip(self.source.lines(self.functions[str(word.constant)]), "see the trap")
        if name in ("read", "mapfile", "readarray") or (name == "printf" and "-v" in words[1].beginning):
            return self._read_names(node, words, lines)
        return self.handler.handle_command(made)

    def _look_after_comments(self, arguments: list[Node]) -> None:
        """Note the words of a command after a comment, which ends it for bash, but not for shfmt."""
        for before, word in itertools.pairwise(arguments):
            between = self.source.text[before["End"]["Offset"] : word["Pos"]["Offset"]]
            if re.search(rb"\n[ \t]*#", between):
                reason = "bash ends the command at the comment above, so the command never got this"
                self.draft.look(self.source.lines(word), reason)

    def _runs_arguments(self, function: Node) -> bool:
        """Whether a function runs its arguments as a command, e.g. `run() { echo "$@"; "$@"; }`."""
        firsts = [call["Args"][0] for call in calls_in(function["Body"]) if call.get("Args")]
        return any(self.source.text_of(first) in ('"$@"', "$@", '"${@}"') for first in firsts)

    def _call(self, name: str, lines: list[int], context: Context) -> Left:
        self.draft.skip(lines, f"it calls {name}, whose lines are below by themselves")
        if name not in self.called:
            self.called[name] = Left.INERT  # of a function that calls itself
            self.called[name] = self._statement(self.functions[name]["Body"], replace(context, is_top=False))
        return self.called[name]

    def _set_unknown(self, name: str, is_array: bool = False) -> None:
        """Forget a value: only bash knows it."""
        self.variables.arrays.pop(name, None)
        self.variables.texts[name] = Word((Part(f"${{{name}[@]}}" if is_array else f"${name}", "code"),), 0)

    def _set_head(self, name: str, is_array: bool, lines: list[int], code: str = "") -> Left:
        """Remember that a variable has nodes, their number or the head node's address, which the job has."""
        variable = "NNODES" if re.search(r"\bwc +-l\b", code) else "MASTER_ADDR"
        self.variables.arrays.pop(name, None)
        self.variables.texts[name] = Word((Part(variable, "variable"),), lines[0])
        self.head_names[name] = f"(${variable})" if is_array else f"${variable}"
        self.draft.skip(lines, "slurmray finds nodes and addresses itself")
        return Left.NOTHING

    def _read_names(self, node: Node, words: list[Word], lines: list[int]) -> Left:
        program, names = words[0].constant, [word.constant or "" for word in words[1:]]
        names = [name for name in names if name.isidentifier()]
        self.draft.skip(lines, VARIABLE)
        for name in names:
            self._set_unknown(name)
        if _is_about_nodes(self.source.text_of(node)) and len(names) == 1:
            is_array = program != "printf" and (program != "read" or "-a" in words[1].beginning)
            return self._set_head(names[0], is_array, lines)
        return Left.INERT

    def _assign(self, assign: Node, context: Context, *, is_export: bool = False) -> Left:
        variables, name = self.variables, assign["Name"]["Value"]
        lines, is_array = self.source.lines(assign), bool(assign.get("Array"))
        node = assign["Array"] if is_array else assign.get("Value")
        if node is not None and _is_about_nodes(self.source.text_of(node)) and not context.is_conditional:
            if is_export and name not in HEAD_VARIABLES:
                self._set_head(name, is_array, lines, self.source.text_of(node))
                self.source.remove(node["Pos"]["Offset"], node["End"]["Offset"], self.head_names.pop(name))
                return self.handler.handle_export(name, variables.texts[name], lines, context)
            return self._set_head(name, is_array, lines, self.source.text_of(node))
        if assign.get("Index"):
            self._set_unknown(name, is_array=True)
            self.draft.skip(lines, VARIABLE)
            return Left.INERT
        if is_array:
            self._assign_array(assign, name, context)
            value = Word((), lines[0])
        else:
            value = variables.value(node, lines[0])
            if assign.get("Append"):
                before = variables.texts.get(name, Word((Part(name, "variable"),), lines[0]))
                value = replace(value, parts=(*before.parts, *value.parts), is_plain=False)
            variables.arrays.pop(name, None)
            variables.texts[name] = value
            if context.is_conditional or context.is_looped:
                self._set_unknown(name)
        if is_export or name in variables.exported:
            variables.exported.add(name)
            return self.handler.handle_export(name, value, lines, context)
        if self.handler.handle_assignment(name, value, lines):
            variables.texts[name] = Word((Part(name, "variable"),), lines[0])
            return Left.NOTHING
        return Left.ACTIVE if any(map(_has_effect, value.parts)) else Left.INERT

    def _assign_array(self, assign: Node, name: str, context: Context) -> None:
        variables = self.variables
        elements = [
            word
            for element in assign["Array"].get("Elems") or []
            if element.get("Value")
            for word in variables.expand(element["Value"])
        ]
        before = variables.texts.pop(name, None)
        if assign.get("Append"):
            elements = [*([before] if before else variables.arrays.get(name, [])), *elements]
        variables.arrays[name] = elements
        if context.is_conditional or context.is_looped:
            self._set_unknown(name, is_array=True)

    def _read_declclause(self, node: Node, command: Node, context: Context) -> Left:
        arguments, variables = command.get("Args") or [], self.variables
        options = [self.source.text_of(argument) for argument in arguments if not argument.get("Name")]
        options = [option for option in options if option.startswith("-")]
        is_export = command["Variant"]["Value"] == "export" or any("x" in option for option in options)
        named, lines = [each for each in arguments if each.get("Name")], self.source.lines(node)
        if any("f" in option for option in options):
            self.draft.skip(lines, "a function")
            return Left.INERT
        if len(named) + len(options) < len(arguments):
            reason = "an export that is only known when the script runs: see env, env_file and node_env"
            self.draft.look(lines, reason)
            return Left.ACTIVE
        results = []
        for declaration in named:
            name, lines = declaration["Name"]["Value"], self.source.lines(declaration)
            if not declaration.get("Naked"):
                results.append(self._assign(declaration, context, is_export=is_export))
            elif is_export and "-n" not in options:
                variables.exported.add(name)
                value = variables.texts.get(name)
                results.append(self.handler.handle_export(name, value, lines, context))
            else:
                self.draft.skip(lines, "it only declares")
                results.append(Left.INERT)
        if any(results):  # the statement stays, without what became fields
            for declaration, left in zip(named, results, strict=True):
                if not left:
                    self.source.remove(declaration["Pos"]["Offset"], declaration["End"]["Offset"])
        return max(results, default=Left.INERT)

    def _read_binarycmd(self, node: Node, command: Node, context: Context) -> Left:
        left, right = command["X"], command["Y"]
        if command["Op"] in ("|", "|&"):
            return self._read_pipe(node, left, right, context)
        first = self._statement(left, context)
        is_conditional = command["Op"] == "||" or self._is_test(left)
        is_top = context.is_top and not is_conditional
        second = self._statement(
            right, replace(context, is_top=is_top, is_conditional=context.is_conditional or is_conditional)
        )
        if not first and command["Op"] == "||":
            self.draft.skip(self.source.lines(right), STRUCTURE)
            return Left.NOTHING
        if first and not second:
            self.source.remove(left["End"]["Offset"], right["End"]["Offset"])
        elif second and not first:
            self.source.remove(left["Pos"]["Offset"], right["Pos"]["Offset"])
        return max(first, second)

    def _read_pipe(self, node: Node, left: Node, right: Node, context: Context) -> Left:
        first, lines = self._statement(left, context), self.source.lines(right)
        called = (right.get("Cmd") or {}).get("Args") or []
        words = [word for argument in called for word in self.variables.expand(argument)]
        name = words[0].constant if words else None
        if name == "xargs" and "kill" in [word.constant for word in words]:
            self.draft.skip(self.source.lines(node), RAY)
            return Left.NOTHING
        writes = [self.variables.value(each["Word"], lines[0]) for each in written(right)]
        files = [*(words[1:] if name == "tee" else []), *writes]
        is_lost = name in FILTERS and all(is_log(file) or file.beginning.startswith("-") for file in files)
        if first == Left.ACTIVE and name == "tee" and is_lost:
            self.draft.skip(lines, NO_FILE)
            self.source.remove(left["End"]["Offset"], right["End"]["Offset"])
            return first
        if first == Left.NOTHING and name in FILTERS:
            self.draft.skip(lines, NO_FILE)
            return first
        if first <= Left.INERT and is_lost:
            self.draft.skip(self.source.lines(node), "it only prints")
            return Left.INERT
        return Left.ACTIVE

    def _is_test(self, node: Node) -> bool:
        """Whether a statement is a test of bash, e.g. `[ -n "$X" ]`."""
        command = node.get("Cmd") or {}
        arguments = command.get("Args") or []
        is_program = bool(arguments) and self.source.text_of(arguments[0]) in ("[", "test")
        return is_program or command.get("Type") in ("TestClause", "ArithmCmd")

    # Structures.

    def _structure(
        self, node: Node, conditions: list[Node], blocks: list[list[Node]], context: Context
    ) -> Left:
        """Read a structure with conditions and blocks. It stays as it is if something of it does."""
        exits = self.lost_exits
        judged = [self._condition(words) for words in map(self._words_of, calls_in(conditions))]
        results = [self._block(block, context) for block in blocks]
        asks = max((left for left, _ in judged), default=Left.NOTHING)
        left = max(results, default=Left.NOTHING)
        asks_cluster = any(is_about for _, is_about in judged)
        text = self.source.text_of(node)
        asks_in_it = asks_cluster or bool(ASKS_CLUSTER.search(text))
        is_wait = context.is_looped and asks < Left.ACTIVE and left < Left.EXIT
        is_wait = is_wait and (asks_cluster or bool(re.search(r"\bsleep\b", text)))
        has_lost_exits = context.is_looped and self.lost_exits > exits
        if has_lost_exits and left == Left.ACTIVE:
            self.draft.look(
                self.source.lines(node)[:1], "a way out of this loop asked about the cluster, and is gone"
            )
        if (asks_in_it and (left == Left.EXIT or is_wait)) or (has_lost_exits and left < Left.SETUP):
            self.draft.skip(self.source.lines(node), RAY)
            return Left.NOTHING
        if left == Left.EXIT and asks < Left.ACTIVE:
            return left
        if asks < Left.ACTIVE and left < Left.ACTIVE:
            lines = self.source.lines(node)
            self.draft.skip(lines, STRUCTURE)
            return left
        if asks_cluster:
            place = self.source.lines(conditions[0])
            self.draft.look(place, "the condition asks about the cluster, and stays as it is")
        return Left.ACTIVE

    def _condition(self, words: list[Word]) -> tuple[Left, bool]:
        return self.handler.judge_condition(words) if words else (Left.NOTHING, False)

    def _words_of(self, call: Node) -> list[Word]:
        return [word for argument in call.get("Args") or [] for word in self.variables.expand(argument)]

    def _read_ifclause(self, node: Node, command: Node, context: Context) -> Left:
        path = self._missing_path(command)
        lines = self.source.lines(node)
        if path is not None and not context.is_looped and self.handler.handle_missing_path(path, lines):
            return Left.NOTHING
        conditions: list[Node] = []
        blocks: list[list[Node]] = []
        branch: Node | None = command
        while branch:
            conditions += branch.get("Cond") or []
            blocks.append(branch.get("Then") or [])
            branch = branch.get("Else")
        return self._structure(node, conditions, blocks, replace(context, is_conditional=True))

    def _missing_path(self, command: Node) -> Word | None:
        """Return the path of `if [ ! -e PATH ]; then ... exit`, for which a job spec has checks.paths."""
        conditions, then = command.get("Cond") or [], command.get("Then") or []
        last = (then[-1].get("Cmd") or {}).get("Args") if then else None
        if len(conditions) != 1 or command.get("Else") or not last or self.source.text_of(last[0]) != "exit":
            return None
        test = conditions[0].get("Cmd") or {}
        words = self._words_of(test)
        texts = [word.constant for word in words]
        is_test = len(words) == 5 and texts[:2] == ["[", "!"] and texts[4] == "]"
        if is_test and texts[2] in ("-d", "-e", "-f"):
            return words[3]
        expression = test.get("X") or {}
        inner = expression.get("X") or {}
        is_test = test.get("Type") == "TestClause" and expression.get("Op") == "!"
        if is_test and inner.get("Op") in ("-d", "-e", "-f") and (inner.get("X") or {}).get("Type") == "Word":
            return self.variables.value(inner["X"], self.source.lines(inner["X"])[0])
        return None

    def _read_whileclause(self, node: Node, command: Node, context: Context) -> Left:
        body = replace(context, is_looped=True)
        return self._structure(node, command.get("Cond") or [], [command.get("Do") or []], body)

    def _read_forclause(self, node: Node, command: Node, context: Context) -> Left:
        loop = command["Loop"]
        name = (loop.get("Name") or {}).get("Value") if loop["Type"] == "WordIter" else None
        for each in [name] if name else re.findall(r"(\w+) *=", self.source.text_of(loop)):
            self._set_unknown(each)
        return self._structure(node, [], [command.get("Do") or []], replace(context, is_looped=True))

    def _read_caseclause(self, node: Node, command: Node, context: Context) -> Left:
        blocks = [item.get("Stmts") or [] for item in command.get("Items") or []]
        return self._structure(node, [], blocks, replace(context, is_conditional=True))

    def _read_block(self, node: Node, command: Node, context: Context) -> Left:
        return self._structure(node, [], [command.get("Stmts") or []], context)

    def _read_timeclause(self, node: Node, command: Node, context: Context) -> Left:
        if not command.get("Stmt"):
            return Left.INERT
        self.source.remove(node["Pos"]["Offset"], command["Stmt"]["Pos"]["Offset"])
        return self._statement(command["Stmt"], context)

    def _read_funcdecl(self, node: Node, command: Node, context: Context) -> Left:
        del context
        self.functions[command["Name"]["Value"]] = command
        lines = self.source.lines(node)
        self.draft.skip([lines[0], lines[-1]], STRUCTURE)
        return Left.INERT

    def _read_testclause(self, node: Node, command: Node, context: Context) -> Left:
        del command, context
        self.draft.skip(self.source.lines(node), STRUCTURE)
        return Left.INERT

    _METHODS: ClassVar[dict[str, Callable[[Reader, Node, Node, Context], Left]]] = {
        **{"CallExpr": _read_callexpr, "DeclClause": _read_declclause, "BinaryCmd": _read_binarycmd},
        **{"IfClause": _read_ifclause, "WhileClause": _read_whileclause, "ForClause": _read_forclause},
        **{"CaseClause": _read_caseclause, "TimeClause": _read_timeclause, "FuncDecl": _read_funcdecl},
        **dict.fromkeys(("Block", "Subshell"), _read_block),
        **dict.fromkeys(("TestClause", "ArithmCmd", "LetClause"), _read_testclause),
    }


def written(node: Node) -> list[Node]:
    """Return the redirections of a statement that write its standard output to a file."""
    return [
        each
        for each in node.get("Redirs") or []
        if each["Op"] in WRITES and (each.get("N") or {}).get("Value") in (None, "1")
    ]


def _is_about_nodes(code: str) -> bool:
    """Whether a value is that of a program that names nodes or addresses."""
    return bool(CLUSTER_CODE.search(code))


def _has_effect(part: Part) -> bool:
    return part.kind == "code" and has_effect(part.text)
