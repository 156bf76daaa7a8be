"""One conversation of `wayward.py`: what it hears, what it says, what it notes for the test."""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mcp_stdio import INVALID_PARAMS, KNOWN_VERSIONS, METHOD_NOT_FOUND

Message = dict[str, Any]

LEAVES_AFTER_S: Final = 0.05
CAPABILITIES: Final = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
}


class Server:
    """One conversation.

    Attributes:
        tools: by name; each gets the request and its arguments, and answers as it likes.
        on_cancelled: called with the id of a cancelled request.
        refuses: whether the next handshake is answered with an error.
    """

    def __init__(self, state: Path | None, *, banner: bool, leaves: bool) -> None:
        self.tools: dict[str, Callable[[Message, dict[str, Any]], None]] = {}
        self.on_cancelled: Callable[[object], None] = lambda _id: None
        self.refuses = False
        self._state = state
        self._banner = banner
        self._leaves = leaves
        self._writing = threading.Lock()
        self._asked: dict[str, Callable[[Message], None]] = {}

    def saw(self, what: str) -> None:
        """Note one happening where the test reads it."""
        if self._state is not None:
            fd = os.open(self._state / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.write(fd, f"{what}\n".encode())
            os.close(fd)

    # Saying

    def raw(self, data: bytes) -> None:
        """Put exact bytes on stdout."""
        with self._writing:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]

    def say(self, message: Message) -> None:
        """Send one message."""
        line = json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":"), ensure_ascii=False)
        if self._banner:
            line = f"now handling {message.get('id')}\n{line}\n"
        self.raw(line.encode() + b"\n")

    def result(self, request: Message, result: object) -> None:
        """Answer one request."""
        self.say({"id": request["id"], "result": result})

    def text(self, request: Message, text: str) -> None:
        """Answer one call."""
        self.result(request, {"content": [{"type": "text", "text": text}]})

    def notify(self, method: str, **params: object) -> None:
        """Tell something."""
        self.say({"method": f"notifications/{method}", "params": params})

    def ask(self, method: str, id_: object, then: Callable[[Message], None]) -> None:
        """Ask the client; `then` gets its answer."""
        self._asked[json.dumps(id_)] = then
        self.say({"id": id_, "method": method, "params": {"messages": [], "maxTokens": 1}})

    # Hearing

    def run(self) -> None:
        """Serve until stdin ends."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "method" not in message:
                then = self._asked.pop(json.dumps(message.get("id")), None)
                if then is not None:
                    then(message)
            elif "id" in message:
                self._answer(message, message.get("params") or {})
            else:
                self._told(message["method"], message.get("params") or {})
        self.saw("eof")

    def _told(self, method: str, params: Message) -> None:
        if method == "notifications/cancelled":
            self.saw(f"cancelled {json.dumps(params['requestId'])}")
            self.on_cancelled(params["requestId"])
        else:
            self.saw(method.removeprefix("notifications/"))

    def _answer(self, request: Message, params: Message) -> None:
        match request["method"]:
            case "initialize":
                self._initialize(request, params)
            case "ping":
                self.result(request, {})
            case "tools/list":
                names = sorted(self.tools)
                schema = {"type": "object"}
                tools = [{"name": name, "inputSchema": schema} for name in names]
                self.result(request, {"tools": tools})
                if self._leaves:
                    threading.Timer(LEAVES_AFTER_S, os._exit, (0,)).start()
            case "tools/call" if params.get("name") in self.tools:
                self.tools[params["name"]](request, params.get("arguments") or {})
            case "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel":
                self._settle(request, params)
            case method:
                error = {"code": METHOD_NOT_FOUND, "message": f"no method {method!r}"}
                self.say({"id": request["id"], "error": error})

    def _initialize(self, request: Message, params: Message) -> None:
        self.saw("initialize")
        if self.refuses:
            self.refuses = False
            error = {"code": INVALID_PARAMS, "message": "not like this"}
            self.say({"id": request["id"], "error": error})
            return
        wanted = params.get("protocolVersion")
        version = wanted if wanted in KNOWN_VERSIONS else KNOWN_VERSIONS[-1]
        info = {"name": "wayward", "version": str(os.getpid())}
        self.result(
            request,
            {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info},
        )

    def _settle(self, request: Message, params: Message) -> None:
        what = params.get("uri") or params.get("level")
        self.saw(f"{request['method']} {what}")
        self.result(request, {})
