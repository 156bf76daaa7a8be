"""Filters of tools: whole names, `*` for anything, all else literal."""

import fnmatch
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.tool_filter import ToolFilter


@pytest.mark.parametrize(
    ("include", "exclude", "tool", "allowed"),
    [
        (None, (), "read", True),
        (("read",), (), "read", True),
        (("read",), (), "read_file", False),
        (("read*",), (), "read", True),
        (("*file",), (), "read_file", True),
        (("r*d*e",), (), "read_file", True),
        (("ab*ba",), (), "aba", False),
        (("READ",), (), "read", False),
        (("read.file",), (), "read-file", False),
        (("[r]ead", "rea?"), (), "read", False),
        (("a*b",), (), "a\nb", True),
        ((), (), "read", False),
        (None, ("read*",), "read_file", False),
        (("read*",), ("read_secret",), "read_secret", False),
        (("read*",), ("read_secret",), "read_file", True),
        (("*",), ("*",), "read", False),
        (("*",), (), "", True),
    ],
)
def test_a_filter_lets_pass(
    include: tuple[str, ...] | None, exclude: tuple[str, ...], tool: str, *, allowed: bool
) -> None:
    """Include first, then exclude; the dialect has nothing but the star."""
    assert ToolFilter(include=include, exclude=exclude).allows(tool) is allowed


@given(st.text(alphabet="ab*", max_size=8), st.text(alphabet="ab", max_size=8))
def test_a_star_means_what_it_means_in_a_shell(pattern: str, tool: str) -> None:
    """The pieces are matched without going back, which has to change no answer."""
    expected = fnmatch.fnmatchcase(tool, pattern)
    assert ToolFilter(include=(pattern,)).allows(tool) is expected


def test_a_pattern_full_of_stars_costs_little() -> None:
    """The pattern is the operator's, but the name is the server's."""
    before = time.process_time()
    assert not ToolFilter(include=("a*" * 30 + "b",)).allows("a" * 5000)
    assert time.process_time() - before < 2


def test_a_filter_is_shown_as_it_was_written() -> None:
    """It is a part of fingerprints and of what the API answers."""
    shown = ToolFilter(include=("a*",), exclude=("b",)).as_json()
    assert shown == {"include": ["a*"], "exclude": ["b"]}
    assert ToolFilter().as_json() == {"include": None, "exclude": []}
