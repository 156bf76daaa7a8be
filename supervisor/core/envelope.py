r"""Reads from a line what the daemon acts on: kind, id and method. The body stays bytes.

A line is looked at from both ends, 4 KiB each, whatever its length. From the start: the scalar
members up to the first value that is an object or an array (SDKs in Python and Go write id and
method first). From the end: the run of scalar members before the closing brace (the SDK in
TypeScript writes `jsonrpc` and `id` last). Only where that does not settle the matter are the
outermost members of the whole line read.

Why reading from the end is unambiguous. Let the line be valid JSON and let `_TAIL` match it from
some `}` or `]` up to its end.

1. The match starts outside of any string. Suppose it starts inside one. The first quote that it
   takes follows a comma, a blank or the bracket, hence no backslash, so it really closes that
   string. What `_TAIL` takes for strings is then really the text between strings, which has no
   backslash in valid JSON; what it takes for the text between is really inside strings, and
   `_TAIL` allows no backslash there. So every quote in the match is a real delimiter. From inside
   a string to the end of the text, which is outside, their number is odd; but `_TAIL` takes quotes
   in pairs.
2. So its strings are real strings, and outside of them it meets no bracket but the last brace,
   which closes the outermost object. What it read are therefore members of the outermost object,
   and the bracket before them really ends a value: the run is complete.

A key that is repeated counts the last time, as in every common parser: what the end says overrides
the start. A repetition *between* two nested values is not looked for here, so that a line costs the
same whatever its length; `WireIds` does look, in the requests that it rewrites.

Source: JSON-RPC 2.0; MCP 2025-11-25 and 2026-07-28, base protocol; design section 9.
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from supervisor.core.json_spans import BLANK, SCALAR, NotAnObjectError, may_name, meant, members

if TYPE_CHECKING:
    from pydantic import JsonValue

WINDOW_BYTES: Final = 4096
"""How much of each end is looked at. Ids and methods are short and stand outermost."""

_TAIL_TRIES: Final = 16
"""How many brackets from the end may stand in strings (`"method": "a]b"`) before we read it all."""

_COLON: Final = BLANK + rb":" + BLANK
_MEMBER: Final = (
    BLANK
    + rb'"(?:id"'
    + _COLON
    + rb"("
    + SCALAR
    + rb')|method"'
    + _COLON
    + rb"("
    + SCALAR
    + rb')|jsonrpc"'
    + _COLON
    + rb"("
    + SCALAR
    # A name with an escape matches nothing: it could be spelling `id`, so the line is read whole.
    + rb')|[^"\\]*+"'
    + _COLON
    + SCALAR
    + rb")"
    + BLANK
)
_HEAD: Final = re.compile(
    BLANK
    + rb"\{(?:"
    + _MEMBER
    + rb"(?:,|(\}"
    + BLANK
    + rb"\Z)))*(?:"
    + BLANK
    + rb'"([^"\\]*+)"'
    + BLANK
    + rb":)?",
    re.DOTALL,
)
_TAIL: Final = re.compile(BLANK + rb"(?:," + _MEMBER + rb")*\}" + BLANK + rb"\Z", re.DOTALL)
_USUAL: Final = re.compile(
    # What most senders write: `_HEAD` takes the same from such a line, in three times the time.
    rb'\{"jsonrpc": ?"2\.0", ?"id": ?(0|[1-9][0-9]{0,17}|"[A-Za-z0-9_.:-]{1,64}"), ?'
    rb'(?:"method": ?"([A-Za-z0-9_./-]{1,64})", ?"params"|"(?:result|error)"): ?[{\[]'
)
_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*+)")

_QUOTE: Final = ord('"')
_VERSION: Final = b'"2.0"'


class Kind(Enum):
    """What a line is to the daemon."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"
    STRAY = "stray"
    """No JSON-RPC 2.0 message: a banner, a log object, `42`, a batch, broken JSON."""
    BAD_ID = "bad_id"
    """A request whose id is neither a string nor an integer: to be refused, not swallowed."""


class Envelope(NamedTuple):
    """What was read of one line (a tuple, since one is made for each message).

    Attributes:
        kind: see `Kind`.
        id_token: the id as spelled, quotes included; None where there is none.
        id_span: where `id_token` stands in the line, as (start, end).
        method: of a request or a notification.
    """

    kind: Kind
    id_token: bytes | None = None
    id_span: tuple[int, int] | None = None
    method: str | None = None


_STRAY: Final = Envelope(Kind.STRAY)
_ANSWERS: Final = frozenset({b"result", b"error"})
_NO_TAIL: Final = (b"}}", b"]}")
"""A line that ends like this has no scalar member before its closing brace."""

_envelope: Final = tuple.__new__
"""Half the price of calling `Envelope`, which is a Python function around this."""


