"""An MCP server whose tool `wait` never answers; it notes what it is told in a FIFO.

Its first argument is the FIFO. Of its prompts and resources some are never answered too, and with
`--mute` not even `tools/list`. Standard library only.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

METHOD_NOT_FOUND: Final = -32601

Json = dict[str, Any]


def initialize(_params: Json, _line: str) -> Json:
    """All three kinds of things are offered."""
    return {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "patient", "version": "1.0"},
    }


def call_tool(params: Json, line: str) -> Json | None:
    """`tell` answers twice with the whole line that it was called by, and with its arguments."""
    if params["name"] == "wait":
        return None
    if params["name"] == "fail":
        return {"content": [{"type": "text", "text": "it did not work"}], "isError": True}
    told = {"type": "text", "text": line}
    return {"content": [told, told], "structuredContent": params["arguments"]}


def get_prompt(params: Json, _line: str) -> Json | None:
    """Nobody is greeted never."""
    name = params["arguments"]["name"]
    if name == "nobody":
        return None
    return {"messages": [{"role": "user", "content": {"type": "text", "text": f"Greet {name}."}}]}


def read_resource(params: Json, _line: str) -> Json | None:
    """`demo://never` is never read."""
    if params["uri"] == "demo://never":
        return None
    return {"contents": [{"uri": params["uri"], "text": "the text of a"}]}


def fixed(result: Json) -> Callable[[Json, str], Json]:
    """A method that always has this result."""
    return lambda _params, _line: result


METHODS: Final[Mapping[str, Callable[[Json, str], Json | None]]] = {
    "initialize": initialize,
    "tools/list": fixed(
        {
            "tools": [
                {"name": n, "inputSchema": {"type": "object"}} for n in ("fail", "tell", "wait")
            ]
        }
    ),
    "tools/call": call_tool,
    "prompts/list": fixed({"prompts": [{"name": "greet"}]}),
    "prompts/get": get_prompt,
    "resources/list": fixed(
        {"resources": [{"name": n, "uri": f"demo://{n}"} for n in ("a", "never")]}
    ),
    "resources/templates/list": fixed({"resourceTemplates": []}),
    "resources/read": read_resource,
}


def respond(message: Json, line: str) -> Json | None:
    """The whole answer to one request; None for one that is never answered."""
    reply: Json = {"jsonrpc": "2.0", "id": message["id"]}
    method = METHODS.get(message["method"])
    if message["method"] == "tools/list" and "--mute" in sys.argv[2:]:
        return None
    if method is None:
        return {**reply, "error": {"code": METHOD_NOT_FOUND, "message": "no such method"}}
    result = method(message.get("params") or {}, line)
    return None if result is None else {**reply, "result": result}


def main() -> None:
    """Be the server."""
    notes = os.open(sys.argv[1], os.O_RDWR)  # so that it never waits for a reader
    for raw in sys.stdin.buffer:
        message = json.loads(raw)
        reply = respond(message, raw.decode()) if "id" in message else None
        if reply is not None:
            sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
            sys.stdout.buffer.flush()
        os.write(notes, raw)


if __name__ == "__main__":
    main()
