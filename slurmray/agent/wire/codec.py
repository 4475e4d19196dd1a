"""The wire format between controller, node agents and container processes: one JSON object a line.

A message is a dict with `type`; on the wire it also has the version `v`, and `node` on the way to the
controller. Controller to nodes: srun's standard input, which reaches every task. Nodes to controller: the
tasks' standard output. Node agent and container process: the container's standard input and output.
messages.py has the types.
"""

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

    from . import messages

    Message = Dict[str, Any]  # decoded: of any type

VERSION = 1
# srun passes a line of a task on in one piece up to 1,024 bytes (slurmstepd's MAX_MSG_LEN); a longer one may
# be mixed with those of other tasks.
MAX_BYTES_TO_CONTROLLER = 1000
# Longer lines are not messages. Settings are the largest: a long prepare step, hundreds of variables.
MAX_BYTES_TO_NODES = 16 * 1024 * 1024
# A line of the step that is not a message goes to the log up to this length.
MAX_TEXT = 4096

_CUT = " ... "


class ProtocolError(Exception):
    """A message that cannot be sent, or a line that looks like a message but is not valid."""


def encode(message: "messages.ToContainer") -> bytes:
    """Encode a message to a node as one line. ProtocolError above MAX_BYTES_TO_NODES."""
    line = _dump(message)
    if len(line) > MAX_BYTES_TO_NODES:
        raise ProtocolError("message of %d bytes: at most %d" % (len(line), MAX_BYTES_TO_NODES))
    return line


def encode_to_controller(message: "messages.ToController", node: str) -> bytes:
    """Encode a message of a node to the controller as one line of at most MAX_BYTES_TO_CONTROLLER bytes.

    While it is too long, the longest text loses its middle, as errors begin with the place and end with the
    cause. Lists lose their last items.
    """
    copied = {key: list(value) if isinstance(value, list) else value for key, value in message.items()}
    cut: "Message" = dict(copied, node=node)
    line = _dump(cut)
    while len(line) > MAX_BYTES_TO_CONTROLLER:
        if not _shorten(cut, len(line) - MAX_BYTES_TO_CONTROLLER):
            raise ProtocolError("message %s of %d bytes cannot be cut" % (message["type"], len(line)))
        line = _dump(cut)
    return line


def decode(line: bytes) -> "Optional[Message]":
    """Return the message of a line, None where it is other output. ProtocolError for another version."""
    if not line.startswith(b"{"):
        return None
    try:
        message = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not (isinstance(message, dict) and "v" in message and isinstance(message.get("type"), str)):
        return None
    version = message.pop("v")
    if version != VERSION:
        text = "message of protocol version %s, this agent uses version %d"
        raise ProtocolError(text % (str(version)[:20], VERSION))
    return message


class LineDecoder:
    """Splits a byte stream into lines. A line longer than `limit` bytes is dropped."""

    def __init__(self, limit: int = MAX_BYTES_TO_NODES) -> None:
        self.limit = limit
        self._pieces: "List[bytes]" = []  # of the incomplete line
        self._size = 0

    def feed(self, data: bytes) -> "List[bytes]":
        """Add a piece of the stream; return the lines that it completes, without their newlines."""
        first, *lines = data.split(b"\n")
        self._keep(first)
        if not lines:
            return []
        rest = lines.pop()
        if self._size <= self.limit:
            lines.insert(0, self.rest)
        self._pieces, self._size = [], 0
        self._keep(rest)
        return lines

    @property
    def rest(self) -> bytes:
        """The incomplete line."""
        return b"".join(self._pieces)

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self.limit:
            self._pieces = []
        elif data:
            self._pieces.append(data)


def _dump(message: "Mapping[str, Any]") -> bytes:
    # json escapes what is not ASCII, surrogates included (bytes of file names that are not UTF-8). So each
    # character is one byte.
    return json.dumps(dict(message, v=VERSION), separators=(",", ":")).encode("ascii") + b"\n"


def _shorten(message: "Message", excess: int) -> bool:
    """Shorten the longest text or list of a message in place; False where there is none."""
    lengths = {}
    for key, value in message.items():
        if key not in ("type", "node") and isinstance(value, (str, list)) and value:
            lengths[key] = len(json.dumps(value))
    key = max(lengths, key=lambda name: lengths[name]) if lengths else ""
    if not key or lengths[key] <= len(_CUT) + 2:
        return False
    value = message[key]
    if isinstance(value, list):
        value.pop()
        return True
    # A character takes up to 12 bytes. Removing too few costs another turn of the loop, too many loses text.
    remove = max(1, min(excess + len(_CUT), lengths[key]) * len(value) // lengths[key])
    value = value.replace(_CUT, "")
    keep = max(0, len(value) - remove)
    head = keep * 2 // 5
    message[key] = value[:head] + _CUT + value[len(value) - (keep - head) :] if keep else ""
    return True
