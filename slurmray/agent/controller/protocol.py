"""The nodes' messages, a row for each kind: its fields, when and from whom it may come, what it changes.

Every program in a container can send messages, so all of that is checked. wire/messages.py describes the
fields. docs/inside/wire.md has diagrams that are drawn from these rows.
"""

import re

from .. import job_errors, signals
from ..inherited import LOGIN_SESSION
from ..node.runtimes import RUNTIMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Dict, Sequence

    from ..wire.codec import Message

    Check = Callable[[Any], bool]  # whether a value is right

# How far the bring-up of a node has come.
WAITING, STARTED, CHECKED, IN_RAY = NODE = ("waiting", "started", "checked", "in Ray")
# Whether a node still takes part. It only goes on from one to a later one.
UP, UNFIT, LOST, GONE = ENDS = ("up", "unfit", "lost", "gone")
# How far the job has come.
CHECKING, STARTING_RAY, READY, TRAINING, TRAINED = JOB = (
    "checking",
    "starting Ray",
    "ready",
    "training",
    "trained",
)


def _text(pattern: str) -> "Check":
    return lambda value: isinstance(value, str) and bool(re.match("(?:%s)\\Z" % pattern, value, re.DOTALL))


def _number(most: int) -> "Check":
    return lambda value: type(value) is int and 0 <= value <= most  # bool is an int


def _optional(check: "Check") -> "Check":
    return lambda value: value is None or check(value)


def _list(check: "Check") -> "Check":
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_bool(value: "Any") -> bool:
    return isinstance(value, bool)


def _is_amount(value: "Any") -> bool:
    return type(value) in (int, float) and 0 <= value < 2**63  # not NaN


def _is_figure(value: "Any") -> bool:
    return _is_amount(value) or value == -1


def _are_ports(value: "Any") -> bool:
    return _list(_number(65535))(value) and len(value) <= 2


def _is_pair(value: "Any") -> bool:
    return _ARE_TEXTS(value) and len(value) == 2


def _is_use(value: "Any") -> bool:
    return isinstance(value, dict) and all(name in USE and USE[name](value[name]) for name in value)


_ANY = _text(".*")
_ARE_TEXTS = _list(_ANY)
_ADDRESS = "[0-9A-Za-z.:%_-]{1,64}"
_NAME = "[0-9A-Za-z_.@+-]*"  # of files in the run directory; Python 3.6 may open ASCII names only
_STAGE = "burn-in|(prepare|services)(-with-ray)?"
# What the field `use` of a heartbeat may have.
_AMOUNTS = ("gpu", "lowest", "idlest", "gpu_memory", "power", "gpus", "idle_gpus", "waiting_gpus", "slowed")
USE: "Dict[str, Check]" = {
    **dict.fromkeys((*_AMOUNTS, "cores", "memory", "shm"), _is_amount),
    "error": _ANY,
    "other": _ANY,
}


class Kind:
    """A kind of message."""

    def __init__(
        self,
        fields: "Dict[str, Check]",
        during: "Sequence[str]" = JOB,
        *,
        is_from_head: bool = False,
        is_late: bool = False,
        node: str = "",
        end: str = "",
        job: str = "",
    ) -> None:
        self.fields = fields  # and what each accepts
        self.during = during  # where the job must be
        self.is_from_head = is_from_head  # only the head node sends it
        self.is_late = is_late  # it still has an effect while the step is being ended
        self.node = node  # of NODE: what the nodes that it is about come to by it, from the one before
        self.end = end  # of ENDS: what becomes of its node
        self.job = job  # what the job has come to by it


