"""Envelopes read from the ends of a line, compared with what a whole parse says."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.envelope import (
    WINDOW_BYTES,
    Envelope,
    Kind,
    error_line,
    read_ends,
    read_envelope,
)


def expected_kind(line: bytes) -> tuple[Kind, object, object]:
    """Kind, id and method by a parser; the last of repeated names counts."""
    stray = (Kind.STRAY, None, None)
    try:
        message = json.loads(line)
    except ValueError:
        return stray
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return stray
    method, request_id = message.get("method"), message.get("id")
    if "method" not in message:
        answers = "id" in message and ("result" in message or "error" in message)
        return (Kind.RESPONSE, request_id, None) if answers else stray
    if not isinstance(method, str):
        return stray
    if "id" not in message:
        return Kind.NOTIFICATION, None, method
    good = isinstance(request_id, int | str) and not isinstance(request_id, bool)
    return Kind.REQUEST if good else Kind.BAD_ID, request_id, method


def shown(line: bytes) -> tuple[Kind, object, object]:
    """The same by `read_envelope`, after checking that the span is the token's place."""
    envelope = read_envelope(line)
    if envelope.id_token is None:
        return envelope.kind, None, envelope.method
    assert envelope.id_span is not None
    assert line[slice(*envelope.id_span)] == envelope.id_token
    return envelope.kind, json.loads(envelope.id_token), envelope.method


IDS = ["0", "7", "-3", "-0", "123456789012345678901234567890", '"a"', '""', '"7"', '"\\u0041\\""']
BAD_IDS = ["null", "1.0", "1.5", "1e3", "true", "false", "{}", "[1]", '{"id":3}']

fillers = st.sampled_from(
    [
        '"x"',
        "{}",
        "[]",
        "12",
        '{"id":99,"method":"inner","jsonrpc":"1.0"}',
        '{"a":[{"b":"}]"}]}',
        '"},\\"id\\":5}"',
        '"]"',
        '"a ] , \\"id\\" : 5 }"',
        '", "',
        json.dumps("y" * WINDOW_BYTES),
        json.dumps({"text": ', "id": 4}' * 600}),
    ]
)
parts = st.one_of(
    st.tuples(st.just('"id"'), st.sampled_from(IDS + BAD_IDS)),
    st.tuples(st.just('"\\u0069d"'), st.sampled_from(IDS)),
    st.tuples(
        st.just('"method"'), st.sampled_from(['"tools/call"', '"a]b}"', '"\\u0061\\/b"', "5"])
    ),
    st.tuples(st.just('"jsonrpc"'), st.sampled_from(['"2.0"', '"2.0"', '"2.0"', '"1.0"', "2.0"])),
    st.tuples(st.sampled_from(['"params"', '"result"', '"error"', '"}"', '"x\\"id"']), fillers),
)


def plain(pair: tuple[str, str]) -> str:
    """A member's name as a parser sees it."""
    name: str = json.loads(pair[0])
    return name


@st.composite
def messages(draw: st.DrawFn, *, repeated: bool = False) -> bytes:
    """One object of the members that matter, in any order, with blanks."""
    pairs = draw(st.lists(parts, max_size=6, unique_by=None if repeated else plain))
    if "jsonrpc" not in map(plain, pairs):  # else nearly all were stray
        pairs.insert(draw(st.integers(0, len(pairs))), ('"jsonrpc"', '"2.0"'))
    colon, comma, end = draw(
        st.sampled_from([(":", ",", ""), (": ", ", ", ""), (" :\t", "\t, ", " ")])
    )
    inside = comma.join(f"{name}{colon}{value}" for name, value in pairs)
    return f"{{{end}{inside}{end}}}{end}".encode()


