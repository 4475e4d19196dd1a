"""Calls the tools of `slurmray mcp`, in the current folder."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from slurmray.cli.mcp_server import make_server

ARGV = [sys.executable, "-m", "slurmray", "mcp"]
ROOT = Path(__file__).parents[1]
# The SDK's client hands on only a few variables.
_VARIABLES = ("PATH", "SLURMRAY_CONFIG", "XDG_STATE_HOME")
_HANG = 120  # seconds
_CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def with_server(body: Callable[[Client], Awaitable[None]], *, is_read_only: bool = False) -> None:
    """Call a server in this process with the client of MCP's own SDK; it starts a process for each call."""

    async def run_body() -> None:
        async with Client(make_server(is_read_only=is_read_only), read_timeout_seconds=300) as client:
            await body(client)

    anyio.run(run_body)


def call(tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> CallToolResult:
    """Call a tool of a new server in this process."""
    results = []

    async def body(client: Client) -> None:
        results.append(await client.call_tool(tool, arguments or {}, **options))

    with_server(body)
    return results[0]


def with_client(body: Callable[[Client], Awaitable[None]]) -> None:
    """Start a server, and call it likewise."""
    environment = {"PYTHONPATH": str(ROOT), **{name: os.environ[name] for name in _VARIABLES}}
    server = StdioServerParameters(command=ARGV[0], args=ARGV[1:], env=environment, cwd=Path.cwd())

    async def run_body() -> None:
        async with Client(server, read_timeout_seconds=300) as client:
            await body(client)

    anyio.run(run_body)


def fields(result: CallToolResult) -> dict[str, Any]:
    """The result of a call that has not failed."""
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return dict(result.structured_content)


class RawClient:
    """A new server whose lines a test writes and reads itself. It has answered `initialize`."""

    def __init__(self, *options: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*ARGV, *options], env=environment, stdin=pipe, stdout=pipe, text=True
        )
        self.send("initialize", _CLIENT, 0)
        assert self.answer(0)
        self.send("notifications/initialized", {})

    def send(self, method: str, params: Any, number: int | None = None) -> None:
        """Send a request, or without a number a notification."""
        assert self.process.stdin
        own = {} if number is None else {"id": number}
        self.process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **own}) + "\n"
        )
        self.process.stdin.flush()

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        """Send a call of a tool."""
        self.send("tools/call", {"name": tool, "arguments": arguments}, number)

    def answer(self, number: int) -> Any:
        """The result of a request, or its error. AssertionError or ValueError for another line on stdout."""
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], _HANG)[0], "no answer"
        message = json.loads(self.process.stdout.readline())
        assert (message["jsonrpc"], message["id"]) == ("2.0", number)
        return message["result" if "result" in message else "error"]

    def close(self) -> str:
        """End the server's standard input; return what else it has printed."""
        return self.process.communicate(timeout=300)[0]
