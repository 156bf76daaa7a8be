"""`doctor`: what keeps servers from starting, found without starting anything."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cli.fake_daemon import INSTANCE_VIEW, STATUS, running
from cli.running_mcpctl import Ended, mcpctl

Finding = dict[str, str | None]
PROGRAM: Final = "#!/bin/sh\nexit 0\n"


def program(file: Path, text: str = PROGRAM, mode: int = 0o755) -> Path:
    """A file that can be run, or cannot."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    file.chmod(mode)
    return file


def configure(folder: Path, **servers: object) -> None:
    """Write the configuration that the command is told of."""
    (folder / "config.json").write_text(json.dumps({"mcpServers": servers}))


def findings(ended: Ended, check: str) -> list[Finding]:
    """What was found by one check, without that it was that check."""
    found = json.loads(ended.out)["findings"]
    return [
        {key: value for key, value in finding.items() if key != "check"}
        for finding in found
        if finding["check"] == check
    ]


def test_a_server_that_starts_is_said_to_and_with_what(tmp_runtime: Path) -> None:
    """Exit 0, one line for each finding; warnings do not count."""
    file = program(tmp_runtime / "bin" / "fine-server")
    configure(tmp_runtime, fine={"command": "fine-server", "env": {"PATH": str(file.parent)}})
    ended = mcpctl(tmp_runtime, "doctor", "fine")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert f"ok       launch         fine: starts {file}" in lines
    assert lines[-1].startswith("0 errors, ")


