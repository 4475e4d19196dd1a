"""Checks fields and values of messages, because every program in a container can send some."""

import re

from .. import job_errors, signals
from ..inherited import LOGIN_SESSION
from ..node.runtimes import RUNTIMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Dict

    from ..wire.codec import Message


def _text(pattern: str) -> "Callable[[Any], bool]":
    return lambda value: isinstance(value, str) and bool(re.match("(?:%s)\\Z" % pattern, value, re.DOTALL))


def _number(most: int) -> "Callable[[Any], bool]":
    return lambda value: type(value) is int and 0 <= value <= most  # bool is an int


def _is_texts(value: "Any") -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_job_ids(value: "Any") -> bool:
    return _is_texts(value) and all(re.match(r"[0-9]{1,10}\Z", item) for item in value)


def _is_use(value: "Any") -> bool:
    """See wire/messages.py: numbers, and texts."""
    return isinstance(value, dict) and all(
        name in USE and (isinstance(item, str) if name in USE_TEXTS else _is_amount(item))
        for name, item in value.items()
    )


def _is_amount(value: "Any") -> bool:
    return type(value) in (int, float) and 0 <= value < 2**63  # not NaN


def _are_ports(value: "Any") -> bool:
    return isinstance(value, list) and len(value) <= 2 and all(map(_number(65535), value))


def _are_pairs(value: "Any") -> bool:
    return isinstance(value, list) and all(_is_texts(row) and len(row) == 2 for row in value)


def _is_figure(value: "Any") -> bool:
    return _is_amount(value) or value == -1


def _are_figures(value: "Any") -> bool:
    return isinstance(value, list) and all(map(_is_figure, value))


USE_TEXTS = ("error", "other")
USE = (
    "gpu",
    "lowest",
    "idlest",
    "gpu_memory",
    "power",
    "gpus",
    "idle_gpus",
    "waiting_gpus",
    "slowed",
    "cores",
    "memory",
    "shm",
    *USE_TEXTS,
)
_ANY = _text(".*")
_ADDRESS = "[0-9A-Za-z.:%_-]{1,64}"
_NAME = "[0-9A-Za-z_.@+-]*"  # of files in the run directory; Python 3.6 may open ASCII names only
_STAGE = "burn-in|(prepare|services)(-with-ray)?"
# Type -> its fields, and what each accepts. wire/messages.py describes them.
FIELDS: "Dict[str, Dict[str, Callable[[Any], bool]]]" = {
    "started": {"step": _text(r"\d{0,10}")},
    "heartbeat": {
        "doing": _ANY,
        "field": lambda value: value is None or isinstance(value, str),
        "use": lambda value: value is None or _is_use(value),
    },
    "phase": {"phase": _ANY, "text": _ANY},
    "finding": {
        "kind": _text("|".join([*job_errors.EXIT_CODES, "warn"])),
        "check": _ANY,
        "found": _ANY,
        "wanted": _ANY,
        "fix": _ANY,
    },
    "leftover_jobs": {"jobs": _are_job_ids},
    "unfit": {},
    "checked": {
        "addresses": _is_texts,
        "proxy": lambda value: isinstance(value, bool),
        "folder": _ANY,
        "gpus": lambda value: value is None or _number(10**4)(value),
    },
    "versions": {"text": _ANY},
    "reachable_at": {"address": _text(_ADDRESS), "ports": _are_ports},
    "join": {"address": _text(r"\[?%s\]?:\d{1,5}" % _ADDRESS)},
    "joined": {"nodes": _is_texts, "gpus": _number(10**6)},
    "ready": {"burn_in_port": lambda value: value is None or _number(65535)(value)},
    "burn_in": {
        "kind": _text("[ -~]{0,100}"),
        "products": _are_figures,
        "copies": _are_figures,
        "within": _is_figure,
        "pairs": _is_figure,
        "all": _is_figure,
        "problems": _are_pairs,
    },
    "stage_done": {"stage": _text(_STAGE)},
    "prepared": {"name": _text(_NAME)},
    "trainer": {"command": _ANY},
    "attach": {
        "command": _is_texts,
        "runtime": lambda value: isinstance(value, str) and value in RUNTIMES,
        "folder": _text("/[A-Za-z0-9_./-]{0,255}"),
        "unset": lambda value: _is_texts(value) and set(value) <= set(LOGIN_SESSION),
    },
    "dashboard": {"address": _text(_ADDRESS), "port": _number(65535)},
    "not_ready": {"missing": _ANY, "why": _ANY},
    "exit": {"code": _number(255)},
    "signal": {"name": _text("|".join(signals.PASSED_ON))},
    "healthy": {},
    "gpus": {"lost": _ANY},
    "stacks": {
        "number": _number(10**6),
        "rows": _are_pairs,
        "is_complete": lambda value: isinstance(value, bool),
    },
    "failed": {"kind": _text("|".join([*job_errors.EXIT_CODES, "ray"])), "message": _ANY},
    "stop_requested": {},
    "signalled": {},
    "tether_lost": {},
    "thread_error": {"text": _ANY},
    "gone": {},
}


def problem(message: "Message", nodes: "Collection[str]") -> str:
    """What is wrong with a message of a node; "" for nothing. nodes: of the job."""
    fields = FIELDS.get(message["type"])
    if fields is None:
        return "unknown type"
    node = message.get("node")
    named = [
        node,
        message.get("missing", node),
        message.get("worker", node),
        *(message["nodes"] if _is_texts(message.get("nodes")) else []),
    ]
    if not all(isinstance(name, str) and name in nodes for name in named):
        return "%s: no such node" % message["type"]
    for name, accepts in fields.items():
        if not accepts(message.get(name)):
            return "%s: wrong value of %s" % (message["type"], name)
    # The name of a log.
    return "" if _text(_NAME)(message.get("log", "")) else "failed: wrong value of log"
