"""The server of `scripts/run`: what a newcomer sees first must not be the part that is broken."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ground_truth import GroundTruth
from leftovers import Groups

PROGRAM = Path(__file__).parents[1] / "scripts" / "demo_server.py"
ARGV = [sys.executable, "-S", "-E", str(PROGRAM)]


def ask(groups: Groups, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """Start the server, send requests with ids from 0 on, close its stdin, collect the answers."""
    numbered = [{"jsonrpc": "2.0", "id": i, **request} for i, request in enumerate(requests)]
    lines = b"".join(json.dumps(request).encode() + b"\n" for request in numbered)
    process = groups.start(ARGV)
    output, errors = process.communicate(lines, timeout=10)
    assert (process.returncode, errors) == (0, b"")
    answers = [json.loads(line) for line in output.splitlines()]
    assert [answer["id"] for answer in answers] == list(range(len(requests)))
    return answers


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ],
)
def test_it_agrees_to_the_revisions_it_knows(wanted: str, given: str, groups: Groups) -> None:
    """An unknown revision is answered with the newest that it knows, as the specification says.

    Source: MCP 2025-11-25, lifecycle, version negotiation.
    """
    request = {"method": "initialize", "params": {"protocolVersion": wanted}}
    (answer,) = ask(groups, request)

    assert answer["result"]["protocolVersion"] == given


def test_unknown_methods_are_refused_by_the_right_code(groups: Groups) -> None:
    """A client that tries `server/discover` first falls back to `initialize` on that."""
    refused, pong = ask(groups, {"method": "server/discover"}, {"method": "ping"})

    assert refused["error"]["code"] == -32601
    assert pong["result"] == {}


def test_its_tools_do_what_they_say(groups: Groups) -> None:
    """Including the answer to a call that is wrong, which must not end the server."""

    def call(name: str, **arguments: object) -> dict[str, Any]:
        return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}

    listed, total, text, missing, unknown, wrong = ask(
        groups,
        {"method": "tools/list"},
        call("add", a=2, b=3),
        call("echo", text="hello"),
        call("echo"),
        call("subtract", a=2, b=3),
        call("add", a=2, b="3"),
    )

    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add", "echo", "spawn_helper"]
    assert total["result"]["content"] == [{"type": "text", "text": "5"}]
    assert text["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert {answer["error"]["code"] for answer in (missing, unknown, wrong)} == {-32602}


@pytest.mark.usefixtures("subreaper")
def test_its_helper_outlives_it_unless_somebody_owns_the_family(
    groups: Groups, truth: GroundTruth
) -> None:
    """Otherwise the demonstration would show nothing."""
    process = groups.start(truth.join_argv([*ARGV, "--with-helper"]))
    output, _ = process.communicate(b'{"id": 1, "method": "ping"}\n', timeout=10)
    assert json.loads(output)["result"] == {}

    (helper,) = truth.kill_all()
    assert helper.pid != process.pid