def test_a_command_that_is_nowhere_names_the_path_that_was_searched(tmp_runtime: Path) -> None:
    """`spawn npx ENOENT` without the PATH is what people could not understand."""
    env = {"PATH": "/nowhere:/no/where"}
    configure(tmp_runtime, missing={"command": "mcp-no-such-command", "env": env})
    ended = mcpctl(tmp_runtime, "doctor", "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["ok"] is False
    assert findings(ended, "launch") == [
        {
            "level": "error",
            "server": "missing",
            "message": "command 'mcp-no-such-command' not found in PATH /nowhere:/no/where",
            "hint": 'Install it, or give a full path as command or an env entry "PATH" that holds '
            "it.",
        }
    ]


def test_a_command_that_only_the_shell_finds_gets_its_full_path_as_hint(tmp_runtime: Path) -> None:
    """The usual case: nvm or a virtual environment on the PATH of the terminal only."""
    file = program(tmp_runtime / "mine" / "only-mine")
    configure(tmp_runtime, shellpath={"command": "only-mine", "env": {"PATH": "/nowhere"}})
    shell = {"PATH": f"{os.environ['PATH']}:{file.parent}"}
    (found,) = findings(mcpctl(tmp_runtime, "doctor", "--json", environ=shell), "launch")
    assert found["message"] == "command 'only-mine' not found in PATH /nowhere"
    assert found["hint"] == (
        f"Your shell finds it as {file}: give that full path as command, or an env entry "
        f'"PATH" that holds {file.parent}.'
    )


def test_the_running_daemons_environment_is_the_one_that_counts(tmp_runtime: Path) -> None:
    """What the shell has on its PATH says nothing about the daemon's (this process plays it)."""
    file = program(tmp_runtime / "mine" / "only-mine")
    configure(tmp_runtime, shellpath={"command": "only-mine"})
    shell = {"PATH": f"{os.environ['PATH']}:{file.parent}"}
    alone = findings(mcpctl(tmp_runtime, "doctor", "--json", environ=shell), "launch")
    assert [found["level"] for found in alone] == ["ok"]
    with running(tmp_runtime) as fake:
        daemon = replace(STATUS.daemon, pid=os.getpid())
        fake.answer("GET", "/v1/status", replace(STATUS, daemon=daemon, servers=(), instances=()))
        beside = findings(mcpctl(tmp_runtime, "doctor", "--json", environ=shell), "launch")
    assert [found["level"] for found in beside] == ["error"]
    assert str(beside[0]["hint"]).startswith(f"Your shell finds it as {file}:")


def not_executable(folder: Path) -> tuple[Path, str]:
    """Forgotten chmod."""
    file = program(folder / "plain", mode=0o644)
    return file, f"command {file} is not executable"


def missing_file(folder: Path) -> tuple[Path, str]:
    """A full path that is wrong."""
    return folder / "gone", f"command {folder / 'gone'} does not exist"


def directory(folder: Path) -> tuple[Path, str]:
    """The folder of the program instead of the program."""
    (folder / "dir").mkdir()
    return folder / "dir", f"command {folder / 'dir'} is a directory"


def no_interpreter(folder: Path) -> tuple[Path, str]:
    """A virtual environment that was moved."""
    file = program(folder / "moved", "#!/old/place/python\n")
    return file, f"the interpreter of {file}, /old/place/python, does not exist"


def windows_lines(folder: Path) -> tuple[Path, str]:
    """The kernel looks for an interpreter whose name ends with a carriage return."""
    file = program(folder / "dos", "#!/bin/sh\r\n")
    return file, f"the first line of {file} ends with a carriage return, so no interpreter is found"


def env_interpreter(folder: Path) -> tuple[Path, str]:
    """Node, with nvm: the script is found and its interpreter is not."""
    file = program(folder / "script", "#!/usr/bin/env -S no-such-node --flag\n")
    return file, f"the interpreter of {file}, no-such-node, is not found in PATH /usr/bin"


@pytest.mark.parametrize(
    "broken",
    [
        not_executable,
        missing_file,
        directory,
        no_interpreter,
        windows_lines,
        env_interpreter,
    ],
)
def test_what_the_kernel_would_refuse_is_told_beforehand(
    tmp_runtime: Path, broken: Callable[[Path], tuple[Path, str]]
) -> None:
    """Six different faults, which execve reports with three numbers."""
    file, message = broken(tmp_runtime)
    configure(tmp_runtime, broken={"command": str(file), "env": {"PATH": "/usr/bin"}})
    (found,) = findings(mcpctl(tmp_runtime, "doctor", "--json"), "launch")
    assert (found["level"], found["message"]) == ("error", message)
    assert found["hint"]


def test_a_missing_working_directory_is_told(tmp_runtime: Path) -> None:
    """It is refused before the command is looked at, with the same errno."""
    configure(tmp_runtime, lost={"command": "/bin/sh", "cwd": "/no/such/folder"})
    (found,) = findings(mcpctl(tmp_runtime, "doctor", "--json"), "launch")
    assert found["message"] == "the working directory /no/such/folder does not exist"


def test_a_disabled_server_is_left_in_peace(tmp_runtime: Path) -> None:
    """Nobody wants to start it."""
    configure(tmp_runtime, off={"command": "mcp-no-such-command", "enabled": False})
    ended = mcpctl(tmp_runtime, "doctor", "--json")
    assert (ended.code, findings(ended, "launch")) == (0, [])
    assert findings(ended, "server")[0]["message"] == "is disabled by its record"


def test_a_record_with_a_problem_is_told_as_the_daemon_would(tmp_runtime: Path) -> None:
    """A variable that is not set keeps just this server from starting."""
    configure(tmp_runtime, token={"command": "/bin/sh", "env": {"T": "${MCPCTL_TEST_UNSET}"}})
    ended = mcpctl(tmp_runtime, "doctor", "--json")
    (found,) = findings(ended, "server")
    assert (ended.code, found["level"], found["server"]) == (1, "error", "token")
    assert "MCPCTL_TEST_UNSET" in str(found["message"])


def test_a_broken_configuration_is_exit_100_and_the_rest_is_looked_at(tmp_runtime: Path) -> None:
    """The machine may have its own fault; both are worth knowing at once."""
    (tmp_runtime / "config.json").write_text('{"mcpServers": {"a": {"command": 7}}')
    ended = mcpctl(tmp_runtime, "doctor", "--json")
    assert ended.code == 100
    assert [found["level"] for found in findings(ended, "configuration")] == ["error"]
    assert findings(ended, "kernel")


def test_an_unknown_name_lists_the_known_ones(tmp_runtime: Path) -> None:
    """A typing mistake is no finding about the machine."""
    configure(tmp_runtime, git={"command": "/bin/sh"})
    ended = mcpctl(tmp_runtime, "doctor", "gti")
    assert ended == (1, "", "mcpctl: No server is called 'gti'; configured: git.\n")


def test_without_a_daemon_that_is_a_warning_with_what_to_type(tmp_runtime: Path) -> None:
    """Doctor is for the time before the first start as well."""
    configure(tmp_runtime)
    ended = mcpctl(tmp_runtime, "doctor", "--json")
    assert ended.code == 0
    assert findings(ended, "daemon") == [
        {
            "level": "warning",
            "server": None,
            "message": f"No daemon answers on {tmp_runtime}/control.sock",
            "hint": "Start it with `mcp-supervisord start`, or its systemd unit.",
        }
    ]


def test_what_a_running_daemon_suffers_from_is_told(tmp_runtime: Path) -> None:
    """Failed servers, quarantined instances, and another configuration than the one looked at."""
    configure(tmp_runtime)
    failed = replace(STATUS.servers[0], state="failed", error="Server 'docs' cannot be started.")
    lost = replace(INSTANCE_VIEW, state="unconfirmed", quarantined=True)
    with running(tmp_runtime) as fake:
        (tmp_runtime / "control.sock").chmod(0o600)
        fake.answer("GET", "/v1/status", replace(STATUS, servers=(failed,), instances=(lost,)))
        ended = mcpctl(tmp_runtime, "doctor", "--json")
    assert ended.code == 1
    assert findings(ended, "daemon")[0]["message"] == "mcp-supervisord 0.1.0 answers, pid 4700"
    assert findings(ended, "server")[0]["message"] == (
        "the daemon says: Server 'docs' cannot be started."
    )
    (cleanup,) = findings(ended, "cleanup")
    assert "mcpctl release 0123456789abcdef" in str(cleanup["hint"])
    assert any(
        "the daemon runs with" in str(f["message"]) for f in findings(ended, "configuration")
    )


def test_an_error_that_is_found_here_is_not_repeated_in_the_daemons_words(
    tmp_runtime: Path,
) -> None:
    """Two lines for one fault look like two faults."""
    configure(tmp_runtime, docs={"command": "/no/such/program"})
    failed = replace(STATUS.servers[0], state="failed", error="Server 'docs' cannot be started.")
    with running(tmp_runtime) as fake:
        fake.answer("GET", "/v1/status", replace(STATUS, servers=(failed,), instances=()))
        ended = mcpctl(tmp_runtime, "doctor", "--json")
    assert len(findings(ended, "launch")) == 1
    assert findings(ended, "server") == []


def test_sockets_and_folders_that_others_may_enter_are_errors(tmp_runtime: Path) -> None:
    """Whoever reaches the socket can start programs as the daemon's user."""
    configure(tmp_runtime)
    (tmp_runtime / "state").mkdir(mode=0o700)
    with running(tmp_runtime) as fake:
        fake.answer("GET", "/v1/status", replace(STATUS, servers=(), instances=()))
        control = tmp_runtime / "control.sock"
        control.chmod(0o666)
        tmp_runtime.chmod(0o755)
        opened = mcpctl(tmp_runtime, "doctor", "--json")
        control.chmod(0o600)
        tmp_runtime.chmod(0o700)
        closed = mcpctl(tmp_runtime, "doctor", "--json")
    assert opened.code == 1
    assert [f["message"] for f in findings(opened, "folders")] == [
        f"the folder {tmp_runtime} has mode 0755 instead of 0700",
        f"the folder {tmp_runtime}/state has mode 0700",
    ]
    assert [f["message"] for f in findings(opened, "sockets")] == [
        f"the socket {control} has mode 0666 instead of 0600"
    ]
    assert [f["hint"] for f in findings(opened, "sockets")] == [f"`chmod 600 {control}`"]
    assert {f["level"] for f in findings(closed, "folders") + findings(closed, "sockets")} == {"ok"}
    assert closed.code == 0


def test_the_unrelated_distribution_supervisor_is_an_error(tmp_runtime: Path) -> None:
    """It uses the same package name, so one of the two does not work."""
    metadata = tmp_runtime / "site" / "supervisor-4.2.5.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: supervisor\nVersion: 4.2.5\n")
    configure(tmp_runtime)
    environ = {"PYTHONPATH": str(tmp_runtime / "site")}
    ended = mcpctl(tmp_runtime, "doctor", "--json", environ=environ)
    (found,) = findings(ended, "installation")
    assert (ended.code, found["level"]) == (1, "error")
    assert "supervisor 4.2.5" in str(found["message"])
