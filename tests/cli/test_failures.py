"""Failures: a sentence and an exit code for each, never a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import supervisor.client.errors  # noqa: F401 - defines errors of its own
from cli.fake_daemon import FakeDaemon, running
from cli.running_mcpctl import mcpctl
from supervisor.api.errors import PROBLEMS
from supervisor.core.errors import SupervisorError
from supervisor.core.exits import EXIT_OF_CODE


@pytest.fixture
def daemon(tmp_runtime: Path) -> Iterator[FakeDaemon]:
    """A fake daemon in the place that the commands are told of."""
    with running(tmp_runtime) as fake:
        yield fake


def kinds(of: type[SupervisorError]) -> set[str]:
    """The codes of an error class and of all below it."""
    return {of.code}.union(*(kinds(kind) for kind in of.__subclasses__()))


def test_every_code_has_an_exit_code() -> None:
    """A new error must not become "failed" by being forgotten."""
    assert set(EXIT_OF_CODE) >= kinds(SupervisorError) | set(PROBLEMS)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("unknown_server", 1),
        ("launch_failed", 1),
        ("request_invalid", 2),
        ("cleanup_unconfirmed", 3),
        ("server_record_invalid", 100),
        ("kernel_refused", 111),
        ("of_a_later_daemon", 1),
    ],
)
def test_what_the_daemon_refuses_is_said_in_its_words(
    daemon: FakeDaemon, code: str, exit_code: int
) -> None:
    """The detail is the sentence; with --json the problem document stands on stdout, unchanged."""
    detail = "It is not that simple."
    body = daemon.problem("POST", "/v1/servers/git/start", 409, code, detail=detail)
    assert mcpctl(daemon.runtime_dir, "start", "git") == (exit_code, "", f"mcpctl: {detail}\n")
    as_json = mcpctl(daemon.runtime_dir, "start", "git", "--json")
    assert as_json == (exit_code, f"{body}\n", f"mcpctl: {detail}\n")


def test_a_bug_of_the_daemon_points_to_its_log(daemon: FakeDaemon) -> None:
    """Exit 101, and where the traceback is."""
    daemon.problem("GET", "/v1/status", 500, "internal", detail="It met a bug of its own.")
    ended = mcpctl(daemon.runtime_dir, "status")
    assert ended.code == 101
    assert ended.err == (
        "mcpctl: It met a bug of its own. The daemon's log has the details: `journalctl -u "
        "mcp-supervisord`, or its terminal.\n"
    )


def test_without_a_daemon_it_says_what_to_type(tmp_runtime: Path) -> None:
    """Exit 4; the places given on the command line are part of what to type, before or after."""
    elsewhere = str(tmp_runtime / "no" / "where")
    sentence = (
        f"No daemon answers on {elsewhere}/control.sock. Start it with `mcp-supervisord start"
    )
    option = ("--runtime-dir", elsewhere)
    for words in ((*option, "status"), ("status", *option)):
        ended = mcpctl(tmp_runtime, *words)
        assert ended == (4, "", f"mcpctl: {sentence} --runtime-dir {elsewhere}`.\n")
    by_environment = {"MCP_SUPERVISOR_RUNTIME_DIR": elsewhere}
    ended = mcpctl(tmp_runtime, "stop", "git", "--json", environ=by_environment)
    assert (ended.code, ended.err) == (4, f"mcpctl: {sentence}`.\n")
    assert json.loads(ended.out)["code"] == "daemon_unreachable"


def test_the_option_after_the_command_wins(daemon: FakeDaemon, tmp_path: Path) -> None:
    """As the later of two usually does."""
    daemon.answer("GET", "/v1/reports", {"reports": []})
    words = ("--runtime-dir", str(tmp_path), "reports", "--runtime-dir", str(daemon.runtime_dir))
    assert mcpctl(tmp_path, *words) == (0, "No report has been made yet.\n", "")


def test_a_daemon_that_dies_during_a_request_is_unreachable(daemon: FakeDaemon) -> None:
    """Its answer never came, so nothing is known: exit 4, not a success."""
    daemon.answer("POST", "/v1/servers/git/stop", "").cut_off = True
    ended = mcpctl(daemon.runtime_dir, "stop", "git")
    assert ended.code == 4
    assert "ended the connection before it had answered" in ended.err


def test_what_cannot_happen_is_one_sentence_with_its_place(daemon: FakeDaemon) -> None:
    """A body without its fields is a bug somewhere: exit 101, and no traceback."""
    daemon.answer("GET", "/v1/status", "{}")
    ended = mcpctl(daemon.runtime_dir, "status")
    assert (ended.code, ended.out) == (101, "")
    assert ended.err.startswith("mcpctl: Internal error: KeyError at supervisor.cli.show, line ")
    assert ended.err.count("\n") == 1


def test_another_program_on_the_socket_is_no_daemon(daemon: FakeDaemon) -> None:
    """What is no JSON is explained as such."""
    daemon.answer("GET", "/v1/status", "<html>")
    ended = mcpctl(daemon.runtime_dir, "status")
    assert ended.code == 101
    assert "cannot be understood (it is not JSON)" in ended.err


def test_every_command_has_a_help_with_an_example(tmp_runtime: Path) -> None:
    """A stranger copies the example; the group's help lists all commands and exit codes."""
    group = mcpctl(tmp_runtime, "--help")
    listed = group.out.partition("Commands:\n")[2].partition("\n\n")[0]
    names = [line.split()[0] for line in listed.splitlines()]
    assert names == [
        "add",
        "call",
        "connect",
        "doctor",
        "events",
        "export",
        "import",
        "instances",
        "list",
        "logs",
        "probe",
        "release",
        "reload",
        "reports",
        "restart",
        "serve",
        "sessions",
        "set",
        "show",
        "shutdown",
        "start",
        "status",
        "stop",
        "tools",
        "unset",
    ]
    assert "Exit codes:" in group.out
    for name in names:
        ended = mcpctl(tmp_runtime, name, "--help")
        assert ended.code == 0
        assert f"\n    mcpctl {name}" in ended.out


def test_status_needs_no_heavy_module(tmp_runtime: Path) -> None:
    """Six times `python -c pass` is the bound; click alone takes four of them."""
    profile = {"PYTHONPROFILEIMPORTTIME": "1"}
    ended = mcpctl(tmp_runtime, "status", environ=profile)
    loaded = {line.rpartition("|")[2].strip() for line in ended.err.splitlines()}
    assert "click" in loaded
    heavy = {
        "anyio",
        "asyncio",
        "dataclasses",
        "http.client",
        "psutil",
        "pydantic",
        "socket",
        "ssl",
    }
    assert not loaded & heavy
