"""What the shim says when there is no server to connect to or when it has ended."""

import json
import subprocess  # noqa: TID251 - the program is run as a client runs it
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cli.fake_daemon import listening
from cli.shim_driver import GONE, MCPCTL, Connected, accept, connected, read_line
from leftovers import Groups
from supervisor.core.report import CleanupReport, ExitStatus

CRASH: Final = replace(
    GONE,
    reason="crash",
    exit=ExitStatus(code=3, signal=None),
    last_stderr=("a", "no \x1b[31mtoken"),
)


@pytest.mark.parametrize(
    ("report", "exit_code", "said"),
    [
        (
            replace(GONE, outcome="unconfirmed", missing=("group_gone", "stdout_eof")),
            3,
            (
                "Server 'git' was stopped, but its cleanup is unconfirmed; missing: group_gone, "
                "stdout_eof. `mcpctl instances --quarantined` shows what is left of instance "
                "0123456789abcdef."
            ),
        ),
        (
            CRASH,
            1,
            (
                "Server 'git' ended by itself: exit code 3; its last line on stderr: "
                "no \\x1b[31mtoken."
            ),
        ),
        (
            replace(GONE, reason="output_closed", exit=ExitStatus(code=None, signal=9)),
            1,
            "Server 'git' closed its output and was stopped: killed by SIGKILL.",
        ),
        (
            replace(GONE, reason="stop"),
            1,
            "Server 'git' was stopped by `mcpctl stop`.",
        ),
    ],
)
def test_how_it_ended_is_said_and_is_the_exit_code(
    groups: Groups, tmp_runtime: Path, report: CleanupReport, exit_code: int, said: str
) -> None:
    """Whoever looks at the client's log finds the reason, and a script finds the code."""
    with connected(groups, tmp_runtime, report) as both:
        assert both.end() == (exit_code, f"mcpctl: {said}\n")


def test_a_daemon_that_is_gone_leaves_the_end_unknown(groups: Groups, tmp_runtime: Path) -> None:
    """Nothing is claimed that nobody has confirmed."""
    with listening(tmp_runtime) as listener:
        both = Connected(groups, listener, tmp_runtime)
        code, said = both.end()
    assert code == 4
    assert said == (
        "mcpctl: How instance 0123456789abcdef of 'git' ended is not known: the daemon is gone. "
        "See `mcpctl reports`.\n"
    )


@pytest.mark.parametrize(("sent", "echoed"), [("7", 7), ('"a\\u00e9"', "aé"), ("1.5", 1.5)])
def test_a_refusal_answers_the_clients_first_request(
    groups: Groups, tmp_runtime: Path, sent: str, echoed: object
) -> None:
    """Clients show the error of `initialize`, and few of them stderr; the id keeps its type."""
    with listening(tmp_runtime) as listener:
        shim = groups.start([*MCPCTL, "connect", "gti", "--runtime-dir", str(tmp_runtime)])
        with accept(listener) as connection:
            read_line(connection)
            refusal = {"code": "unknown_server", "message": "No 'gti' here.", "exit_code": 1}
            connection.sendall(json.dumps({"error": refusal}).encode() + b"\n")
        out, said = shim.communicate(
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
            b'{"jsonrpc":"2.0","id":%s,"method":"initialize"}\n' % sent.encode()
        )
    assert json.loads(out) == {
        "jsonrpc": "2.0",
        "id": echoed,
        "error": {
            "code": -32603,
            "message": "No 'gti' here.",
            "data": {"code": "unknown_server"},
        },
    }
    assert out.endswith(b"\n")
    assert said == b"mcpctl: No 'gti' here.\n"
    assert shim.returncode == 1


def test_without_a_daemon_it_says_what_to_type(groups: Groups, tmp_runtime: Path) -> None:
    """Exit 4, the command, and the same sentence as the answer to the first request."""
    shim = groups.start([*MCPCTL, "--runtime-dir", str(tmp_runtime), "connect", "git"])
    out, said = shim.communicate(b'{"jsonrpc":"2.0","id":0,"method":"initialize"}\n')
    sentence = (
        f"No daemon answers on {tmp_runtime}/mcp.sock. Start it with "
        f"`mcp-supervisord start --runtime-dir {tmp_runtime}`."
    )
    assert said.decode() == f"mcpctl: {sentence}\n"
    assert json.loads(out)["error"]["message"] == sentence
    assert shim.returncode == 4


def test_a_daemon_that_hangs_up_without_an_answer_is_unreachable(
    groups: Groups, tmp_runtime: Path
) -> None:
    """As one that is killed in the middle of a start."""
    with listening(tmp_runtime) as listener:
        shim = groups.start([*MCPCTL, "connect", "git", "--runtime-dir", str(tmp_runtime)])
        accept(listener).close()
        _, said = shim.communicate()
    assert shim.returncode == 4
    assert said.startswith(b"mcpctl: The daemon ended the connection without an answer;")


def test_it_loads_a_handful_of_modules_and_no_more(tmp_runtime: Path) -> None:
    """Start-up is paid by each client for each server; `-c pass` may be exceeded 2.3 times."""
    bare = modules_of("-c", "pass")
    shim = modules_of(
        "-m", "supervisor.cli.entry", "connect", "git", "--runtime-dir", str(tmp_runtime)
    )
    allowed = {
        "_json",
        "_signal",
        "_socket",
        "_struct",
        "errno",
        "pwd",
        "runpy",
        "select",
        "struct",
    }
    ours = {
        "supervisor",
        "supervisor.cli",
        "supervisor.cli.copying",
        "supervisor.cli.light_json",
        "supervisor.cli.refusing",
        "supervisor.cli.shim",
        "supervisor.client.where",
        "supervisor.client",
        "supervisor.client.reach",
        "supervisor.core",
        "supervisor.core.exits",
        "supervisor.core.places",
        "supervisor.linux",
        "supervisor.linux.runtime_home",
    }
    # `-m` finds the module with importlib.util and runpy, which a console script does without
    by_runner = modules_of("-m", "this")
    assert shim - bare - by_runner - allowed == ours


def modules_of(*words: str) -> set[str]:
    """All modules that such an interpreter has imported, in the words of `-X importtime`."""
    done = subprocess.run(  # noqa: S603 - the command is the test's own
        [sys.executable, "-X", "importtime", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}
