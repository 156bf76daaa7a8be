"""The client of the demonstration: the official MCP SDK, with `mcpctl connect demo` as its server.

Asks for the tools, calls them, leaves, and looks whether the helper process that a call had
started is gone too. Exit code 1 if it is not.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

MCPCTL: Final = Path(sys.executable).parent / "mcpctl"
PLACES: Final = ("MCP_SUPERVISOR_CONFIG", "MCP_SUPERVISOR_STATE_DIR", "MCP_SUPERVISOR_RUNTIME_DIR")
LIMIT_S: Final = 30
"""For all of it; it takes a second."""


def say(what: str, result: str) -> None:
    """Print one line of the story."""
    sys.stdout.write(f"  {what:<16} {result}\n")
    sys.stdout.flush()


async def call(client: Client, tool: str, **arguments: Any) -> str:  # noqa: ANN401 - JSON
    """Call a tool and return its text."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    return content.text if isinstance(content, TextContent) else repr(content)


async def talk() -> int:
    """Run the whole conversation.

    Returns:
        The pid of the helper process that the last call started.
    """
    env = {name: os.environ[name] for name in PLACES if name in os.environ}
    shim = StdioServerParameters(command=str(MCPCTL), args=["connect", "demo"], env=env)
    with anyio.fail_after(LIMIT_S):
        async with Client(shim) as client:
            server = client.server_info
            name = "no name" if server is None else f"{server.name} {server.version}"
            say("initialize", f"{name}, protocol {client.protocol_version}")
            tools = await client.list_tools()
            say("tools/list", ", ".join(sorted(tool.name for tool in tools.tools)))
            say("add 2 and 3", await call(client, "add", a=2, b=3))
            say("echo", await call(client, "echo", text="hello from the server"))
            pid = int(await call(client, "spawn_helper"))
            say("spawn_helper", f"the server started process {pid}")
    return pid


def main() -> int:
    """Talk, leave, look."""
    pid = anyio.run(talk)
    if Path(f"/proc/{pid}").exists():
        say("close", f"process {pid} is still there")
        return 1
    say("close", f"the server is gone, and process {pid} with it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
