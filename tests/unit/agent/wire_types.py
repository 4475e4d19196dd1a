"""The types in slurmray/agent/wire at run time: messages that tests send and get are checked with them."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any, get_args

import pydantic
from typing_extensions import get_type_hints

from slurmray.agent import wire

FOLDER = Path(wire.__file__).parent
PACKAGE = "typed_wire"


def _module(name: str) -> dict[str, Any]:
    """The names of a module that are defined for type checkers only."""
    module = types.ModuleType(f"{PACKAGE}.{name}")
    module.__package__ = PACKAGE
    sys.modules[module.__name__] = module
    text = (FOLDER / f"{name}.py").read_text().replace("TYPE_CHECKING = False", "TYPE_CHECKING = True")
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - a file of slurmray
    return module.__dict__


sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
SETTINGS = _module("settings")
_MESSAGES = _module("messages")


def _declared(union: str) -> dict[str, Any]:
    """Type of message -> its TypedDict."""
    return {get_args(get_type_hints(kind)["type"])[0]: kind for kind in get_args(_MESSAGES[union])}


TO_CONTROLLER, TO_NODES, TO_CONTAINER = map(_declared, ("ToController", "ToNodes", "ToContainer"))


def fields(kind: Any) -> set[str]:
    """The names of a message's fields."""
    return {*kind.__annotations__} - {"type"}


def checked(declared: dict[str, Any], message: dict[str, Any]) -> Any:
    """Return the message, if its type is declared, with the fields that it has and values of their types.

    Settings and the job's record are not looked at: tests give them in part.
    """
    kind = declared[message["type"]]
    given = {*message} - {"type", "node"}
    wanted = fields(kind) - {"node"}
    assert wanted - {*kind.__optional_keys__} <= given <= wanted, f"{message}: {sorted(wanted)}"
    for name, hint in get_type_hints(kind).items():
        if name in given - {"job", "settings"}:
            pydantic.TypeAdapter(hint).validate_python(message[name])
    return message
