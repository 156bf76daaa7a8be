"""A daemon that has started and stopped a hundred servers holds no more than one that has not."""

import select
from pathlib import Path

from real_daemon.clients import Shim, note_line
from real_daemon.conftest import StartDaemon
from real_daemon.daemon_fixture import Daemon, record

WARM_UP = 20
"""Cycles after which caches and allocators have what they need."""

SETTLED_LOOKS = 30

CYCLES = 100
GROWTH_KIB = 6 * 1024
"""Kept reports and events are some 20 KB a cycle, by design and bounded; a leak is more."""


def holdings(daemon: Daemon) -> dict[str, int]:
    """What the daemon holds once it has closed the connections of clients that have just left.

    Nothing announces that to us, so it is looked at until it stays the same for a while.
    """
    before, same = look(daemon), 0
    for _ in range(100 * SETTLED_LOOKS):
        now = look(daemon)
        same = same + 1 if now == before else 0
        before = now
        if same == SETTLED_LOOKS:
            break
        select.select([], [], [], 0.005)
    return before


def look(daemon: Daemon) -> dict[str, int]:
    """Descriptors, threads, living processes and records of the daemon, at this instant."""
    return {
        "descriptors": len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())),
        "threads": status_number(daemon, "Threads"),
        "processes": len(daemon.alive()),
        "records": len(list((daemon.runtime_dir / "instances").iterdir())),
    }


def status_number(daemon: Daemon, name: str) -> int:
    """A number in /proc/PID/status: proc_pid_status(5)."""
    for line in Path(f"/proc/{daemon.pid}/status").read_text("ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


def test_a_hundred_starts_and_stops_leave_nothing_in_the_daemon(start_daemon: StartDaemon) -> None:
    """No descriptor, thread, process, record or megabyte is kept of an instance that is gone."""
    daemon = start_daemon({"cat": record("cat"), "exits": record("true")})

    def cycle() -> None:
        daemon.start_server("cat")
        assert daemon.stop_server("cat")["outcome"] == "confirmed"

    for _ in range(WARM_UP):
        cycle()
    before, resident = holdings(daemon), status_number(daemon, "VmRSS")
    for _ in range(CYCLES):
        cycle()
    assert holdings(daemon) == before
    assert status_number(daemon, "VmRSS") - resident < GROWTH_KIB


def test_clients_that_come_and_go_leave_nothing_in_the_daemon(start_daemon: StartDaemon) -> None:
    """Neither those that leave politely nor those that are killed, nor failed starts."""
    daemon = start_daemon({"cat": record("cat"), "missing": record("mcp-no-such-command")})

    def cycle(*, killed: bool) -> None:
        with Shim(daemon, "cat") as shim:
            shim.send(note_line())
            assert shim.read_line() == note_line()
            (instance,) = daemon.instances()
            if killed:
                shim.process.kill()
            else:
                shim.leave()
            assert daemon.wait_judged(instance["id"])["outcome"] == "confirmed"
            shim.process.wait()
        daemon.api("POST", "/v1/servers/missing/start", {}, status=502)

    cycle(killed=False)
    cycle(killed=True)
    before = holdings(daemon)
    for turn in range(12):
        cycle(killed=bool(turn % 2))
    assert holdings(daemon) == before
