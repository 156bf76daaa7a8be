"""`doctor` on what works as it stands: secrets in files, containers, deadlines, drop-ins."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cli.fake_daemon import STATUS, running
from cli.running_mcpctl import Ended, mcpctl
from cli.test_doctor import configure, findings, program
from leftovers import Groups
from supervisor.cli.doctor.deadline import service_of

SECRET: Final = "sk-live-0123456789abcdefghij"  # noqa: S105 - of no service
SERVICE: Final = "0::/system.slice/mcp-supervisord.service\n"


def test_a_literal_secret_is_a_warning_that_suggests_a_reference(tmp_runtime: Path) -> None:
    """Its place and never its value; the daemon would start the server all the same."""
    configure(
        tmp_runtime,
        one={"command": "/bin/sh", "env": {"API_KEY": SECRET}},
        two={"command": "/bin/sh", "args": ["--token", SECRET]},
        three={"command": "/bin/sh", "env": {"API_KEY": "${MCPCTL_TEST_KEY}"}},
    )
    ended = mcpctl(tmp_runtime, "doctor", "--json", environ={"MCPCTL_TEST_KEY": SECRET})
    file = tmp_runtime / "config.json"
    found = findings(ended, "secrets")
    assert ended.code == 0
    assert SECRET not in ended.out
    assert [(f["level"], f["server"], f["message"]) for f in found] == [
        ("warning", "one", f"env.API_KEY looks like a secret that stands in {file}"),
        ("warning", "two", f"args[1] looks like a secret that stands in {file}"),
    ]
    assert str(found[0]["hint"]).startswith('Write "${API_KEY}", ')
    assert str(found[1]["hint"]).startswith('Write a reference such as "${NAME}", ')
    only = mcpctl(tmp_runtime, "doctor", "two", "--json")
    assert [f["server"] for f in findings(only, "secrets")] == ["two"]


def test_a_docker_run_without_its_options_is_a_warning(tmp_runtime: Path) -> None:
    """It starts, but does not hear its stdin close, or leaves a container behind at each stop."""
    docker = str(program(tmp_runtime / "docker"))
    configure(
        tmp_runtime,
        bare={"command": docker, "args": ["run", "mcp/git"]},
        right={"command": docker, "args": ["run", "-i", "--rm", "mcp/git"]},
        half={"command": docker, "args": ["run", "-i", "mcp/git"]},
    )
    found = findings(mcpctl(tmp_runtime, "doctor", "--json"), "launch")
    warned = {f["server"]: f for f in found if f["level"] == "warning"}
    assert sorted(map(str, warned)) == ["bare", "half"]
    assert warned["bare"]["message"] == "its `run` lacks -i and --rm"
    assert warned["half"]["hint"] == (
        "Add --rm before the image: without --rm each stop leaves a container behind."
    )
    assert [f["level"] for f in found if f["server"] == "right"] == ["ok", "ok"]


def test_drop_ins_are_named_where_there_is_no_main_file(tmp_runtime: Path) -> None:
    """A daemon with nothing but drop-ins is configured, and one wants to see from where."""
    folder = tmp_runtime / "config.d"
    folder.mkdir()
    for name in ("10-one", "20-two"):
        # a record without uid warns where root runs the tests
        record = {"command": str(program(tmp_runtime / "server")), "uid": os.geteuid()}
        (folder / f"{name}.json").write_text(json.dumps({"mcpServers": {name: record}}))
    (found,) = findings(mcpctl(tmp_runtime, "doctor", "--json"), "configuration")
    assert found["level"] == "ok"
    assert found["message"] == f"{folder}/10-one.json, {folder}/20-two.json are right; servers: 2"


@pytest.mark.parametrize(
    ("settings", "server_ms", "budget"),
    [
        ({}, 25_000, None),
        ({}, 40_000, "40 s"),
        ({"shutdownTimeoutMs": 25_001}, 5_000, "25.001 s"),
        ({"shutdownTimeoutMs": 10_000}, 40_000, None),
    ],
)
def test_a_stop_that_the_service_manager_would_cut_short_is_a_warning(
    tmp_runtime: Path, groups: Groups, settings: object, server_ms: int, budget: str | None
) -> None:
    """SIGKILL to all after 30 s: no grace for what is left, and no report of it."""
    servers = {"slow": {"command": "/bin/sh", "stop": {"deadlineMs": server_ms}}}
    document = {"mcpServers": servers, "supervisor": settings}
    (tmp_runtime / "config.json").write_text(json.dumps(document))
    found = findings(doctor_beside_service(tmp_runtime, groups), "deadline")
    if budget is None:
        assert found == []
    else:
        assert [f["level"] for f in found] == ["warning"]
        assert f"stop may take {budget}, " in str(found[0]["message"])
        assert "TimeoutStopSec=" in str(found[0]["hint"])


def doctor_beside_service(folder: Path, groups: Groups) -> Ended:
    """Run it beside a daemon that systemd has started, as far as its environment tells."""
    script = "export SYSTEMD_EXEC_PID=$$; exec sh -c 'echo up; read line'"
    process = groups.start(["/bin/sh", "-c", script])
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    with running(folder) as fake:
        daemon = replace(STATUS.daemon, pid=process.pid)
        fake.answer("GET", "/v1/status", replace(STATUS, daemon=daemon, servers=(), instances=()))
        ended = mcpctl(folder, "doctor", "--json")
    process.stdin.close()
    process.wait()
    return ended


@pytest.mark.parametrize(
    ("cgroups", "environ", "unit"),
    [
        (SERVICE, {}, "mcp-supervisord.service"),
        ("0::/system.slice/own.service/daemon\n", {}, "own.service"),
        ("1:name=systemd:/system.slice/own.service\n0::/\n", {}, "own.service"),
        ("0::/user.slice/user-1.slice/user@1.service/app.slice/vte.scope\n", {}, None),
        ("0::/user.slice/session-1.scope\n", {"INVOCATION_ID": "f"}, None),
        ("0::/\n", {"INVOCATION_ID": "f"}, "mcp-supervisord.service"),
        ("", {"SYSTEMD_EXEC_PID": "7"}, "mcp-supervisord.service"),
        ("", {"SYSTEMD_EXEC_PID": "8"}, None),
        ("0::/\n", {}, None),
    ],
)
def test_a_service_is_told_from_a_terminal(
    cgroups: str, environ: Mapping[str, str], unit: str | None
) -> None:
    """Whoever types in a desktop's terminal inherits the variables of the service around it."""
    assert service_of(7, cgroups, environ) == unit


def test_without_a_daemon_no_deadline_is_too_long(tmp_runtime: Path) -> None:
    """Nobody knows then who will start it; `mcp-supervisord run` in a terminal has no limit."""
    configure(tmp_runtime, slow={"command": "/bin/sh", "stop": {"deadlineMs": 40_000}})
    environ = {"INVOCATION_ID": "f" * 32, "SYSTEMD_EXEC_PID": str(os.getpid())}
    ended = mcpctl(tmp_runtime, "doctor", "--json", environ=environ)
    assert findings(ended, "deadline") == []
