"""Types of values in a job spec, e.g. text, integers and ports.

Each accepts values from YAML, flags and Python; numbers and booleans may be source text. Errors are
ValueError with a message for users, or with several, one for each mistake.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema

_T = TypeVar("_T")
_R = TypeVar("_R")

# Bytes. Linux: 131,072 for each argument or NAME=VALUE, MAX_ARG_STRLEN, and a quarter of the stack, usually
# 2 MiB, for all of them: execve(2). The job has others, too.
MAX_TEXT = 120000
MAX_VARIABLES = 1000000
MAX_NAME = 1024  # bytes of a job's name: Slurm's limit (src/slurmctld/job_mgr.c, _test_job_desc_fields)
MAX_PATH, MAX_FILE_NAME = 4095, 255  # bytes: Linux's limits, PATH_MAX without its NUL, and NAME_MAX
MAX_INTEGER = 100_000_000  # of any field; as seconds three years
# Control characters, unusual blanks, bidirectional marks, line separators, lone surrogates: people would not
# see them, or other text than there is. Not str.isprintable, which depends on the version of Python.
INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\xa0\xad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\ud800-\udfff\ufeff\ufff9-\uffff"
    "\U000e0000-\U000e0fff]"
)

FILL_IN = "FILL IN:"  # begins a place in a job spec that only the user can fill in
_ITEM_NAME = "[a-z][a-z0-9-]{0,31}"
_ENV_NAME = "[A-Za-z_][A-Za-z0-9_]*"


def accept(value: _T, wrong: Sequence[str]) -> _T:
    """Return a value; ValueError with all that is wrong with it, if there is something."""
    if wrong:
        raise ValueError(*wrong)
    return value


def check_items(check: Callable[[_T], _R], items: Iterable[tuple[str, _T]]) -> list[_R]:
    """Apply a check to (name, item) pairs and return the results; ValueError has all errors, with names."""
    results, wrong = [], []
    for name, item in items:
        try:
            results.append(check(item))
        except ValueError as error:
            wrong += [f"{name}: {message}" if name else message for message in error.args]
    return accept(results, wrong)


def find_duplicates(names: Sequence[str]) -> list[str]:
    """Return the duplicates among the names, each once."""
    return [name for name, count in Counter(names).items() if count > 1]


def shown(value: object) -> str:
    """Return a value for a message: its text, shortened, or its kind."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict | BaseModel):
        return "a mapping"
    text = str(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def check_text(value: str) -> str:
    """Return a text that can be an argument of a program; ValueError if it cannot."""
    if "\0" in value:
        raise ValueError("a NUL character cannot be passed to a program; leave it out")
    if re.search("[\ud800-\udfff]", value):
        raise ValueError("not UTF-8; use text only")
    if len(value.encode()) > MAX_TEXT:
        size = len(value.encode())
        raise ValueError(f"has {size} bytes, and programs get at most {MAX_TEXT}; write it to a file")
    return value


def check_line(value: str) -> str:
    """Return one line of visible text; ValueError for any other text, and for one that is no argument."""
    if "\n" in check_text(value):
        raise ValueError("has a newline; write it on one line")
    if not value:
        raise ValueError("is empty; set a value or leave it out")
    if invisible := INVISIBLE.search(value):
        raise ValueError(f"{shown(value)} has the invisible character {invisible[0]!a}; leave it out")
    return value


def _check_name(value: str) -> str:
    if (size := len(value.encode())) > MAX_NAME:
        raise ValueError(f"has {size} bytes, and Slurm takes at most {MAX_NAME}; shorten it")
    return value


def check_path(value: str) -> str:
    """Return a path as it is; ValueError for one that no file can have."""
    size, longest = len(value.encode()), max(len(name.encode()) for name in value.split("/"))
    if size > MAX_PATH or longest > MAX_FILE_NAME:
        limits = f"at most {MAX_PATH}, and each name in it at most {MAX_FILE_NAME}"
        raise ValueError(f"has {size} bytes, and a path has {limits}; shorten it")
    return value


def _parse_integer(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"expected an integer, got {shown(value)}")
    if value > MAX_INTEGER:
        raise ValueError(f"expected {MAX_INTEGER} or less, got {shown(value)}")
    return value


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def _parse_seconds(value: object) -> object:
    if isinstance(value, str) and (match := re.fullmatch(r"([+-]?[0-9]{1,18})([smh]?)", value)):
        value = int(match[1]) * _UNITS[match[2]]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"expected seconds, or a time such as 30m or 2h, got {shown(value)}")
    return _parse_integer(value)