@given(messages())
def test_reading_the_ends_says_the_same_as_parsing_all(line: bytes) -> None:
    """Wherever id and method stand, and whatever strings look like.

    JSON-RPC 2.0 knows no message that is a request and an answer at once; which of the two such a
    line is taken for is not promised, only that reading it fails nowhere.
    """
    if json.loads(line).keys() & {"result", "error"} and "method" in json.loads(line):
        read_envelope(line)
        return
    assert shown(line) == expected_kind(line)


def test_where_both_ends_name_something_the_later_one_counts() -> None:
    """As in every common parser, even if what stands first looked complete."""
    line = b'{"id":1,"method":"a","jsonrpc":"1.0","x":{},"id":2,"method":"b","jsonrpc":"2.0"}'

    assert shown(line) == expected_kind(line) == (Kind.REQUEST, 2, "b")


@given(messages(repeated=True))
def test_of_repeated_names_the_last_counts(line: bytes) -> None:
    """As in every common parser; only a repetition between two nested values may be missed."""
    pairs: list[tuple[str, object]] = json.loads(line, object_pairs_hook=list)
    compound = [at for at, (_, value) in enumerate(pairs) if isinstance(value, list)]
    long = any(isinstance(value, str) and len(value) >= WINDOW_BYTES for _, value in pairs)
    if len(compound) < 2 and not long:
        assert shown(line) == expected_kind(line)
    else:
        read_envelope(line)


@given(messages(), st.integers(0, 400))
def test_a_line_that_was_cut_off_is_nothing_or_what_its_ends_say(line: bytes, cut: int) -> None:
    """A server that dies in the middle of a line leaves half a message."""
    if json.loads(line) and len(line.rstrip()) > cut:
        envelope = read_envelope(line[:cut])
        # Both ends may look right by chance only if the cut part itself ends like an object.
        assert envelope.kind is Kind.STRAY or line[:cut].rstrip().endswith(b"}")


@given(st.binary(max_size=80))
def test_any_bytes_at_all_have_an_envelope(line: bytes) -> None:
    """Nothing that a server writes raises."""
    read_envelope(line)
    read_envelope(b'{"jsonrpc":"2.0","id":' + line)
    read_envelope(line + b',"jsonrpc":"2.0","id":1}')


@pytest.mark.parametrize(
    "line",
    [
        b"Server listening on port 8000",
        b"\x1b[32mINFO\x1b[0m ready",
        b'{"level":"info","msg":"up","id":5}',
        b'{"level":"info","context":{"method":"GET"}}',
        b'{"id":5,"error":"connection refused"}',
        b'{"jsonrpc":"2.0","id":5}',
        b'{"jsonrpc":"2.0","id":5,"params":{}}',
        b'{"jsonrpc":"2.0","method":"m","params":{}"id":5}',
        b'{"jsonrpc":"2.0","id":1,"method":"a","x":1} trailing',
        b'{"jsonrpc":"2.0","method":"a","params":{"id":1}',
        b"{'jsonrpc': '2.0'}",
        b"42",
        b"null",
        b'"text"',
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b"{}",
        b"{",
        b"",
    ],
)
def test_what_is_no_message_is_stray(line: bytes) -> None:
    """Banners, log objects, batches and broken JSON are counted, never fatal."""
    assert read_envelope(line) == Envelope(Kind.STRAY)


@pytest.mark.parametrize("token", BAD_IDS)
def test_a_request_with_a_bad_id_is_told_from_a_notification(token: str) -> None:
    """It must be refused; taken for a notification it would never be answered."""
    for line in (
        f'{{"jsonrpc":"2.0","id":{token},"method":"m","params":{{}}}}',
        f'{{"method":"m","params":{{}},"jsonrpc":"2.0","id":{token}}}',
        f'{{"jsonrpc":"2.0","method":"m","params":{{}},"id":{token},"x":{{}}}}',
    ):
        envelope = read_envelope(line.encode())
        assert (envelope.kind, envelope.id_token) == (Kind.BAD_ID, token.encode())


