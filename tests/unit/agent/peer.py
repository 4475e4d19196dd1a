"""The other end of a program's messages, for stand-ins of the controller, a node agent or a node."""

from __future__ import annotations

import os
import select
from typing import Any

from slurmray.agent.wire import codec

from .wire_types import checked


class Peer:
    """Messages over two file descriptors, each checked with its declared type.

    sends, gets: type of message -> its TypedDict. always: fields of all messages that it sends. received: all
    messages so far.
    """

    def __init__(
        self, read: int, write: int, sends: dict[str, Any], gets: dict[str, Any], **always: str
    ) -> None:
        self.received: list[dict[str, Any]] = []
        self._read, self._write = read, write
        self._sends, self._gets, self._always = sends, gets, always
        self._decoder = codec.LineDecoder()
        self._lines: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Add what somebody else has read."""
        self._lines += self._decoder.feed(data)

    def send(self, kind: str, /, **fields: Any) -> None:
        self.write(codec.encode(checked(self._sends, {"type": kind, **fields, **self._always})))

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write, data) :]

    def next(self, seconds: float | None = None) -> dict[str, Any] | None:
        """Return the next message, None at the end of the input. TimeoutError: none for some seconds."""
        while not self._lines:
            if not select.select([self._read], [], [], seconds)[0]:
                raise TimeoutError
            data = os.read(self._read, 65536)
            if not data:
                return None
            self.feed(data)
        line = self._lines.pop(0)
        message = codec.decode(line)
        assert message, line
        self.received.append(checked(self._gets, message))
        return message
