"""What is kept and shown of lines on stdout that are no JSON-RPC."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.strays import KEPT_CHARS, KEPT_LINES, Strays, harmless

SECRET = "hush-hush-0123"  # noqa: S105 - a made-up one, to see it masked


def test_all_are_counted_and_the_first_few_are_kept() -> None:
    """Enough to recognise what writes them; a hundred thousand more cost a number."""
    strays = Strays(())
    for at in range(1000):
        strays.add(b"line %d" % at)
    assert strays.count == 1000
    assert strays.first() == tuple(f"line {at}" for at in range(KEPT_LINES))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"\x1b[32mready\x1b[0m in 12 ms", "ready in 12 ms"),
        (b"\x1b[1;31;48;5;7mloud\x1b[m", "loud"),
        (b"\x1b]0;a title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bMup", "up"),
        (b"bell\x07 back\x08", "bell\ufffd back\ufffd"),
        (b"caf\xe9", "caf\ufffd"),
        (b"\ttab\t", "tab"),
        ("\u202etrick".encode(), "\ufffdtrick"),
        (f"token {SECRET}!".encode(), "token ***!"),
        (b"\x1b[31mhush-\x1b[0mhush-0123", "***"),
    ],
)
def test_a_line_is_made_harmless(line: bytes, shown: str) -> None:
    """Colours are left out, what plays tricks on a terminal is replaced, secrets are masked."""
    assert harmless(line, (SECRET,)) == shown


def test_a_long_line_is_cut() -> None:
    """It is there to be recognised, not to be read."""
    shown = harmless(b"x" * 10**6, ())
    assert (len(shown), shown[-1]) == (KEPT_CHARS, "\u2026")


@given(line=st.binary(max_size=2000))
def test_whatever_is_written_is_shown_printable_and_short(line: bytes) -> None:
    """Bytes of a server reach a terminal."""
    shown = harmless(line, (SECRET,))
    assert len(shown) <= KEPT_CHARS
    assert all(c.isprintable() or c == "\t" for c in shown)
    assert SECRET not in shown
