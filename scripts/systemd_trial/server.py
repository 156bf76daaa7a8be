"""A server of the trial: `server.py polite|stubborn|escapee`, MCP on stdio.

polite leaves on EOF; stubborn ignores EOF and SIGTERM; escapee is polite, but starts a process that
leaves its session, its parent and its descriptors. Standard library only; nothing of it lives
longer than `LIFETIME_S`.
"""

import json
import os
import signal
import sys
from typing import Any, Final

LIFETIME_S: Final = 120
METHOD_NOT_FOUND: Final = -32601


def main() -> None:
    """Behave as the first argument says."""
    kind = sys.argv[1]
    signal.alarm(LIFETIME_S)
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "escapee":
        escape()
    serve()
    while kind == "stubborn":
        signal.pause()


def escape() -> None:
    """Start a classic daemon (own session, double fork, no descriptor); wait until it is one."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, reading)
            os.write(writing, b"!")
            os.closerange(reading, writing + 1)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.alarm(LIFETIME_S)  # a fork does not inherit it
            while True:
                signal.pause()
        os._exit(0)
    os.wait()
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)


def serve() -> None:
    """Answer requests until stdin ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "method" not in request or "id" not in request:
            continue
        answer = {"jsonrpc": "2.0", "id": request["id"], **answered(request)}
        print(json.dumps(answer), flush=True)  # noqa: T201 - the protocol


def answered(request: dict[str, Any]) -> dict[str, Any]:
    """The result or error of one request."""
    match request["method"]:
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "trial", "version": "1"},
            }
        case "ping":
            result = {}
        case "tools/list":
            result = {"tools": []}
        case method:
            return {"error": {"code": METHOD_NOT_FOUND, "message": f"no method {method!r}"}}
    return {"result": result}


if __name__ == "__main__":
    main()