def _parse_flag(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"expected true or false, got {shown(value)}")


def _parse_switch(value: object) -> object:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"expected true, false or text, got {shown(value)}")


def _parse_port(value: object) -> object:
    if value == "auto":
        return value
    try:
        port = _parse_integer(value)
    except ValueError:
        raise ValueError(f"expected auto or a port from 1024 to 65535, got {shown(value)}") from None
    if not (isinstance(port, int) and 1024 <= port <= 65535):
        raise ValueError(f"expected auto or a port from 1024 to 65535, got {port}")
    return port


def _parse_where(value: object) -> object:
    if value in ("head", "workers", "all"):
        return value
    try:
        nodes = _parse_integer(value)
    except ValueError:
        nodes = 0
    if not (isinstance(nodes, int) and nodes >= 1):
        raise ValueError(f"expected head, workers, all or a number of nodes, got {shown(value)}")
    return nodes


def matches(expression: str, message: str) -> AfterValidator:
    """Return a check that a whole text matches a regular expression. message: if not; {got} is the text."""

    def check(value: str) -> str:
        if not re.fullmatch(expression, value, re.DOTALL):
            raise ValueError(message.replace("{got}", shown(value)))
        return value

    return AfterValidator(check)


def _parse_program(value: object) -> object:
    if value is None:
        return value
    if not value or (isinstance(value, str) and not value.strip()):
        raise ValueError("is empty; leave it out to run the built-in check")
    command = _parse_command(value)
    text = command if isinstance(command, str) else "\n".join(command)
    if found := re.search(rf"{FILL_IN}[^\n'\"]*", text):
        raise ValueError(f"has {shown(found[0])}, from slurmray init: write your own there")
    return command


def as_argv(run: Sequence[str] | str | None) -> list[str] | None:
    """Return `run` as an argv. bash has what is appended to that of a text as "$@"."""
    if isinstance(run, str):
        return ["bash", "-c", run, "slurmray"]
    return None if run is None else list(run)


def _parse_command(value: object) -> str | list[str]:
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("is empty; expected a list of arguments or a text for bash")
        arguments = check_items(
            _parse_argument, ((f"item {number}", item) for number, item in enumerate(value, start=1))
        )
        if re.match(_COMMAND_IN_ONE_ITEM, arguments[0]):
            name = shown(arguments[0])
            raise ValueError(f"{name} is one program's name; write one item per argument, or a text for bash")
        return arguments
    if isinstance(value, str) and value.strip():
        return check_text(value)
    raise ValueError(f"expected a list of arguments or a text for bash, got {shown(value)}")


# Without a slash it is looked for in PATH, where no program has blanks in its name. With one it may be the
# path of a program in a folder whose name has blanks, unless it begins with an interpreter.
_COMMAND_IN_ONE_ITEM = re.compile(r"(?:python[0-9.]*|bash|sh|ray|uv)\s+\S|[^\s/]+\s+[^\s/][^/]*$")


