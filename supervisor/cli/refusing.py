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

NEXT_REQUEST_LIMIT_S = 1.0
"""How long it may take for a further one; then this process has nothing to say any more."""


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


def answer_requests(copier: Copier, refusal: Refusal) -> None:
    """Answer the client's first requests with the reason, so that it shows up in the client.

    More than the first: a client that probes with `server/discover` shows the error of the
    `initialize` that it sends after that.
    """
    if os.isatty(STDIN) or refusal.exit_code == exits.INTERRUPTED:
        return
    stdin = Flow(STDIN, None)
    copier.flows = [stdin]
    limit_s = FIRST_REQUEST_LIMIT_S
    while (request := _next_request(copier, stdin, limit_s)) is not None:
        limit_s = NEXT_REQUEST_LIMIT_S
        error = (
            f'{{"code": -32603, "message": {quoted(refusal.message)}, '
            f'"data": {{"code": {quoted(refusal.code)}}}}}'
        )
        answer = f'{{"jsonrpc": "2.0", "id": {request}, "error": {error}}}\n'
        try:
            os.write(STDOUT, answer.encode())
        except OSError:
            return  # the client has gone


def _next_request(copier: Copier, stdin: Flow, limit_s: float) -> "str | None":
    """The id, as JSON, of the next request on stdin; None where none comes in time."""
    give_up_at = time.monotonic() + limit_s
    while True:
        line, newline, rest = bytes(stdin.kept).partition(b"\n")
        if newline or stdin.ended:
            stdin.kept[:] = rest
            request = _request_id(line)
            if request is not None or not newline:
                return request
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
