"""An HTTP gateway beside `mcpctl connect`: `mcp-proxy` of PyPI, in a place of its own.

It needs another major version of the MCP SDK than ours, so it is installed beside us, on the first
run that wants it; where that is not possible the measurement fails with a sentence. It listens on
the loopback interface only, and `timeout` ends it even if the bench itself is killed.
"""

import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from scripts.benchmarks.callees import STDLIB_SERVER
from scripts.benchmarks.callers import KIB, Caller, opened
from scripts.benchmarks.calling import by_turns
from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import open_daemon, record
from scripts.benchmarks.peers import Bare
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.surroundings import (
    MeasurementError,
    TooLateError,
    becomes_readable,
    wait_readable,
)

GATEWAY: Final = "mcp-proxy"
REQUIREMENT: Final = "mcp-proxy>=0.13,<0.14"
PLACE: Final = Path(__file__).parents[2] / ".venv" / "peers" / GATEWAY
"""Beside what we are installed in: it goes when that goes."""

INSTALLED_WITHIN_S: Final = 300.0
READY_WITHIN_S: Final = 20.0
LIFETIME_S: Final = 120
LOOK_AGAIN_S: Final = 0.05

RATIO: Final = 0.1
"""Source: design section 21: at least ten times less than any HTTP gateway adds."""

_HOST: Final = "127.0.0.1"
_SERVER: Final = "echo"
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


def measure_gateway(counts: Counts) -> list[Row]:
    """What a call of 1 KB takes longer through us, and through the gateway."""
    if not counts.gateway_calls:
        return []
    _install()
    with (
        open_daemon({_SERVER: record(STDLIB_SERVER)}) as daemon,
        opened(Caller.bare(STDLIB_SERVER), Caller.through(daemon, _SERVER)) as (direct, ours),
        _gateway() as gateway,
    ):
        bare, through, proxied = by_turns(
            counts.gateway_calls,
            lambda: direct.call_ms(KIB),
            lambda: ours.call_ms(KIB),
            gateway.call_ms,
        )
    by_itself = median(bare)
    return [
        row(
            "added to a call of 1 KB",
            [taken_ms - by_itself for taken_ms in through],
            peer=Peer(GATEWAY, [taken_ms - by_itself for taken_ms in proxied]),
            judged="ratio",
            bound=RATIO,
        )
    ]


def _install() -> None:
    """Install the gateway, unless it is there.

    Raises:
        MeasurementError: it cannot be.
    """
    stamp = PLACE / "installed"
    if stamp.is_file() and stamp.read_text("utf-8") == REQUIREMENT:
        return
    pip = (str(PLACE / "bin" / "python"), "-I", "-m", "pip", "-qq", "--disable-pip-version-check")
    # pip has to know what the person who runs this has set: where packages come from
    for argv in (
        (sys.executable, "-m", "venv", "--clear", str(PLACE)),
        (*pip, "install", REQUIREMENT),
    ):
        process = Bare(argv, env=os.environ)
        try:
            wait_readable(process.pidfd, INSTALLED_WITHIN_S)
        finally:
            exited = process.release()
        if exited.code != 0:
            message = f"{GATEWAY} cannot be installed into {PLACE}; is the package index reachable?"
            raise MeasurementError(message)
    stamp.write_text(REQUIREMENT, "utf-8")


class _Gateway:
    """A client of the gateway, on one connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(_HOST, port, timeout=READY_WITHIN_S)
        self._headers = dict(_HEADERS)
        self._last_id = 0

    def greet(self) -> None:
        """Do the handshake."""
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        self._ask("initialize", hello)
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call_ms(self) -> float:
        """Milliseconds from a request to the end of its answer."""
        began_at = perf_counter()
        answer = self._ask("tools/call", {"name": "echo", "arguments": {"text": "x" * KIB}})
        taken_ms = (perf_counter() - began_at) * 1000
        if b'"result"' not in answer:
            message = f"the gateway answered {answer[:200]!r}"
            raise MeasurementError(message)
        return taken_ms

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ask(self, method: str, params: dict[str, Any]) -> bytes:
        self._last_id += 1
        return self._post(
            {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        )

    def _post(self, message: dict[str, Any]) -> bytes:
        self._connection.request("POST", "/mcp", json.dumps(message), self._headers)
        answer = self._connection.getresponse()
        session = answer.getheader("mcp-session-id")
        if session is not None:
            self._headers["mcp-session-id"] = session
        return answer.read()


@contextmanager
def _gateway() -> Iterator[_Gateway]:
    """A running gateway for the time of the block."""
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port: int = free.getsockname()[1]
    argv = (
        "/usr/bin/timeout",
        str(LIFETIME_S),
        str(PLACE / "bin" / GATEWAY),
        *("--host", _HOST, "--port", str(port), "--log-level", "ERROR", "--"),
        *STDLIB_SERVER,
    )
    process = Bare(argv, quiet=True)
    try:
        _wait_listening(process, port)
        client = _Gateway(port)
        try:
            client.greet()
            yield client
        finally:
            client.close()
        process.terminate()
    finally:
        process.release()


def _wait_listening(process: Bare, port: int) -> None:
    """Wait until it takes connections.

    Raises:
        TooLateError: it does not.
        MeasurementError: it has ended.
    """
    give_up_at = perf_counter() + READY_WITHIN_S
    while perf_counter() < give_up_at:
        with socket.socket() as connection:
            if connection.connect_ex((_HOST, port)) == 0:
                return
        if becomes_readable(process.pidfd, LOOK_AGAIN_S):
            message = f"{GATEWAY} did not start"
            raise MeasurementError(message)
    message = f"{GATEWAY} did not listen within {READY_WITHIN_S:g} s"
    raise TooLateError(message)
