"""The polite half of every misbehaving server: a tiny MCP server on stdin and stdout.

Knows `initialize`, `ping`, `tools/list` and `tools/call echo`; answers -32601 to all else. It
writes nothing on stdout but MCP, one JSON object a line. Standard library only.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

KNOWN_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602

ECHO: Final = {
    "name": "echo",
    "description": "Answers with the text that it was given.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


def serve(on_call: Callable[[], None]) -> None:
    """Answer requests until stdin ends.

    Args:
        on_call: done before each `tools/call` is answered; a scenario may end the process here.
    """
    for line in sys.stdin.buffer:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if not isinstance(message, dict) or "method" not in message or "id" not in message:
            continue
        if message["method"] == "tools/call":
            on_call()
        answer = {"jsonrpc": "2.0", "id": message["id"]} | _answer(message)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            wanted = params.get("protocolVersion")
            version = wanted if wanted in KNOWN_VERSIONS else KNOWN_VERSIONS[-1]
            result: dict[str, Any] = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "misbehave", "version": "1"},
            }
        case "ping":
            result = {}
        case "tools/list":
            result = {"tools": [ECHO]}
        case "tools/call" if params.get("name") == "echo":
            text = str((params.get("arguments") or {}).get("text", ""))
            result = {"content": [{"type": "text", "text": text}]}
        case "tools/call":
            return {"error": {"code": INVALID_PARAMS, "message": "there is only the tool echo"}}
        case method:
            return {"error": {"code": METHOD_NOT_FOUND, "message": f"no method {method!r}"}}
    return {"result": result}