KINDS = {
    "started": Kind({"step": _text(r"\d{0,10}")}, node=STARTED, is_late=True),
    "heartbeat": Kind({"doing": _ANY, "field": _optional(_ANY), "use": _optional(_is_use)}),
    "phase": Kind({"phase": _ANY, "text": _ANY}, is_late=True),
    "finding": Kind(
        {
            "kind": _text("|".join([*job_errors.EXIT_CODES, "warn"])),
            "check": _ANY,
            "found": _ANY,
            "wanted": _ANY,
            "fix": _ANY,
            "worker": _optional(_ANY),
        },
        is_late=True,
    ),
    "leftover_jobs": Kind({"jobs": _list(_text("[0-9]{1,10}"))}, (CHECKING,)),
    "unfit": Kind({}, end=UNFIT),
    "checked": Kind(
        {
            "addresses": _ARE_TEXTS,
            "proxy": _is_bool,
            "folder": _ANY,
            "gpus": _optional(_number(10**4)),
        },
        (CHECKING,),
        node=CHECKED,
    ),
    "versions": Kind({"text": _ANY}, (STARTING_RAY,), is_from_head=True),
    "reachable_at": Kind({"address": _text(_ADDRESS), "ports": _are_ports}, (STARTING_RAY,)),
    "join": Kind({"address": _text(r"\[?%s\]?:\d{1,5}" % _ADDRESS)}, (STARTING_RAY,), is_from_head=True),
    "joined": Kind(
        {"nodes": _ARE_TEXTS, "gpus": _number(10**6)}, (STARTING_RAY,), is_from_head=True, node=IN_RAY
    ),
    "ready": Kind({"burn_in_port": _optional(_number(65535))}, (STARTING_RAY,), is_from_head=True, job=READY),
    "burn_in": Kind(
        {
            "kind": _text("[ -~]{0,100}"),
            "products": _list(_is_figure),
            "copies": _list(_is_figure),
            "within": _is_figure,
            "pairs": _is_figure,
            "all": _is_figure,
            "problems": _list(_is_pair),
        },
        (READY,),
    ),
    # While it trains: of a node that joins.
    "stage_done": Kind({"stage": _text(_STAGE)}, (STARTING_RAY, READY, TRAINING)),
    "prepared": Kind({"name": _text(_NAME)}, (STARTING_RAY, READY, TRAINING)),
    "attach": Kind(
        {
            "command": _ARE_TEXTS,
            "runtime": lambda value: isinstance(value, str) and value in RUNTIMES,
            "folder": _text("/[A-Za-z0-9_./-]{0,255}"),
            "unset": lambda value: _ARE_TEXTS(value) and set(value) <= set(LOGIN_SESSION),
        },
        (READY,),
        is_from_head=True,
    ),
    "dashboard": Kind({"address": _text(_ADDRESS), "port": _number(65535)}, is_from_head=True),
    "unplaceable": Kind(
        {"text": _text("[ -~]{1,300}"), "fix": _text("[ -~]{1,300}"), "ended": _is_bool}, is_from_head=True
    ),
    "trainer": Kind({"command": _ANY}, (READY,), is_from_head=True, job=TRAINING),
    "not_ready": Kind({"missing": _ANY, "why": _ANY}),
    "exit": Kind({"code": _number(255)}, (TRAINING,), is_from_head=True, job=TRAINED),
    "signal": Kind({"name": _text("|".join(signals.PASSED_ON))}, is_from_head=True),
    "healthy": Kind({}, (TRAINED,)),
    "gpus": Kind({"lost": _ANY}, (TRAINED,)),
    "stacks": Kind({"number": _number(10**6), "rows": _list(_is_pair), "is_complete": _is_bool}, (TRAINING,)),
    "failed": Kind(
        {
            "kind": _text("|".join([*job_errors.EXIT_CODES, "ray"])),
            "message": _ANY,
            "log": _optional(_text(_NAME)),
        }
    ),
    "stop_requested": Kind({}),
    "signalled": Kind({}),
    "tether_lost": Kind({}),
    "thread_error": Kind({"text": _ANY}, is_late=True),
    "gone": Kind({}, end=GONE, is_late=True),
}


def problem(message: "Message", nodes: "Collection[str]") -> str:
    """What is wrong with a message of a node; "" for nothing. nodes: of the job."""
    kind = KINDS.get(message["type"])
    if kind is None:
        return "unknown type"
    node, others = message.get("node"), message.get("nodes")
    named = [node, message.get("missing", node), message.get("worker", node)]
    if isinstance(others, list) and _ARE_TEXTS(others):
        named += others
    if not all(isinstance(name, str) and name in nodes for name in named):
        return "%s: no such node" % message["type"]
    for name, is_right in kind.fields.items():
        if not is_right(message.get(name)):
            return "%s: wrong value of %s" % (message["type"], name)
    return ""