def _parse_argument(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected text, got {shown(value)}")
    return check_text(str(value))


# Fields of a runtime environment that Ray does not accept as text (ray/runtime_env/runtime_env.py).
_NOT_TEXT = {"eager_install": _parse_flag, "pip_check": _parse_flag, "setup_timeout_seconds": _parse_integer}


def _parse_runtime_env(value: object) -> object:
    if isinstance(value, dict):
        return _parse_content("", value)
    if isinstance(value, str) and value.strip():
        return check_path(check_line(value))
    raise ValueError(f"expected a mapping, or the path of a YAML file, got {shown(value)}")


def _parse_content(name: str, value: object) -> object:
    if isinstance(value, dict):
        inside = _parse_variable if name == "env_vars" else _parse_content

        def entry(pair: tuple[object, object]) -> tuple[str, object]:
            return check_text(str(pair[0])), inside(str(pair[0]), pair[1])

        return dict(check_items(entry, (("", pair) for pair in value.items())))
    if isinstance(value, list | tuple):
        return check_items(lambda item: _parse_content("", item), (("", item) for item in value))
    if name in _NOT_TEXT:
        try:
            return _NOT_TEXT[name](value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if value is not None and not isinstance(value, str | int | float):
        kinds = "text, a number, true, false, null, a list or a mapping"
        raise ValueError(f"{name and f'{name}: '}expected {kinds}, got a {type(value).__name__}")
    return check_text(value) if isinstance(value, str) else value


def _parse_variable(name: str, value: object) -> str:
    try:
        return _parse_argument(value)
    except ValueError as error:
        raise ValueError(f"env_vars: {name}: {error}") from None


# For editors: `mem: 200` and `x: true` are text in a job spec, but a number and a boolean in YAML.
_ANY_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean"]}


def pattern(expression: str) -> WithJsonSchema:
    """Return the JSON Schema of a text for editors. expression: a regular expression of ECMA-262."""
    return WithJsonSchema({"type": ["string", "number"], "pattern": expression})


Text = Annotated[str, AfterValidator(check_text), WithJsonSchema(_ANY_SCALAR)]
Line = Annotated[str, AfterValidator(check_line), WithJsonSchema(_ANY_SCALAR)]
Name = Annotated[Line, AfterValidator(_check_name)]
FilePath = Annotated[Line, AfterValidator(check_path)]
Integer = Annotated[int, BeforeValidator(_parse_integer)]
Seconds = Annotated[int, Field(ge=0), BeforeValidator(_parse_seconds)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_parse_integer)]
Natural = Annotated[int, Field(ge=0), BeforeValidator(_parse_integer)]
Flag = Annotated[bool, BeforeValidator(_parse_flag)]
Switch = Annotated[bool | Line, BeforeValidator(_parse_switch)]
Port = Annotated[
    Annotated[int, Field(ge=1024, le=65535)] | Literal["auto"],
    BeforeValidator(_parse_port),
]
Where = Annotated[
    Literal["head", "workers", "all"] | Annotated[int, Field(ge=1)],
    BeforeValidator(_parse_where),
]
_NAME_RULE = "expected up to 32 lower-case letters, digits and -, beginning with a letter, e.g. data"
_VARIABLE_RULE = "not a valid name of a variable; use letters, digits and _, and no digit first"
# Without the value, which may be the secret.
_REFERENCE_RULE = (
    "expected env:NAME, e.g. env:SLACK_WEBHOOK, the variable that has the URL: "
    "the URL is a secret, and would be in the script"
)
_PATH_RULE = matches("[/$].*", "expected an absolute path, got {got}")  # the nodes expand variables
ItemName = Annotated[str, matches(_ITEM_NAME, _NAME_RULE), pattern(f"^{_ITEM_NAME}$")]
EnvName = Annotated[str, matches(_ENV_NAME, _VARIABLE_RULE), pattern(f"^{_ENV_NAME}$")]
EnvReference = Annotated[str, matches(f"env:{_ENV_NAME}", _REFERENCE_RULE), pattern(f"^env:{_ENV_NAME}$")]
AbsolutePath = Annotated[FilePath, _PATH_RULE, pattern("^[/$]")]
Command = Annotated[list[Text] | Text, BeforeValidator(_parse_command)]
Program = Annotated[list[Text] | Text | None, BeforeValidator(_parse_program)]
RuntimeEnv = Annotated[dict[str, Any] | Text | None, BeforeValidator(_parse_runtime_env)]
