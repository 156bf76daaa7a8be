"""What the shim says to a client that cannot be connected, on stderr and as JSON-RPC.

Few clients show stderr, and all show the error of their first request.

Source: JSON-RPC 2.0, section 5.1: -32603 is an internal error.
"""

import os
import time

from supervisor.cli.copying import STDERR, STDIN, STDOUT, Copier, Flow
from supervisor.cli.light_json import member, parse, quoted
from supervisor.core import exits

FIRST_REQUEST_LIMIT_S = 5.0
"""How long a client that cannot be connected may take for its first request: it comes at once."""


class Refusal(Exception):  # noqa: N818 - it never leaves the shim
    """The client cannot be connected, or the end of its instance cannot be learnt."""

    def __init__(self, exit_code: int, message: str, code: str) -> None:
        self.exit_code = exit_code
        self.message = message
        self.code = code
        super().__init__(message)


def say(sentence: str) -> None:
    """Write one sentence to stderr."""
    try:  # noqa: SIM105 - contextlib costs a shim 4 ms
        os.write(STDERR, f"mcpctl: {sentence}\n".encode(errors="backslashreplace"))
    except OSError:
        pass  # nobody reads it, or a client's full pipe: the exit code still tells


def answer_first_request(copier: Copier, refusal: Refusal) -> None:
    """Answer the client's first request with the reason, so that it shows up in the client."""
    if os.isatty(STDIN) or refusal.exit_code == exits.INTERRUPTED:
        return
    request = _first_request(copier)
    if request is None:
        return
    answer = (
        f'{{"jsonrpc": "2.0", "id": {request}, "error": {{"code": -32603, '
        f'"message": {quoted(refusal.message)}, "data": {{"code": {quoted(refusal.code)}}}}}}}\n'
    )
    try:  # noqa: SIM105 - contextlib costs a shim 4 ms
        os.write(STDOUT, answer.encode())
    except OSError:
        pass  # the client has gone


def _first_request(copier: Copier) -> "str | None":
    """The id, as JSON, of the first request on stdin; None where none comes in time."""
    stdin = Flow(STDIN, None)
    copier.flows = [stdin]
    give_up_at = time.monotonic() + FIRST_REQUEST_LIMIT_S
    while True:
        line, newline, rest = bytes(stdin.kept).partition(b"\n")
        if newline or stdin.ended:
            request = _request_id(line)
            if request is not None or not newline:
                return request
            stdin.kept[:] = rest
            continue
        left_s = give_up_at - time.monotonic()
        if left_s <= 0 or copier.signals:
            return None
        copier.turn(left_s)


def _request_id(line: bytes) -> "str | None":
    try:
        request = parse(line)
    except ValueError:
        return None
    identifier = member(request, "id") if member(request, "method") is not None else None
    if isinstance(identifier, str):
        return quoted(identifier)
    if isinstance(identifier, int | float) and not isinstance(identifier, bool):
        return repr(identifier)
    return None
