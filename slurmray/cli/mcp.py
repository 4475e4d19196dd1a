"""`slurmray mcp`: serves agents and other programs."""

from __future__ import annotations

import click

from slurmray.cli.flags import flag
from slurmray.errors import UsageError


@click.command
@flag("--read-only", "is_read_only", help="Offer only the tools that change nothing.")
def mcp(*, is_read_only: bool) -> None:
    """Serve agents and other programs over MCP, the Model Context Protocol, on standard input and output.

    The tools are check, render, rehearse, submit, list, status, logs, why, report, cancel, doctor, init and
    explain. They run these commands, as you, and return what --json prints. They write in the folder that a
    call names or below, nothing hidden. The server ends with its input. It needs the Python package mcp.

    \b
    Example, for a client that reads .mcp.json:
      {"mcpServers": {"slurmray": {"command": "slurmray", "args": ["mcp"]}}}
    """
    try:
        import anyio

        from slurmray.cli import mcp_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):  # it brings anyio
            raise
        fix = "pip install 'mcp>=2.3' in slurmray's own environment"
        raise UsageError(f"slurmray mcp needs the Python package mcp: {fix}") from None
    anyio.run(mcp_server.serve, mcp_server.make_server(is_read_only=is_read_only))
