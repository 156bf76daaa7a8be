"""The short ways for what comes most often find the same as the long ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.envelope import Envelope, read_envelope
from supervisor.core.json_spans import find_quoted

PIECES = [
    '{"jsonrpc":"2.0",',
    '{"jsonrpc": "2.0", ',
    '"id":1,',
    '"id":0,',
    '"id":01,',
    '"id":-1,',
    '"id":1.5,',
    '"id":"a-1",',
    '"id":"a\\u0062",',
    '"id":null,',
    '"method":"tools/call",',
    '"method":"tools\\/call",',
    '"method":5,',
    '"params":{"id":7}',
    '"params":[]',
    '"params":5',
    '"result":{"a":[]}',
    '"error":{}',
    "}",
    ',"id":2}',
    ',"x":{}}',
    ',"method":"other"}',
    ',"jsonrpc":"1.0"}',
    "]}",
    "}}",
]


def read_slowly(line: bytes) -> Envelope:
    """The same line behind a blank, which no sender writes and the short way does not take."""
    read = read_envelope(b" " + line)
    if read.id_span is None:
        return read
    start, end = read.id_span
    return read._replace(id_span=(start - 1, end - 1))


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join))
def test_a_usual_line_is_read_as_any_other(line: str) -> None:
    """Whoever reads ids two ways must find the same ids, else an answer reaches nobody."""
    assert read_envelope(line.encode()) == read_slowly(line.encode())


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"a"}}',
        b'{"jsonrpc": "2.0", "id": "x", "method": "ping", "params": {}}',
        b'{"jsonrpc":"2.0","id":12,"result":{"content":[]}}',
        b'{"jsonrpc":"2.0","id":12,"error":{"code":-32601,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":12,"method":"a","params":{},"id":13}',
        b'{"jsonrpc":"2.0","id":012,"method":"a","params":{"x":{}}}',
        b'{"jsonrpc":"2.0","id":"\\u0061","method":"a","params":{"x":{}}}',
        b'{"jsonrpc":"2.0","id":-1,"method":"a","params":{"x":{}}}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"a","params":{"x":{}}}',
        b'{"jsonrpc":"2.1","id":1,"method":"a","params":{"x":{}}}',
        b'{"jsonrpc":"2.0","id":12,"method":"a","params":{},"x":{"y":1}}',
    ],
)
def test_a_line_that_looks_usual_is_read_as_any_other(line: bytes) -> None:
    """Some take the short way, some look as if they could: the last id of two is what counts."""
    assert read_envelope(line) == read_slowly(line)


@given(
    st.lists(st.sampled_from([b'"id"', b'"', b"id", b"x" * 700, b"x" * 5000]), max_size=12),
    st.integers(0, 9),
)
def test_a_search_from_quote_to_quote_finds_the_first_occurrence(
    pieces: list[bytes], start: int
) -> None:
    """It is the same as a plain search, at a fraction of the price where quotes are few."""
    text = b"".join(pieces)

    assert find_quoted(text, b'"id"', start) == text.find(b'"id"', start)
