"""A client that speaks MCP line by line and keeps what it has heard: exact bytes matter here.

with Conversation(daemon, "files", "--session", "a") as client:
    client.greet()
    client.send("tools/call", id="1", name="echo", arguments={})
    assert client.answer("1")["result"]
"""

import json
import os
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from real_daemon.clients import CHUNK_BYTES, READ_WITHIN_S, Shim
from real_daemon.daemon_fixture import Daemon
from real_daemon.daemon_log import Json

NO_ID: Final = object()
VERSION: Final = "2025-06-18"

LOOKS: Final = 2000
LOOK_EVERY_S: Final = 0.01


class Conversation:
    """One client behind `mcpctl connect`.

    Attributes:
        shim: its process.
        heard: messages that came and were not asked for yet, in order.
    """

    def __init__(self, daemon: Daemon, *words: str, cwd: Path | None = None) -> None:
        self.shim = Shim(daemon, *words, cwd=cwd)
        self.heard: list[Json] = []
        self._partial = b""
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shim.__exit__(kind, error, trace)

    # Saying

    def send(self, method: str, *, id: object = NO_ID, **params: Any) -> Any:  # noqa: A002, ANN401 - JSON
        """Send a request; its id, a fresh number where none is given."""
        if id is NO_ID:
            self._last_id += 1
            id = self._last_id  # noqa: A001 - likewise
        self._write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def notify(self, method: str, **params: Any) -> None:  # noqa: ANN401 - JSON
        """Send a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def reply(self, question: Json, result: Json) -> None:
        """Answer a request of the server."""
        self._write({"jsonrpc": "2.0", "id": question["id"], "result": result})

    def leave(self) -> tuple[int, bytes, str]:
        """Say no more, read all that comes; exit code, the rest of stdout, stderr."""
        self.shim.leave()
        code, out, err = self.shim.finish()
        return code, self._partial + out, err

    # Hearing

    def answer(self, id: object, within_s: float = READ_WITHIN_S) -> Json:  # noqa: A002 - JSON-RPC's word
        """The answer of that id, as JSON spells it; what else comes is kept in `heard`."""
        wanted = json.dumps(id)
        return self._next(
            lambda m: "method" not in m and json.dumps(m.get("id")) == wanted, within_s
        )

    def told(self, method: str, within_s: float = READ_WITHIN_S) -> Json:
        """The next notification or request of that method."""
        return self._next(lambda message: message.get("method") == method, within_s)

    def ask(self, method: str, **params: Any) -> Json:  # noqa: ANN401 - JSON
        """A request and its answer."""
        return self.answer(self.send(method, **params))

    def call(self, tool: str, **arguments: Any) -> str:  # noqa: ANN401 - JSON
        """Call a tool; the text of its result."""
        answer = self.ask("tools/call", name=tool, arguments=arguments)
        return text_of(answer)

    def greet(
        self,
        name: str = "tests",
        *,
        capabilities: Mapping[str, Any] | None = None,
        version: str = VERSION,
    ) -> Json:
        """Make the handshake; the server's result."""
        answer = self.ask("initialize", **greeting(name, capabilities, version))
        self.notify("notifications/initialized")
        result: Json = answer["result"]
        return result

    def _write(self, message: Json) -> None:
        self.shim.exchange(json.dumps(message).encode() + b"\n", 0)

    def _next(self, fits: Any, within_s: float) -> Json:  # noqa: ANN401 - a predicate
        for message in self.heard:
            if fits(message):
                self.heard.remove(message)
                return message
        for message in self._lines(within_s):
            if fits(message):
                return message
            self.heard.append(message)
        why = f"it did not come; heard: {self.heard}, stderr: {self._stderr()}"
        raise EOFError(why)

    def _lines(self, within_s: float) -> Iterator[Json]:
        assert self.shim.process.stdout is not None
        fd = self.shim.process.stdout.fileno()
        deadline_at = time.monotonic() + within_s
        while True:
            while b"\n" in self._partial:
                line, _, self._partial = self._partial.partition(b"\n")
                yield json.loads(line)
            left_s = deadline_at - time.monotonic()
            if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
                message = f"nothing came for {within_s} s; heard: {self.heard}"
                raise TimeoutError(message)
            pieces = [self._partial]
            while select.select([fd], [], [], 0)[0]:
                pieces.append(os.read(fd, CHUNK_BYTES))
                if not pieces[-1] or pieces[-1].endswith(b"\n"):
                    break
            self._partial = b"".join(pieces)
            if not pieces[-1] and not self._partial:
                return

    def _stderr(self) -> str:
        assert self.shim.process.stderr is not None
        fd = self.shim.process.stderr.fileno()
        return os.read(fd, CHUNK_BYTES).decode() if select.select([fd], [], [], 0)[0] else ""


def greeting(
    name: str = "tests", capabilities: Mapping[str, Any] | None = None, version: str = VERSION
) -> Json:
    """The params of `initialize`."""
    return {
        "protocolVersion": version,
        "capabilities": dict(capabilities or {}),
        "clientInfo": {"name": name, "version": "1"},
    }


def text_of(answer: Json) -> str:
    """The text of a tool's result."""
    assert "result" in answer, answer
    text: str = answer["result"]["content"][0]["text"]
    return text


class Events:
    """The file in which a server of a test notes what it saw."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def lines(self, first_word: str | None = None) -> list[str]:
        """All lines, or those that begin with a word."""
        try:
            lines = (self.directory / "events").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [line for line in lines if first_word in {None, line.split()[0]}]

    def wait_for(self, first_word: str, count: int = 1) -> list[str]:
        """Wait until so many lines begin with that word."""
        for _ in range(LOOKS):
            lines = self.lines(first_word)
            if len(lines) >= count:
                return lines
            select.select([], [], [], LOOK_EVERY_S)
        message = f"{count} of {first_word!r} did not come: {self.lines()}"
        raise TimeoutError(message)


@contextmanager
def conversations(daemon: Daemon, *words: str, count: int = 2) -> Iterator[list[Conversation]]:
    """So many clients of the same server."""
    made = [Conversation(daemon, *words) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.__exit__(None, None, None)
