"""The server of the demonstration: a small MCP server on stdio, with tools to look at.

`--with-helper` makes it start a helper process at once, as servers do that start a browser. The
helper has its own session, so it outlives the server unless somebody owns the whole family.
Standard library only; speaks the revisions 2024-11-05 to 2025-11-25.
"""

import json
import subprocess  # noqa: TID251 - the demonstration starts helpers as any server would
import sys
from collections.abc import Callable
from typing import Any, Final

KNOWN_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
HELPER: Final = "import time; time.sleep(3600)  # the demo server's helper"
"""Without an owner it would stay for that hour."""


def echo(arguments: dict[str, Any]) -> str:
    """Answer with the text that was given."""
    return str(arguments["text"])


def add(arguments: dict[str, Any]) -> str:
    """Add two numbers."""
    return str(arguments["a"] + arguments["b"])


def spawn_helper(_arguments: dict[str, Any]) -> str:
    """Start a background process that does not end with this server."""
    helper = subprocess.Popen(  # noqa: S603 - a fixed command
        [sys.executable, "-S", "-c", HELPER],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return str(helper.pid)


def schema(**properties: str) -> dict[str, Any]:
    """The input schema of a tool whose parameters are all required."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


TOOLS: Final[dict[str, tuple[Callable[[dict[str, Any]], str], dict[str, Any]]]] = {
    "add": (add, schema(a="number", b="number")),
    "echo": (echo, schema(text="string")),
    "spawn_helper": (spawn_helper, schema()),
}


class NoSuchMethodError(Exception):
    """Answered with -32601."""


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of one request.

    Raises:
        NoSuchMethodError: this server does not know the method.
        LookupError: it does not know the tool, or an argument is missing.
        TypeError: an argument is of the wrong kind.
    """
    match method:
        case "initialize":
            wanted = params.get("protocolVersion")
            return {
                "protocolVersion": wanted if wanted in KNOWN_VERSIONS else KNOWN_VERSIONS[-1],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "demo", "version": "1.0"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {
                "tools": [
                    {"name": name, "description": call.__doc__, "inputSchema": inputs}
                    for name, (call, inputs) in TOOLS.items()
                ]
            }
        case "tools/call":
            call, _ = TOOLS[params["name"]]
            return {"content": [{"type": "text", "text": call(params.get("arguments") or {})}]}
        case _:
            raise NoSuchMethodError(method)


def respond(message: dict[str, Any]) -> dict[str, Any]:
    """The whole answer to one request."""
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message["method"], message.get("params") or {})
    except NoSuchMethodError as error:
        reply["error"] = {"code": METHOD_NOT_FOUND, "message": f"no method {error}"}
    except (LookupError, TypeError) as error:
        reply["error"] = {"code": INVALID_PARAMS, "message": f"not as the tool wants it: {error}"}
    return reply


def serve() -> None:
    """Answer requests, one JSON object a line, until stdin ends."""
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            continue  # not ours to crash on
        if isinstance(message, dict) and "id" in message and "method" in message:
            sys.stdout.buffer.write(json.dumps(respond(message)).encode() + b"\n")
            sys.stdout.buffer.flush()


def main() -> None:
    """Be the server."""
    if "--with-helper" in sys.argv[1:]:
        spawn_helper({})
    serve()


if __name__ == "__main__":
    main()
