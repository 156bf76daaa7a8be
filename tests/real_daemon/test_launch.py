"""Servers that cannot be started: one sentence each, at once, and nothing left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from real_daemon.daemon_fixture import Daemon, record, running_daemon

HAT = "#!/bin/sh\nexec cat\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs that are on the PATH of a shell, and not on the daemon's."""
    made = tmp_path_factory.mktemp("bin")
    for name, text, mode in (
        ("only-here", HAT, 0o755),
        ("no-x", HAT, 0o644),
        ("no-interpreter", "#!/nowhere/at/all\n", 0o755),
        ("no-program", "just text\n", 0o755),
    ):
        (made / name).write_text(text, "ascii")
        (made / name).chmod(mode)
    return made


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Daemon]:
    """A daemon with a PATH as a service has it."""
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    records = {
        "missing": record("mcp-no-such-command", "--token", "hunter2hunter2"),
        "shellpath": record("only-here"),
        "own-path": record("only-here", env=path),
        "full-path": record(str(folder / "only-here")),
        "no-file": record(str(folder / "nothing")),
        "no-x": record(str(folder / "no-x")),
        "no-interpreter": record(str(folder / "no-interpreter")),
        "no-program": record(str(folder / "no-program")),
        "folder": record(str(folder)),
        "no-cwd": {**record("cat"), "cwd": str(folder / "nowhere")},
        "no-variable": record("cat", "${MCP_TEST_NOT_SET}"),
        "cat": record("cat"),
    }
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    with running_daemon(records, environ=environ) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", ("command 'mcp-no-such-command' not found", "/usr/local/bin:/usr/bin:/bin")),
        ("shellpath", ("command 'only-here' not found", "full path", "PATH in the server's `env`")),
        ("no-file", ("not found", "/nothing")),
        ("no-x", ("is not executable", "chmod +x")),
        ("no-interpreter", ("interpreter", "does not")),
        ("no-program", ("is not a program",)),
        ("folder", ("is a directory",)),
        ("no-cwd", ("working directory", "does not exist")),
    ],
)
def test_a_launch_failure_has_a_sentence_of_its_own(
    daemon: Daemon, name: str, words: tuple[str, ...]
) -> None:
    """`spawn npx ENOENT` tells nobody that the service's PATH is not the shell's."""
    after = daemon.log.place()
    done = daemon.mcpctl("start", name)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"Server '{name}' cannot be started" in done.stderr
    assert [word for word in words if word not in done.stderr] == []
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr
    server = daemon.server(name)
    assert server["state"] == "failed"
    assert server["instances"] == []
    assert server["error"] in done.stderr
    assert daemon.instances() == []
    # tried once: such a failure does not mend itself, and its helpers' end is no loss of a relay
    assert len(daemon.log.events("start_failed", after, server=name)) == 1
    reports = [r for r in daemon.api("GET", "/v1/reports")["reports"] if r["server"] == name]
    assert {report["reason"] for report in reports} == {"start_failed"}


def test_a_launch_failure_is_a_problem_with_fields(daemon: Daemon) -> None:
    """Callers read fields, never text (design section 12)."""
    problem = daemon.mcpctl_json("start", "no-x", code=1)
    assert (problem["code"], problem["status"]) == ("launch_failed", 502)
    assert (problem["server"], problem["step"]) == ("no-x", "exec")
    assert problem["path"].endswith("/no-x")


@pytest.mark.parametrize("name", ["own-path", "full-path"])
def test_the_lookup_uses_the_path_of_the_server(daemon: Daemon, name: str) -> None:
    """An `env` with PATH, or a full path, is the way out that the sentence names; so it works."""
    daemon.start_server(name)
    assert daemon.stop_server(name)["outcome"] == "confirmed"


def test_a_missing_variable_keeps_that_one_server_from_starting(daemon: Daemon) -> None:
    """It names server, field and variable, and is a matter of the configuration."""
    done = daemon.mcpctl("start", "no-variable")
    assert done.returncode == 100
    assert [w for w in ("no-variable", "args", "MCP_TEST_NOT_SET") if w not in done.stderr] == []
    daemon.start_server("cat")
    assert daemon.stop_server("cat")["outcome"] == "confirmed"


def test_doctor_says_what_would_help(daemon: Daemon, folder: Path) -> None:
    """It looks in the daemon's PATH, and knows that the shell's has the program."""
    shell = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = daemon.mcpctl("doctor", "shellpath", environ=shell)
    assert done.returncode == 1
    assert "command 'only-here' not found in PATH /usr/local/bin:/usr/bin:/bin" in done.stdout
    assert f"Your shell finds it as {folder}/only-here" in done.stdout
    assert daemon.mcpctl("doctor", "cat").returncode == 0


def test_doctor_answers_in_json_as_well(daemon: Daemon) -> None:
    """The same findings, for scripts."""
    document = daemon.mcpctl_json("doctor", code=1)
    assert document.keys() == {"findings", "ok"}
    assert document["ok"] is False
    assert all(
        found.keys() == {"level", "check", "server", "message", "hint"}
        for found in document["findings"]
    )
    errors = {found["server"] for found in document["findings"] if found["level"] == "error"}
    broken = {"missing", "shellpath", "no-file", "no-x", "no-interpreter", "folder", "no-cwd"}
    assert broken | {"no-variable"} <= errors
    assert {"cat", "own-path", "full-path"}.isdisjoint(errors)
    assert "hunter2" not in str(document)
