"""`reload`: what has moved, what became of it, and that a broken file moves nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cli.fake_daemon import REPORT, FakeDaemon, running
from cli.running_mcpctl import mcpctl
from supervisor.core.views import ReloadAnswer

TARGET: Final = "/v1/reload"
NOTHING: Final = ReloadAnswer(
    unchanged=("alpha", "beta"),
    changed=(),
    retuned=(),
    added=(),
    removed=(),
    warnings=(),
    reports=(),
)


@pytest.fixture
def daemon(tmp_runtime: Path) -> Iterator[FakeDaemon]:
    """A fake daemon in the place that the commands are told of."""
    with running(tmp_runtime) as fake:
        yield fake


def test_a_reload_names_each_group_and_what_was_stopped(daemon: FakeDaemon) -> None:
    """Groups without members are left out; warnings go to stderr, as at `check`."""
    moved = replace(
        NOTHING,
        changed=("git",),
        added=("b\x1bx", "docs"),
        removed=("old",),
        warnings=("config.json, line 3: this key is not known.",),
        reports=(replace(REPORT, reason="reload"), replace(REPORT, server="old", reason="reload")),
    )
    daemon.answer("POST", TARGET, moved)
    assert mcpctl(daemon.runtime_dir, "reload") == (
        0,
        """\
unchanged: alpha, beta
changed: git
added: b\\x1bx, docs
removed: old
git: stopped, cleanup confirmed in 0.012 s (exit code 0)
old: stopped, cleanup confirmed in 0.012 s (exit code 0)
""",
        "mcpctl: warning: config.json, line 3: this key is not known.\n",
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (NOTHING, "unchanged: alpha, beta\nnothing has changed for any server\n"),
        (replace(NOTHING, unchanged=()), "nothing has changed for any server\n"),
        (replace(NOTHING, unchanged=(), retuned=("alpha",)), "retuned: alpha\n"),
    ],
)
def test_a_reload_without_a_change_says_so(
    daemon: FakeDaemon, answer: ReloadAnswer, text: str
) -> None:
    """Else one would wonder whether the right file was edited."""
    daemon.answer("POST", TARGET, answer)
    assert mcpctl(daemon.runtime_dir, "reload") == (0, text, "")


def test_a_reload_over_an_unconfirmed_cleanup_exits_3(daemon: FakeDaemon) -> None:
    """As a stop would, with the same words; one of several is enough."""
    bad = replace(REPORT, outcome="unconfirmed", missing=("group_gone",))
    answer = replace(NOTHING, changed=("git",), reports=(bad, REPORT))
    daemon.answer("POST", TARGET, answer)
    ended = mcpctl(daemon.runtime_dir, "reload")
    assert ended.code == 3
    assert "cleanup is UNCONFIRMED after 0.012 s; missing: group_gone" in ended.out
    as_json = mcpctl(daemon.runtime_dir, "reload", "--json")
    assert (as_json.code, json.loads(as_json.out)["changed"]) == (3, ["git"])


def test_a_broken_file_is_exit_100_and_says_that_all_stays(daemon: FakeDaemon) -> None:
    """Every problem at once, and no worry about what runs."""
    detail = "/c.json, line 2: one.\n/c.json, line 7: another."
    body = daemon.problem("POST", TARGET, 409, "config_invalid", detail=detail)
    said = f"mcpctl: {detail}\nThe running configuration stays.\n"
    assert mcpctl(daemon.runtime_dir, "reload") == (100, "", said)
    assert mcpctl(daemon.runtime_dir, "reload", "--json") == (100, f"{body}\n", said)


def test_another_refusal_of_a_reload_is_said_as_it_is(daemon: FakeDaemon) -> None:
    """A daemon on its way out has no configuration that stays."""
    detail = "The daemon is shutting down and starts nothing any more."
    daemon.problem("POST", TARGET, 503, "shutting_down", detail=detail)
    assert mcpctl(daemon.runtime_dir, "reload") == (1, "", f"mcpctl: {detail}\n")