@pytest.mark.parametrize("token", IDS)
def test_an_id_keeps_its_spelling(token: str) -> None:
    """The answer has to carry it byte for byte."""
    envelope = read_envelope(f'{{"jsonrpc":"2.0","id":{token},"method":"m"}}'.encode())

    assert envelope == (Kind.REQUEST, token.encode(), (22, 22 + len(token)), "m")


def test_an_id_beyond_both_windows_is_found_by_reading_the_whole_line() -> None:
    """In practice nobody writes so; then it is slow, not wrong."""
    wide = b'{"x":"' + b"," * WINDOW_BYTES + b'"}'
    line = b'{"a":%b,"id":7,"jsonrpc":"2.0","method":"m","b":%b}' % (wide, wide)

    assert read_envelope(line)[1:] == (b"7", (line.index(b"7"), line.index(b"7") + 1), "m")


@pytest.mark.parametrize("extra", range(-3, 4))
def test_a_line_that_is_cut_by_the_window_is_read_right(extra: int) -> None:
    """An object whose end, or whose id, meets the edge of the window exactly."""
    start, end = b'{"jsonrpc":"2.0","method":"m","x":"', b'","id":12345}'
    padding = b"x" * (WINDOW_BYTES - len(start) - len(end) + extra)
    for line in (start + padding + end, start + padding + b'","id":12345,"y":{}}'):
        envelope = read_envelope(line)
        assert (envelope.kind, envelope.id_token) == (Kind.REQUEST, b"12345")


def test_a_long_line_that_ends_within_the_window_for_a_moment_is_not_taken_as_complete() -> None:
    """What follows the closing brace beyond the window makes the line no JSON."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"m"}'
    assert read_envelope(line + b" " * WINDOW_BYTES).kind is Kind.REQUEST
    assert read_envelope(line + b" " * WINDOW_BYTES + b"x").kind is Kind.STRAY


def test_invalid_utf8_in_a_body_does_not_hide_the_id() -> None:
    """The one call fails, by its id."""
    line = b'{"jsonrpc":"2.0","id":3,"result":{"text":"caf\xe9"}}'

    assert read_envelope(line)[:2] == (Kind.RESPONSE, b"3")


@pytest.mark.parametrize(
    ("start", "end", "kind", "id_token"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":{"t":"', b'"}}', Kind.RESPONSE, b"5"),
        (b'{"result":{"t":"', b'"},"jsonrpc":"2.0","id":5}', Kind.RESPONSE, b"5"),
        (b'{"result":["', b'"],"jsonrpc":"2.0","id":5}', Kind.RESPONSE, b"5"),
        (b'{"method":"m","params":{"t":"', b'"},"jsonrpc":"2.0","id":5}', Kind.REQUEST, b"5"),
        (b'{"jsonrpc":"2.0","method":"m","params":{"t":"', b'"}}', Kind.NOTIFICATION, None),
        (b"x" * 100, b"x" * 100, Kind.STRAY, None),
    ],
)
def test_the_ends_of_a_line_that_was_too_long_name_the_call_that_fails(
    start: bytes, end: bytes, kind: Kind, id_token: bytes | None
) -> None:
    """So that one answer over the limit does not fail every call in flight."""
    line = start + b"z" * 20_000 + end

    read = read_ends(line[:WINDOW_BYTES], line[-WINDOW_BYTES:])

    assert (read.kind, read.id_token, read.id_span) == (kind, id_token, None)


def test_an_error_line_carries_the_id_as_it_was_spelled() -> None:
    """And text in any script, on one line."""
    line = error_line(b'"\\u0041"', -32010, 'é "q"\n', {"server": "git"})

    assert line.startswith(b'{"jsonrpc":"2.0","id":"\\u0041","error":')
    assert b"\n" not in line
    assert json.loads(line)["error"] == {
        "code": -32010,
        "message": 'é "q"\n',
        "data": {"server": "git"},
    }
    assert "data" not in json.loads(error_line(b"1", -32603, "x"))["error"]
