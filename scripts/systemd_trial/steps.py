"""What is tried, in this order; each step stands on the ones before it.

A step gives findings: what was tried, what was seen, and whether that is right.
"""

import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Self

from scripts.systemd_trial.allowed import REPO
from scripts.systemd_trial.machine import CONFIGURATION, UNIT, Machine

KINDS: Final = ("escapee", "polite", "stubborn")
DEADLINE_S: Final = 2.0
BEYOND_DEADLINE_S: Final = 1.0
"""For all that is not the servers' stop: API, interpreter, systemd's own bookkeeping."""

AT_ONCE_S: Final = 1.0
"""A cgroup kill takes milliseconds; the rest is for a loaded machine."""

FAMILIES: Final = 1 + 1 + 3 * len(KINDS) + 1
"""Daemon, fork server, relay and anchor and server of each kind, and the one that escaped."""

_SERVER: Final = str(REPO / "scripts" / "systemd_trial" / "server.py")

SERVERS: Final[dict[str, dict[str, Any]]] = {
    kind: {
        "command": sys.executable,
        "args": ["-S", _SERVER, kind],
        "stop": {"deadlineMs": DEADLINE_S * 1000},
    }
    for kind in KINDS
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table."""

    tried: str
    seen: str
    right: bool


Step = Callable[[Machine], Iterator[Finding]]


def start(machine: Machine) -> Iterator[Finding]:
    """`systemctl start` comes back when the sockets answer, and not before."""
    began_at = monotonic()
    started = machine.systemctl("start", UNIT)
    took_s = monotonic() - began_at
    state = machine.property("ActiveState")
    code = started.returncode
    yield Finding("start", f"{state} after {took_s:.2f} s", code == 0 and state == "active")
    answered = machine.mcpctl("status").returncode == 0
    yield Finding("the control socket then answers", _yes(answered), answered)
    status = machine.property("StatusText")
    yield Finding("STATUS is shown", status, status == f"{len(SERVERS)} servers configured")
    fed = machine.property("WatchdogTimestampMonotonic") not in ("", "0")
    yield Finding("the watchdog is fed", _yes(fed), fed)
    user = machine.run("stat", "--format=%U %a", "/run/mcp-supervisor", "/var/lib/mcp-supervisor")
    seen = "; ".join(user.stdout.split("\n")).strip("; ")
    right = seen == "mcp-supervisor 700; mcp-supervisor 700"
    yield Finding("runtime and state directory", seen, right)


def start_servers(machine: Machine) -> Iterator[Finding]:
    """All of a server's family is in the unit's cgroup, the escaped process too."""
    failed = [kind for kind in KINDS if machine.mcpctl("start", kind).returncode != 0]
    yield Finding(f"start {', '.join(KINDS)}", "ready" if not failed else f"{failed}", not failed)
    count = len(machine.pids())
    yield Finding("processes in the cgroup", str(count), count == FAMILIES)


def reload(machine: Machine) -> Iterator[Finding]:
    """The daemon reads its configuration again, and nothing ends."""
    before, place = machine.main_pid(), machine.log.place()
    code = machine.systemctl("reload", UNIT).returncode
    answered = machine.mcpctl("status").returncode == 0
    state = machine.property("ActiveState")
    same = machine.main_pid() == before and len(machine.pids()) == FAMILIES
    (reloaded,) = machine.log.wait_for("configuration_reloaded", after=place)
    moved = [*reloaded["changed"], *reloaded["removed"]]
    right = code == 0 and answered and state == "active" and same and not moved
    seen = f"{state}, {'same processes' if same else 'other processes'}, moved: {moved or 'none'}"
    yield Finding("reload", seen, right)


def stop(machine: Machine) -> Iterator[Finding]:
    """The stubborn server costs its deadline and no more; nothing outlives the unit."""
    place = machine.log.place()
    with _Pinned(machine.pids()) as pinned:
        began_at = monotonic()
        machine.systemctl("stop", UNIT)
        took_s = monotonic() - began_at
        left = pinned.left(within_s=0)
    limit_s = DEADLINE_S + BEYOND_DEADLINE_S
    yield Finding(
        "stop, with a stubborn server",
        f"{took_s:.2f} s, of {limit_s:g} s allowed",
        took_s <= limit_s,
    )
    count = len(machine.pids()) + len(left)
    yield Finding("processes left", str(count), count == 0)
    (summary,) = machine.log.wait_for("daemon_stopped", after=place)
    confirmed, unconfirmed = summary["confirmed"], summary["unconfirmed"]
    seen = f"{confirmed} confirmed, {unconfirmed} unconfirmed"
    right = (confirmed, unconfirmed) == (len(KINDS), 0)
    yield Finding("the log's closing summary", seen, right)
    yield _result(machine)


def kill(machine: Machine) -> Iterator[Finding]:
    """A daemon that is killed takes its servers along, comes back, and says what it found."""
    before, place = int(machine.property("NRestarts")), machine.log.place()
    with _Pinned(machine.pids()) as pinned:
        began_at = monotonic()
        machine.systemctl("kill", "--kill-whom=main", "--signal=KILL", UNIT)
        left = pinned.left(within_s=AT_ONCE_S)
        took_s = monotonic() - began_at
    seen = f"all gone after {took_s * 1000:.0f} ms" if not left else f"{len(left)} left"
    yield Finding("kill -9 of the daemon: its cgroup", seen, not left)
    machine.log.wait_for("daemon_ready", after=place)
    # READY may be on its way yet; a start of a unit that is starting waits for it
    machine.systemctl("start", UNIT)
    state, restarts = machine.property("ActiveState"), int(machine.property("NRestarts"))
    seen = f"{state}, restarts: {restarts - before}"
    yield Finding("systemd starts it again", seen, state == "active" and restarts == before + 1)
    swept = machine.log.wait_for("instance_swept", after=place, count=len(KINDS))
    yield _sweep(swept)
    reports = json.loads(machine.mcpctl("reports", "--json").stdout or "{}").get("reports", [])
    lost = sorted(r["server"] for r in reports if r["reason"] == "daemon_lost")
    yield Finding("mcpctl reports, daemon_lost", ", ".join(lost), lost == list(KINDS))


def _sweep(swept: Sequence[Mapping[str, Any]]) -> Finding:
    """Nothing alive was found; whether that is enough to confirm is the daemon's to judge."""
    outcomes = sorted(f"{line['server']} {line['outcome']}" for line in swept)
    missing = sorted({fact for line in swept for fact in line["missing"]})
    seen = ", ".join(outcomes) + (f" (not known: {', '.join(missing)})" if missing else "")
    named = sorted(line["server"] for line in swept) == list(KINDS)
    return Finding("the next start's sweep", seen, named and "scan_clean" not in missing)


def leave_nothing(machine: Machine) -> Iterator[Finding]:
    """What belongs to a run goes with it; what belongs to the service stays."""
    gone = machine.run("test", "-e", "/run/mcp-supervisor").returncode == 1
    yield Finding("the runtime directory is gone", _yes(gone), gone)
    kept = machine.run("test", "-e", "/var/lib/mcp-supervisor").returncode == 0
    yield Finding("the state directory is kept", _yes(kept), kept)


def refuse(machine: Machine) -> Iterator[Finding]:
    """A wrong configuration is for its author: trying again would not mend it."""
    machine.configure('{"mcpServers": ')
    place = machine.log.place()
    started = machine.systemctl("start", UNIT).returncode
    code, state = machine.property("ExecMainStatus"), machine.property("ActiveState")
    restarts = machine.property("NRestarts")
    seen = f"{state}, exit code {code}, restarts: {restarts}"
    right = started != 0 and (state, code, restarts) == ("failed", "100", "0")
    yield Finding("start, with a broken configuration", seen, right)
    told = machine.log.tail()[place - machine.log.place() :]
    named = any(CONFIGURATION in line for line in told)
    yield Finding("the log names the file", _yes(named), named)


STEPS: Final[tuple[Step, ...]] = (
    start,
    start_servers,
    reload,
    kill,
    start_servers,
    stop,
    leave_nothing,
    refuse,
)


class _Pinned:
    """Processes that are held by pidfd, so that no later one is taken for them."""

    def __init__(self, pids: set[int]) -> None:
        self._held = ExitStack()
        self._pidfds = set[int]()
        for pid in pids:
            self._pidfds.add(os.pidfd_open(pid))
        for pidfd in self._pidfds:
            self._held.callback(os.close, pidfd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def left(self, within_s: float) -> set[int]:
        """Those that have not ended after so many seconds."""
        left, until_at = set(self._pidfds), monotonic() + within_s
        while left:
            ended, _, _ = select.select(list(left), [], [], max(0.0, until_at - monotonic()))
            left -= set(ended)
            if not ended:
                break
        return left


def _result(machine: Machine) -> Finding:
    state, result = machine.property("ActiveState"), machine.property("Result")
    right = (state, result) == ("inactive", "success")
    return Finding("what systemd says of it", f"{state}, {result}", right)


def _yes(right: bool) -> str:
    return "yes" if right else "no"
