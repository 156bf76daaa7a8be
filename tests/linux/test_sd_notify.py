"""Datagrams to the service manager, received by real sockets."""

import os
import socket
from pathlib import Path

import pytest

from supervisor.linux.sd_notify import notify, watchdog_period_s


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_lines_arrive_as_one_datagram(tmp_runtime: Path, kind: str) -> None:
    """The manager gives either kind of address; `@` stands for the leading NUL."""
    name = str(tmp_runtime / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name if kind == "path" else f"\0{name}")
        address = name if kind == "path" else f"@{name}"

        assert notify("READY=1", "STATUS=up", environ={"NOTIFY_SOCKET": address})

        assert manager.recv(4096) == b"READY=1\nSTATUS=up"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:3"}])
def test_without_a_service_manager_nothing_is_sent(environ: dict[str, str]) -> None:
    """The daemon calls it anywhere, also in a container or on a terminal."""
    assert not notify("READY=1", environ=environ)


def test_a_manager_that_is_gone_is_no_error(tmp_runtime: Path) -> None:
    """A daemon does not stop because nobody listens."""
    assert not notify("READY=1", environ={"NOTIFY_SOCKET": str(tmp_runtime / "absent")})


def test_the_watchdog_is_fed_twice_as_often_as_it_asks() -> None:
    """Once in the whole period would race with it; sd_watchdog_enabled(3) advises half."""
    mine = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}

    assert watchdog_period_s(mine) == 15.0
    assert watchdog_period_s({"WATCHDOG_USEC": "30000000"}) == 15.0


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
    ],
)
def test_no_watchdog_and_somebody_elses_are_not_fed(environ: dict[str, str]) -> None:
    """The variables are inherited; WATCHDOG_PID says whom they are meant for."""
    assert watchdog_period_s(environ) is None
