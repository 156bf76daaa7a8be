"""What is kept of a server's stderr: whole lines, harmless, without secrets, never much."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from supervisor.core.redaction import MASK
from supervisor.process.stderr_tail import LINE_CHARS, PARTIAL_BYTES, TAIL_LINES, StderrTail

PHRASE = "correct-horse-battery"


def tail_of(*chunks: bytes, secrets: frozenset[str] = frozenset({PHRASE})) -> tuple[str, ...]:
    """The tail after a server wrote these chunks and closed its stderr."""
    tail = StderrTail(secrets)
    for chunk in chunks:
        tail.feed(chunk)
    tail.end()
    return tail.lines()


def test_lines_are_whole_however_they_are_cut_into_reads() -> None:
    """A read ends anywhere, also inside a character."""
    text = "first\nsecond: ä\r\n\n  \nlast without newline".encode()
    whole = ("first", "second: ä", "last without newline")
    assert tail_of(text) == whole
    assert tail_of(*(text[at : at + 1] for at in range(len(text)))) == whole


def test_a_line_that_is_not_finished_waits_for_its_end() -> None:
    """Half a line shown twice reads like two errors."""
    tail = StderrTail(frozenset())
    tail.feed(b"half")
    assert tail.lines() == ()
    tail.feed(b" a line\n")
    assert tail.lines() == ("half a line",)
    tail.end()
    assert tail.lines() == ("half a line",)


def test_the_last_lines_are_kept_oldest_first() -> None:
    """As many as a person reads in an error message, whatever came in one read."""
    lines = [f"line {number}" for number in range(TAIL_LINES + 5)]
    text = "".join(f"{line}\n" for line in lines).encode()
    assert list(tail_of(text)) == lines[-TAIL_LINES:]
    assert list(tail_of(*text.splitlines(keepends=True))) == lines[-TAIL_LINES:]


def test_a_long_line_is_cut_and_an_endless_one_takes_no_memory() -> None:
    """A server may write megabytes without a newline."""
    tail = StderrTail(frozenset())
    for _ in range(64):
        tail.feed(b"x" * 65536)
    assert {len(line) for line in tail.lines()} == {LINE_CHARS}
    assert len(tail.lines()) <= TAIL_LINES
    assert len(tail._partial) <= PARTIAL_BYTES


@pytest.mark.parametrize(
    "raw",
    [b"\x1b[31mred\x1b[0m", b"bell\x07", b"back\x08", b"nul\0", "bidi\u202e".encode(), b"\xff"],
)
def test_control_characters_are_made_harmless(raw: bytes) -> None:
    """The tail is printed on terminals: escape sequences would be obeyed there."""
    (line,) = tail_of(raw)
    assert all(char.isprintable() for char in line)
    assert "\ufffd" in line


def test_a_tab_stays() -> None:
    """Stack traces are indented with it."""
    assert tail_of(b"\tat main.js:1\n") == ("\tat main.js:1",)


def test_known_secrets_are_masked_also_across_reads() -> None:
    """Servers print their configuration when it is wrong."""
    raw = f"bad token {PHRASE}!\n".encode()
    assert tail_of(raw) == (f"bad token {MASK}!",)
    assert tail_of(raw[:15], raw[15:]) == (f"bad token {MASK}!",)


def test_a_secret_that_a_cut_would_halve_is_masked_first() -> None:
    """Half a secret is still half a secret."""
    (line,) = tail_of(b"x" * (LINE_CHARS - 5) + PHRASE.encode())
    assert PHRASE[:5] not in line


def test_followers_get_the_bytes_as_they_came_until_they_leave() -> None:
    """The shim's user sees what a direct child would have written."""
    tail = StderrTail(frozenset({PHRASE}))
    first, second = list[bytes](), list[bytes]()
    tail.feed(b"before\n")
    tail.follow(first.append)
    tail.follow(second.append)
    tail.feed(b"\x1b[31m" + PHRASE.encode())
    tail.unfollow(first.append)
    tail.unfollow(first.append)
    tail.feed(b"after\n")

    assert first == [b"\x1b[31m" + PHRASE.encode()]
    assert second == [*first, b"after\n"]


def test_a_follower_may_leave_while_it_is_served() -> None:
    """A shim that is found gone is unfollowed from inside."""
    tail = StderrTail(frozenset())
    seen = list[bytes]()

    def once(data: bytes) -> None:
        tail.unfollow(once)
        seen.append(data)

    tail.follow(once)
    tail.follow(seen.append)
    tail.feed(b"one\n")
    tail.feed(b"two\n")
    assert seen == [b"one\n", b"one\n", b"two\n"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60)))
def test_no_bytes_are_too_strange(chunks: list[bytes]) -> None:
    """Whatever comes, the tail is short, printable, and the same however it was cut."""
    lines = tail_of(*chunks)
    assert lines == tail_of(b"".join(chunks))
    assert len(lines) <= TAIL_LINES
    assert all(char.isprintable() or char == "\t" for line in lines for char in line)
    assert all(line.strip() for line in lines)
