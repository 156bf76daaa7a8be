"""An MCP server for tests of sessions: it keeps a diary, and can be rude in many ways.

    session_server.py DIARY [KEY=VALUE]...

It appends to the file DIARY one JSON object a line: `{"pid": …, "did": "start"}` first, then for
each line on stdin `{"pid": …, "heard": method, "line": text}`, and `{"pid": …, "did": …}` for what
else a test wants to know. What it heard stands there before it answers. Standard library only.

Options: `tools=a,b` lists these instead of its own, `schemas=yes` odd schemas; `version=` and
`discover=` say how it answers a handshake, `slow=S` after how many seconds, `mute=yes` that it does
not; `asks=yes` lets it ask the client things after it.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

DIARY: Final = Path(sys.argv[1])
OPTIONS: Final = dict(word.partition("=")[::2] for word in sys.argv[2:])
LABEL: Final = DIARY.stem

METHOD_NOT_FOUND: Final = -32601
OBJECT: Final[Json] = {"type": "object"}
BURST: Final = 50
"""How often one change of the list is announced."""

ODD: Final = (
    b'{"content":[{"type":"text","text":"caf\\u00e9","x-colour": 1.50e+2}],'
    b'"structuredContent":{"big":12345678901234567890123,"small":1E-7},"x-unknown":{"b":1,"a":2}}'
)
"""A result whose bytes no parser and printer would give back."""

_ROW: Final[Json] = {"type": "object", "properties": {"id": {"type": "integer"}}}
_TYPED: Final[Json] = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": _ROW}},
    "required": ["rows"],
}
_SHAPED: Final[Json] = {"type": "object", "properties": {"n": {"type": "integer"}}}

OWN_TOOLS: Final[tuple[Json, ...]] = (
    {"name": "echo", "inputSchema": OBJECT, "description": "Says its text.\nAnd no more."},
    {"name": "odd", "inputSchema": OBJECT},
    {"name": "fails", "inputSchema": OBJECT},
    {"name": "typed", "inputSchema": _TYPED},
    {"name": "shaped", "inputSchema": OBJECT, "outputSchema": _SHAPED},
    {"name": "silent", "inputSchema": OBJECT},
    {"name": "hold", "inputSchema": OBJECT},
    {"name": "look", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}},
    {"name": "steps", "inputSchema": OBJECT},
    {"name": "die", "inputSchema": OBJECT},
    {"name": "grow", "inputSchema": OBJECT},
    {"name": "ask", "inputSchema": OBJECT},
)

_DRAFT_7: Final[Json] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"p": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}},
}
ODD_SCHEMAS: Final[tuple[Json, ...]] = (
    {"name": "draft7", "inputSchema": _DRAFT_7},
    {"name": "broken", "inputSchema": {"type": "no-such-type"}},
    {"name": "bare"},
    {"name": "echo", "inputSchema": OBJECT},
)


class Server:
    """One conversation on stdin and stdout."""

    def __init__(self) -> None:
        self._grown: list[Json] = []
        self._silent: list[Any] = []
        self._answers: dict[str, Json] = {}
        self._answered = threading.Condition()
        self._out = threading.Lock()

    # What it says

    def say(self, message: bytes) -> None:
        """Write one line; threads take turns."""
        with self._out:
            sys.stdout.buffer.write(message + b"\n")
            sys.stdout.buffer.flush()

    def result(self, ident: object, result: Json | bytes) -> None:
        """Answer a request."""
        body = result if isinstance(result, bytes) else json.dumps(result).encode()
        self.say(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(ident).encode(), body))

    def error(self, ident: object, code: int, message: str) -> None:
        """Refuse a request."""
        error = {"code": code, "message": message}
        self.say(json.dumps({"jsonrpc": "2.0", "id": ident, "error": error}).encode())

    def notify(self, method: str, **params: object) -> None:
        """Send a notification."""
        self.say(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def text(self, ident: object, text: str) -> None:
        """Answer a call with a text."""
        self.result(ident, {"content": [{"type": "text", "text": text}]})

    def ask(self, method: str) -> Json:
        """Ask the client something, and wait for the answer; not on the thread that reads."""
        ident = f"ask-{method}-{threading.get_ident()}"
        self.say(json.dumps({"jsonrpc": "2.0", "id": ident, "method": method}).encode())
        with self._answered:
            self._answered.wait_for(lambda: ident in self._answers)
            answer = self._answers.pop(ident)
        note(did="answered", method=method, answer=answer)
        return answer

    # What it hears

    def run(self) -> None:
        """Serve until stdin ends."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            note(heard=message.get("method"), line=line.decode().rstrip("\n"))
            if "method" not in message:
                with self._answered:
                    self._answers[message["id"]] = message
                    self._answered.notify_all()
            elif "id" in message:
                self._asked(message["id"], message["method"], message.get("params") or {})
            else:
                self._told(message["method"], message.get("params") or {})

    def _told(self, method: str, params: Json) -> None:
        if method == "notifications/initialized" and "asks" in OPTIONS:
            begin(lambda: self.ask("roots/list"))
        if method == "notifications/cancelled" and params.get("requestId") in self._silent:
            self.text(params["requestId"], "too late")

    def _asked(self, ident: object, method: str, params: Json) -> None:
        match method:
            case "server/discover":
                self._discover(ident)
            case "initialize" if "mute" in OPTIONS:
                """It does not say a word."""
            case "initialize":
                self._initialize(ident, params)
            case "ping":
                self.result(ident, {})
            case "tools/list":
                self.result(ident, {"tools": self._tools()})
            case "tools/call":
                self._call(ident, params["name"], params.get("arguments") or {}, params)
            case _:
                self.error(ident, METHOD_NOT_FOUND, f"no method {method}")

    def _discover(self, ident: object) -> None:
        match OPTIONS.get("discover", "error"):
            case "error":
                self.error(ident, METHOD_NOT_FOUND, "Method not found")
            case "params":
                self.error(ident, -32602, "initialize first")
            case "null-id":
                self.error(None, -32600, "what was that?")
            case "junk":
                self.result(ident, {"ok": True})
            case "dies":
                os.write(2, b"panic: no such method\n")
                os._exit(101)
            case "modern":
                capabilities: Json = {"tools": {}}
                found = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
                self.result(ident, {"resultType": "complete", **found})
            case _:
                """`silent`: it says nothing at all."""

    def _initialize(self, ident: object, params: Json) -> None:
        time.sleep(float(OPTIONS.get("slow", 0)))  # noqa: TID251 - being slow is the purpose
        version = OPTIONS.get("version", params["protocolVersion"])
        known = {} if version == "none" else {"protocolVersion": version}
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": LABEL, "version": "1"}
        self.result(ident, {**known, "capabilities": capabilities, "serverInfo": info})

    def _tools(self) -> list[Json]:
        if "tools" in OPTIONS:
            return [{"name": name, "inputSchema": OBJECT} for name in OPTIONS["tools"].split(",")]
        return [*(ODD_SCHEMAS if "schemas" in OPTIONS else OWN_TOOLS), *self._grown]

    # Tools

    def _call(self, ident: object, name: str, given: Json, params: Json) -> None:
        if "tools" in OPTIONS:
            self.text(ident, f"{LABEL}:{name}")
            return
        slow = {"hold": self._hold, "look": self._hold, "steps": self._steps, "ask": self._asking}
        if name in slow:
            begin(lambda: slow[name](ident, given, params.get("_meta", {})))
            return
        match name:
            case "odd":
                self.result(ident, ODD)
            case "fails":
                content = [{"type": "text", "text": "no such file"}]
                self.result(ident, {"content": content, "isError": True})
            case "shaped":
                self.result(ident, {"content": [], "structuredContent": given})
            case "silent":
                self._silent.append(ident)
                note(did="silent", id=ident)
            case "die":
                os.write(2, b"out of cheese\n")
                os._exit(7)
            case "grow":
                self._grow(ident)
            case _:
                self.text(ident, str(given.get("text", name)))

    def _hold(self, ident: object, given: Json, _meta: Json) -> None:
        """Say into one FIFO that the call is here, and wait for a line from another one."""
        note(did="hold", name=given["entered"])
        Path(given["entered"]).write_text(f"{ident}\n", "ascii")
        with Path(given["gate"]).open() as gate:
            gate.readline()
        note(did="held", name=given["entered"])
        self.text(ident, "released")

    def _steps(self, ident: object, given: Json, meta: Json) -> None:
        token = meta.get("progressToken")
        for step in range(1, given["n"] + 1):
            time.sleep(given["gap_s"])  # noqa: TID251 - being slow is the tool's purpose
            if token is not None:
                self.notify("notifications/progress", progressToken=token, progress=step)
        self.text(ident, "done")
        if token is not None:
            self.notify("notifications/progress", progressToken=token, progress=given["n"])

    def _grow(self, ident: object) -> None:
        self._grown.append({"name": f"extra{len(self._grown) + 1}", "inputSchema": OBJECT})
        for _ in range(BURST):
            self.notify("notifications/tools/list_changed")
        self.text(ident, "grown")

    def _asking(self, ident: object, _given: Json, _meta: Json) -> None:
        methods = ("roots/list", "sampling/createMessage", "elicitation/create", "ping")
        answers = {method: self.ask(method) for method in methods}
        self.text(ident, json.dumps(answers))


def begin(work: Callable[[], object]) -> None:
    """Do something beside the reading; it ends with the process."""
    threading.Thread(target=work, daemon=True).start()


def note(**entry: object) -> None:
    """Write one line into the diary, whole."""
    text = json.dumps({"pid": os.getpid(), **entry}) + "\n"
    diary = os.open(DIARY, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(diary, text.encode())
    os.close(diary)


if __name__ == "__main__":
    note(did="start")
    Server().run()
