"""Names that come from outside and end up in file names, marks and URLs."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from supervisor.core.ids import DEFAULT_SESSION, INSTANCE_MARK, is_instance_id, is_session_key


@pytest.mark.parametrize("key", ["a", "default", "Ada@example.com", "a.b:c_d-e", "x" * 128])
def test_a_session_key_is_what_a_client_would_choose(key: str) -> None:
    """Design section 12."""
    assert is_session_key(key)


@pytest.mark.parametrize("key", ["", "x" * 129, "a b", "a/b", "../a", "a\n", "ä", "a\0", "a%2e"])
def test_anything_else_is_no_session_key(key: str) -> None:
    """It stands in paths of the API; a trailing newline is the classic slip of `$`."""
    assert not is_session_key(key)


def test_the_default_session_is_a_session_key() -> None:
    """`mcpctl start NAME` uses it."""
    assert is_session_key(DEFAULT_SESSION)


def test_an_instance_id_is_16_lower_case_hexadecimal_digits() -> None:
    """It is a file name, and the value of the mark."""
    assert is_instance_id("0123456789abcdef")
    assert INSTANCE_MARK == "MCP_SUPERVISOR_INSTANCE"


@pytest.mark.parametrize(
    "text", ["", "0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "0123456789abcdef\n"]
)
def test_anything_else_is_no_instance_id(text: str) -> None:
    """Upper case would be a second name of the same instance."""
    assert not is_instance_id(text)


@settings(deadline=None)
@given(st.text(max_size=20))
def test_an_accepted_name_is_safe_in_a_path(text: str) -> None:
    """No slash, no NUL, no whitespace, no control character."""
    if is_session_key(text) or is_instance_id(text):
        assert text.isascii()
        assert text.isprintable()
        assert not set(text) & set("/\\ %")
