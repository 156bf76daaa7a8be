"""Bytes to lines: every chunking gives the same lines, and no line takes more than its share."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.framing import KEPT_BYTES, Line, LineSplitter, TooLong

LIMIT = 64


def split(*chunks: bytes, limit: int = LIMIT) -> list[Line | TooLong]:
    """Feed all chunks and the end of the stream."""
    splitter = LineSplitter(limit)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()


def lines_of(text: bytes, limit: int = LIMIT) -> list[Line | TooLong]:
    """The same by the simplest means."""
    lines: list[Line | TooLong] = []
    for ended in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = ended.removesuffix(b"\r")
        if len(line) > limit:
            lines.append(TooLong(line[:KEPT_BYTES], line[-KEPT_BYTES:], len(line)))
        elif line.strip():
            lines.append(line)
    return lines


@st.composite
def chunkings(draw: st.DrawFn) -> list[bytes]:
    """A text of lines of all lengths around the limit, cut anywhere."""
    pieces = st.one_of(
        st.sampled_from([b"\n", b"\r\n", b"\r", b"\xef\xbb\xbf", b" ", b"{}", b"\xc3\xa9"]),
        st.integers(LIMIT - 3, LIMIT + 3).map(lambda length: b"x" * length),
    )
    text = b"".join(draw(st.lists(pieces, max_size=12)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(chunkings())
def test_the_lines_do_not_depend_on_how_the_bytes_were_cut(chunks: list[bytes]) -> None:
    """A pipe cuts anywhere: inside a character, a line ending, the byte order mark."""
    assert split(*chunks) == lines_of(b"".join(chunks))


def test_a_last_line_without_newline_is_delivered() -> None:
    """A server that dies after its last answer may not have ended the line."""
    assert split(b"one\ntw", b"o") == [b"one", b"two"]


def test_a_line_is_delivered_as_soon_as_its_newline_came() -> None:
    """Nothing waits for the next message."""
    splitter = LineSplitter(LIMIT)

    assert splitter.feed(b"on") == []
    assert splitter.feed(b"e\ntwo") == [b"one"]
    assert splitter.feed(b"\n") == [b"two"]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 4096, 1 << 20])
def test_the_limit_is_exact_and_one_byte_more_is_too_long(chunk_bytes: int) -> None:
    """Off-by-one errors at the limit are what people reported; line endings do not count."""
    limit = 10_000
    fits, over = b"f" * limit, b"h" * 5000 + b"t" * 5001
    text = b"\xef\xbb\xbf" + fits + b"\r\n" + over + b"\r\nnext\n"

    chunks = [text[at : at + chunk_bytes] for at in range(0, len(text), chunk_bytes)]

    head, tail = b"h" * KEPT_BYTES, b"t" * KEPT_BYTES
    assert split(*chunks, limit=limit) == [fits, TooLong(head, tail, limit + 1), b"next"]


@pytest.mark.parametrize("chunk_bytes", [3, 100, 5000])
def test_the_contents_of_a_line_over_the_limit_are_dropped_while_it_goes_on(
    chunk_bytes: int,
) -> None:
    """Memory is bounded by the limit and one chunk, whatever a server writes."""
    splitter = LineSplitter(10_000)

    for _ in range(200_000 // chunk_bytes):
        assert splitter.feed(b"x" * chunk_bytes) == []
        kept = sum(map(len, splitter._chunks)) + len(splitter._small) + len(splitter._tail)
        assert kept <= 10_000 + 2 * 65536 + chunk_bytes
    assert len(splitter._chunks) <= 3


def test_many_small_chunks_of_one_line_are_kept_as_few_objects() -> None:
    """A line that comes byte by byte must not cost an object for each."""
    splitter = LineSplitter(1 << 20)

    for _ in range(200_000):
        splitter.feed(b"x")

    assert len(splitter._chunks) < 10


def test_a_line_is_endless_beyond_four_times_the_limit_until_it_ends() -> None:
    """The caller ends the instance then; a merely long line only fails its own call."""
    splitter = LineSplitter(LIMIT)

    seen = []
    for data in (b"x" * (4 * LIMIT), b"x", b"\n"):
        splitter.feed(data)
        seen.append(splitter.endless)

    assert seen == [False, True, False]


def test_one_bad_byte_spoils_one_line_only() -> None:
    """UTF-8 is checked line by line, so a character cut by a chunk is whole again."""
    lines = split(b"caf\xc3", b"\xa9\ncaf\xe9\nok\n")

    assert [LineSplitter.is_utf8(line) for line in lines if isinstance(line, bytes)] == [
        True,
        False,
        True,
    ]
