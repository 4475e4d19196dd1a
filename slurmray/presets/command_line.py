"""Parses the trainer's command: Hydra overrides and flags, as far as their values are known when rendering.

Hydra: `key=value`, `+key=value`, `++key=value`, `~key` (hydra.cc, "Override grammar, basic"); flags: `--flag
value` and `--flag=value` (argparse). In both, the last of several counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from slurmray.slurm.syntax import parse_count

_OVERRIDE = re.compile(r"(\+\+|\+|~)?([\w./@-]+)(?:=(.*))?", re.DOTALL)
_ENDS_COMMAND = re.compile(r"[;&|()<>]+")
_OWN_ARGUMENTS = re.compile(r"\$(?:[@*]|\{[@*])")
_ASSIGNMENT = re.compile(
    r"^(\w+)=(?:\(((?:[^()`'$]|\$(?!\()|'[^'$]*')*)\)|([^\s()`$;&|]\S*))[ \t]*(?:#.*)?$", re.MULTILINE
)
_WHOLE_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_HASH_INSIDE_TOKEN = re.compile(r"(?<=[^\s;&|()<>])#")  # begins no comment for bash, but one for shlex


@dataclass(frozen=True)
class ParsedOption:
    """An override or a flag. index: of its argument. value: None if it is only known when the job runs."""

    index: int
    value: str | None
    prefix: str = ""
    """`+`, `++` or `~` of a Hydra override."""

    @property
    def number(self) -> int | None:
        """The value as an integer; None if it is none."""
        return parse_integer(self.value)


@dataclass(frozen=True)
class CommandLine:
    """A command and its arguments.

    is_extensible: arguments can be appended; a text for bash has them as "$@". is_list: the job
    spec has it as a list, so that messages can name the item of an argument.
    """

    argv: tuple[str, ...] = ()
    is_extensible: bool = False
    is_list: bool = False

    @property
    def is_parsed(self) -> bool:
        """Whether argv has the trainer's own arguments, and is not that of a script with them."""
        return bool(self.argv) and (not self.is_list or self.is_extensible)

    def override(self, key: str) -> ParsedOption | None:
        """Return the Hydra override of a key; None if there is none."""
        for index, argument in reversed(list(enumerate(self.argv))):
            match = _OVERRIDE.fullmatch(argument)
            if match and match[2] == key and (match[3] is not None or match[1]):
                return ParsedOption(index, _drop_unknown(match[3]), match[1] or "")
        return None

    def overrides_below(self, key: str) -> list[tuple[str, ParsedOption]]:
        """Return the Hydra overrides of keys below a key, with the rest of their names, in order."""
        overrides = {}
        for argument in self.argv:
            name = argument.lstrip("+~").partition("=")[0]
            if name.startswith(f"{key}.") and (option := self.override(name)):
                overrides[name.removeprefix(f"{key}.")] = option
        return list(overrides.items())

    def flag(self, *names: str) -> ParsedOption | None:
        """Return the flag with one of these names. The value of a switch is the next argument."""
        for index, argument in reversed(list(enumerate(self.argv))):
            name, equals, value = argument.partition("=")
            if name in names:
                following = self.argv[index + 1] if index + 1 < len(self.argv) else ""
                return ParsedOption(index, _drop_unknown(value if equals else following))
        return None


def parse_command(run: Sequence[str] | str | None) -> CommandLine:
    """Parse `run` of a job spec. From a text for bash, take the one command that runs Python."""
    if run is None:
        return CommandLine()
    if isinstance(run, str):
        return CommandLine(_find_python_command(run), is_extensible=bool(_OWN_ARGUMENTS.search(run)))
    if len(run) > 2 and run[0].rpartition("/")[2] in ("bash", "sh") and re.fullmatch("-[a-z]*c", run[1]):
        return CommandLine(_find_python_command(run[2]))
    return CommandLine(tuple(run), is_extensible=_runs_python(run), is_list=True)


def parse_integer(value: object) -> int | None:
    """Return a number as Hydra reads it, also `+2`; None for anything else."""
    return parse_count(value.removeprefix("+")) if isinstance(value, str) else None


def _drop_unknown(value: str | None) -> str | None:
    """Return the value, or None if bash would expand it."""
    return None if value is None or re.search(r"[$`]", value) else value


def _runs_python(argv: Sequence[str]) -> bool:
    return any(argument == "-m" or argument.endswith(".py") for argument in argv)


def _find_python_command(text: str) -> tuple[str, ...]:
    """Return the argv of the Python command in a text for bash, with the values that are certain.

    Empty if there is not exactly one, or if bash would expand one of its arguments to several.
    """
    if "<<" in text:
        return ()
    text = text.replace("\\\n", " ")
    values = _find_values(text)
    calls = []
    for line in text.splitlines():
        if re.search(r"`|\$\((?!\()", line):
            if re.search(r"python|\.py\b|\s-m\s", line.partition("#")[0]):
                return ()
            continue
        try:
            commands = _split_commands(line)
        except ValueError:  # a quote that ends on another line
            return ()
        calls += [argv for command in commands if _runs_python(argv := _expand(command, values))]
    if len(calls) != 1 or any(token.startswith("$") and not token.endswith(".py") for token in calls[0]):
        return ()
    return tuple(calls[0])


def _split_commands(line: str) -> list[list[str]]:
    """Return the words of each command on a line. ValueError for a quote that does not end on it."""
    lexer = shlex.shlex(_HASH_INSIDE_TOKEN.sub("\0", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for token in lexer:
        if _ENDS_COMMAND.fullmatch(token):
            commands.append([])
        else:
            commands[-1].append(token.replace("\0", "#"))
    return commands


def _find_values(text: str) -> dict[str, list[str]]:
    """Return the variables that a text sets once, at the beginning of a line, to constants: array or not."""
    values: dict[str, list[str]] = {}
    for match in _ASSIGNMENT.finditer(text):
        name, array, value = match.groups()
        if (
            len(re.findall(rf"\b{name}(?:\[[^]]*\])?\+?=|\b(?:for|read|mapfile|unset)\b.*\b{name}\b", text))
            > 1
        ):
            continue
        try:
            words = shlex.split(array if array is not None else value, comments=True)
        except ValueError:
            continue
        if len(words) == 1 or array is not None:
            values[name] = words
    return values


def _expand(command: list[str], values: dict[str, list[str]]) -> list[str]:
    """Return the words of a command with these values, and without what the preset appends to them."""
    argv: list[str] = []
    for word in command:
        match = _WHOLE_ARRAY.fullmatch(word)
        if match and match[1] in values:
            argv += _expand(values[match[1]], {name: values[name] for name in values if name != match[1]})
        elif not _OWN_ARGUMENTS.match(word) and not (match and match[1] == "preset_args"):
            argv.append(_VARIABLE.sub(lambda found: _value(found, values), word))
    return argv


def _value(found: re.Match[str], values: dict[str, list[str]]) -> str:
    words = values.get(found[1] or found[2], [])
    return words[0] if len(words) == 1 else found[0]
