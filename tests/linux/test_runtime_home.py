"""The fallback for clients that pass no XDG_RUNTIME_DIR on."""

import os

import pytest

from supervisor.linux.runtime_home import with_runtime_home


def test_what_the_environment_says_is_kept() -> None:
    """The directory of a login session may be anywhere."""
    given = {"XDG_RUNTIME_DIR": "/elsewhere"}
    assert with_runtime_home(given, os.getuid()) == given


def test_without_the_variable_a_directory_of_this_user_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The MCP SDK hands six variables to a server, and this is none of them."""
    owner = os.stat_result((0o40700, 0, 0, 2, 1234, 1234, 0, 0, 0, 0))
    monkeypatch.setattr("supervisor.linux.runtime_home.os.stat", lambda _path: owner)
    assert with_runtime_home({}, 1234) == {"XDG_RUNTIME_DIR": "/run/user/1234"}
    assert with_runtime_home({}, 99) == {}


def test_a_directory_that_is_not_there_changes_nothing() -> None:
    """No such user has ever logged in."""
    assert with_runtime_home({"A": "b"}, 4_000_000_000) == {"A": "b"}
