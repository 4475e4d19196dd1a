"""`slurmray mcp`: serves agents and other programs."""

from __future__ import annotations

import click

from slurmray.errors import UsageError


@click.command
def mcp() -> None:
    """Serve agents and other programs over MCP, the Model Context Protocol, on standard input and output.

    The tools are check, render, rehearse, submit, status, logs, why, report and cancel, with typed results.
    They do what the commands do, as you, and one after the other; only rehearsals run beside them. The server
    ends with its standard input. It needs the Python package mcp.

    \b
    Example, for a client that reads .mcp.json:
      {"mcpServers": {"slurmray": {"command": "slurmray", "args": ["mcp"]}}}
    """
    try:
        from slurmray.cli import mcp_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):  # it brings anyio
            raise
        fix = "pip install 'mcp>=2.3' in slurmray's own environment"
        raise UsageError(f"slurmray mcp needs the Python package mcp: {fix}") from None
    mcp_server.make_server().run("stdio")