def read_envelope(line: bytes) -> Envelope:
    """Read kind, id and method of one line.

    Args:
        line: as `LineSplitter` delivers it; need be neither JSON nor UTF-8.

    Returns:
        The envelope. The validity of nested values is not judged; whoever reads them does that.
    """
    usual = _USUAL.match(line)
    if usual is not None and line.endswith(_NO_TAIL):
        id_token, method = usual.groups()
        if method is None:
            return _envelope(Envelope, (Kind.RESPONSE, id_token, usual.span(1), None))
        return _envelope(Envelope, (Kind.REQUEST, id_token, usual.span(1), str(method, "ascii")))
    head = _HEAD.match(line, 0, WINDOW_BYTES)
    if head is None:
        return _STRAY
    cut = head.end() == WINDOW_BYTES < len(line)
    read = None if cut else _from_ends(line, head)
    return _read_whole(line) if read is None else read


def read_ends(head: bytes, tail: bytes) -> Envelope:
    """Read what can be read of a line that was too long to keep.

    Args:
        head: its first 4 KiB.
        tail: its last 4 KiB.

    Returns:
        The envelope without a span, for the one call to fail; `STRAY` where the ends do not say.
    """
    first, last = _HEAD.match(head), _match_tail(tail)
    if first is None or last is None:
        return _STRAY
    id_token = last[1] or first[1]
    method = last[2] or first[2]
    if (last[3] or first[3]) != _VERSION:
        return _STRAY
    if method is not None:
        read = _notification(method) if id_token is None else _request(id_token, None, method)
    elif id_token is not None and first[5] in _ANSWERS:
        read = Envelope(Kind.RESPONSE, id_token)
    else:
        read = _STRAY
    return read


def error_line(
    id_token: bytes, code: int, message: str, data: "Mapping[str, JsonValue] | None" = None
) -> bytes:
    """Build an error response, without a newline.

    Args:
        id_token: the id as its sender spelled it, or `null`.
        code: a JSON-RPC error code; our own are in -32019..-32002.
        message: one sentence for people.
        data: facts for programs, or None.
    """
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    body = json.dumps(error, separators=(",", ":")).encode()
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_token, body)


def _from_ends(line: bytes, head: "re.Match[bytes]") -> Envelope | None:
    """Decide from both ends of the line; None where they do not settle it."""
    id_token, method, version, closed, stop = head.groups()
    id_span = head.span(1)
    if closed is None and not line.endswith(_NO_TAIL):
        tail = _match_tail(line)
        if tail is None:
            return None
        if tail[1]:  # what stands later counts
            id_token, id_span = tail[1], tail.span(1)
        method, version = tail[2] or method, tail[3] or version
    if version != _VERSION:
        return None if version is None and may_name(line, b"jsonrpc") else _STRAY
    if id_token is None:
        after = head.end() if stop is None else head.start(5) - 1
        return None if method is None or may_name(line, b"id", after) else _notification(method)
    if method is not None:
        return _request(id_token, id_span, method)
    if stop in _ANSWERS:
        return _envelope(Envelope, (Kind.RESPONSE, id_token, id_span, None))
    return None


def _match_tail(line: bytes) -> "re.Match[bytes] | None":
    """Match the scalar members before the closing brace, from the bracket before them."""
    first = max(0, len(line) - WINDOW_BYTES)
    end = len(line) - 1
    for _ in range(_TAIL_TRIES):
        # The nearest brace mostly is the one. Whichever bracket matches is right, see above.
        at = line.rfind(b"}", first, end)
        match = _TAIL.match(line, at + 1) if at >= 0 else None
        if match is None:
            at = max(at, line.rfind(b"]", first, end))
            if at < 0:
                return None
            match = _TAIL.match(line, at + 1)
        if match is not None:
            return match
        end = at
    return None


def _request(id_token: bytes, id_span: tuple[int, int] | None, method: bytes) -> Envelope:
    if method[0] != _QUOTE:
        return _STRAY
    good = id_token.isdigit() or id_token[0] == _QUOTE or _INTEGER.fullmatch(id_token) is not None
    kind = Kind.REQUEST if good else Kind.BAD_ID
    return _envelope(Envelope, (kind, id_token, id_span, _text(method)))


def _notification(method: bytes) -> Envelope:
    if method[0] != _QUOTE:
        return _STRAY
    return _envelope(Envelope, (Kind.NOTIFICATION, None, None, _text(method)))


def _text(token: bytes) -> str:
    """Decode a string token; bytes that are no UTF-8 become U+FFFD."""
    return str(meant(token[1:-1]), "utf-8", "replace")


def _read_whole(line: bytes) -> Envelope:
    """Read the outermost members of the whole line; time is linear in its length."""
    found: dict[bytes, tuple[int, int]] = {}
    try:
        for member in members(line):
            found[meant(member.name)] = (member.start, member.end)
    except NotAnObjectError:
        return _STRAY
    id_token, method, version = (
        line[slice(*found[name])] if name in found else None
        for name in (b"id", b"method", b"jsonrpc")
    )
    if version != _VERSION:
        return _STRAY
    if method is not None:
        if id_token is None:
            return _notification(method)
        return _request(id_token, found[b"id"], method)
    if id_token is not None and not found.keys().isdisjoint(_ANSWERS):
        return Envelope(Kind.RESPONSE, id_token, found[b"id"])
    return _STRAY
