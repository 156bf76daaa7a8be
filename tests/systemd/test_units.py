"""The unit files: systemd takes every line of them, and they say what the daemon relies on."""

import os
import shutil
import subprocess  # noqa: TID251 - systemd's own check, as a packager runs it
import sys
from pathlib import Path
from typing import Final

import pytest

from supervisor.core.launch import DEFAULT_DEADLINE_S

UNITS: Final = Path(__file__).parents[2] / "systemd"
SYSTEM: Final = UNITS / "mcp-supervisord.service"
USER: Final = UNITS / "user" / "mcp-supervisord.service"
MANAGERS: Final = pytest.mark.parametrize(
    ("manager", "unit"), [("--system", SYSTEM), ("--user", USER)], ids=["system", "user"]
)
VERIFY_S: Final = 30

FATAL_TO_SERVERS: Final = (
    "MemoryDenyWriteExecute",
    "RestrictNamespaces",
    "PrivateUsers",
    "ProcSubset",
    "ProtectProc",
    "ProtectControlGroups",
    "PrivateNetwork",
)


def settings(unit: Path) -> dict[str, str]:
    """The assignments of a unit, the last one of each name."""
    lines = (line for line in unit.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def verify(
    manager: str, unit: Path, directory: Path, extra: str = ""
) -> "subprocess.CompletedProcess[str]":
    """What systemd says of a copy that starts the program of this environment."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing")
    program = Path(sys.executable).with_name("mcp-supervisord")
    lines = [
        f"ExecStart={program} run" if line.startswith("ExecStart=") else line
        for line in unit.read_text("utf-8").splitlines()
    ]
    copy = directory / unit.name
    copy.write_text("\n".join(lines).replace("[Service]", f"[Service]\n{extra}"), "utf-8")
    return subprocess.run(  # noqa: S603 - a program of systemd's
        ["systemd-analyze", manager, "verify", "--recursive-errors=no", str(copy)],  # noqa: S607
        # the manager of a user needs such a place
        env={**os.environ, "XDG_RUNTIME_DIR": str(directory), "SYSTEMD_COLORS": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=VERIFY_S,
    )


@MANAGERS
def test_systemd_finds_nothing_to_say_about_a_unit(
    manager: str, unit: Path, tmp_path: Path
) -> None:
    """A word that it does not know is ignored at run time: hardening that is not there."""
    checked = verify(manager, unit, tmp_path)

    about_us = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert (checked.returncode, about_us) == (0, [])


@MANAGERS
def test_a_misspelt_setting_would_be_found(manager: str, unit: Path, tmp_path: Path) -> None:
    """Without --recursive-errors systemd-analyze prints unknown words and exits with 0."""
    checked = verify(manager, unit, tmp_path, extra="KilMode=mixed")

    assert checked.returncode != 0
    assert "KilMode" in checked.stderr


@MANAGERS
def test_a_unit_gives_the_daemon_the_time_and_the_means_for_its_own_stop(
    manager: str, unit: Path
) -> None:
    """Servers get their grace from the daemon; systemd's SIGKILL is for what it cannot end."""
    given = settings(unit)

    assert (given["Type"], given["NotifyAccess"]) == ("notify", "main"), manager
    assert given["KillMode"] == "mixed"
    assert float(given["TimeoutStopSec"]) > 2 * DEFAULT_DEADLINE_S
    assert given["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert (given["OOMPolicy"], given["Delegate"]) == ("continue", "yes")
    assert given["UMask"] == "0077"


@MANAGERS
def test_a_killed_daemon_is_started_again_and_finds_its_records(manager: str, unit: Path) -> None:
    """A refused configuration (100) and an unconfirmed stop (3) are for a person to look at."""
    given = settings(unit)

    assert given["Restart"] == "on-failure", manager
    assert given["RestartPreventExitStatus"].split() == ["3", "100"]
    assert (given["RuntimeDirectory"], given["RuntimeDirectoryPreserve"]) == (
        "mcp-supervisor",
        "restart",
    )


def test_the_system_unit_keeps_its_directories_to_itself() -> None:
    """Sockets, tokens and a configuration with secrets are nobody else's."""
    given = settings(SYSTEM)

    assert given["User"] == given["Group"] == "mcp-supervisor"
    assert given["RuntimeDirectoryMode"] == given["StateDirectoryMode"] == "0700"
    assert given["ConfigurationDirectoryMode"] == "0750"
    assert given["NoNewPrivileges"] == "yes"


@MANAGERS
@pytest.mark.parametrize("setting", FATAL_TO_SERVERS)
def test_hardening_that_breaks_servers_or_blinds_the_daemon_stays_out(
    manager: str, unit: Path, setting: str
) -> None:
    """Each has cost somebody a server; the unit's comment says which."""
    assert setting not in settings(unit), manager


def test_the_account_and_the_directory_of_the_configuration_fit_the_unit() -> None:
    """Systemd makes a configuration directory root's own, and the daemon could not read it."""
    account = (UNITS / "sysusers.d" / "mcp-supervisord.conf").read_text("utf-8")
    directories = (UNITS / "tmpfiles.d" / "mcp-supervisord.conf").read_text("utf-8")

    assert "\nu mcp-supervisor - " in account
    assert " /var/lib/mcp-supervisor " in account
    assert "\nd /etc/mcp-supervisor 0750 root mcp-supervisor" in directories
