#!/usr/bin/env bash
# mcp 2.3.0: a tool that is called with a misspelt argument runs, with its default in place of it.
#
# Guess: arguments that a tool does not have are refused, as wrong types are.
# Seen:  `node: 2, testOnly: true` for a tool with `nodes: int = 64, test_only: bool = False` is no error: it runs on 64
#        nodes, for real. The tool's input schema has no additionalProperties. "two" for a number is refused, while "yes"
#        for a boolean is true. A server whose tools cost something has to check the names itself.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
make_venv mcp==2.3.0

seen=$(
	python - <<-'END' 2>/dev/null
		import anyio
		from mcp.client import Client
		from mcp.server.mcpserver import MCPServer

		server = MCPServer("jobs")

		@server.tool()
		def submit(nodes: int = 64, test_only: bool = False) -> str:
		    return f"{nodes} nodes, test_only={test_only}"

		async def main():
		    async with Client(server) as client:
		        (tool,) = (await client.list_tools()).tools
		        print(tool.input_schema.get("additionalProperties"))
		        for arguments in ({"node": 2, "testOnly": True}, {"nodes": "two"}, {"nodes": "2", "test_only": "yes"}):
		            result = await client.call_tool("submit", arguments)
		            print("refused" if result.is_error else result.content[0].text)

		anyio.run(main)
	END
)
expect 'schema, misspelt names, a wrong type, text for both types' \
	$'None\n64 nodes, test_only=False\nrefused\n2 nodes, test_only=True' "$seen"
