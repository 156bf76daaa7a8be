"""Sweeps what an earlier run of the daemon has left: by exact identities and marks, nothing else.

A relay that is still alive is let finish: it runs the same stop by itself, on the same schedule.
What nobody holds any more is ended by pidfd, each process checked by pid and start time, or by
the mark of a record; nothing here is our child, so that death is seen through the pidfd and no
wait status exists. A record of another boot or pid namespace is deleted unused.
"""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread

from supervisor.core import stages
from supervisor.core.attribution import Identity
from supervisor.core.evidence import PIPES, Evidence
from supervisor.core.ids import InstanceId
from supervisor.core.report import CleanupReport, ExitStatus, FactName, Leftover, SignalRecord
from supervisor.linux.processes import (
    Wanted,
    command_line,
    describe,
    open_pidfd,
    read_stat,
    scan,
)
from supervisor.linux.signals import signal_pidfd
from supervisor.process.records import Record, Records
from supervisor.relay import message
from supervisor.telemetry.events import utc_now

SCAN_AGAIN_S: Final = 0.02
"""How soon a family is looked for again after its known members are gone: what they had forked
meanwhile carries their mark."""

EXITS: Final[tuple[tuple[FactName, str], ...]] = (
    ("server_exited", "server"),
    ("relay_exited", "relay"),
    ("anchor_exited", "anchor"),
)
PIPE_ENDS: Final[tuple[FactName, ...]] = (*PIPES, "control_closed")
PROVED: Final[tuple[FactName, ...]] = ("closing_receipt", "descendants_gone", "group_gone")


async def sweep(records: Records) -> tuple[CleanupReport, ...]:
    """Sweep every record, all at once; takes as long as the longest deadline at most."""
    found: list[CleanupReport] = []
    async with anyio.create_task_group() as tasks:
        for record in records.read_all():
            if record.here:
                tasks.start_soon(_sweep_one, records, record, found)
            else:
                records.remove(InstanceId(record.instance))
    return tuple(sorted(found, key=lambda report: report.instance))


async def _sweep_one(records: Records, record: Record, found: list[CleanupReport]) -> None:
    one = _Sweep(record)
    await one.run()
    receipt = records.receipt(InstanceId(record.instance))
    found.append(await one.report(receipt))
    records.remove(InstanceId(record.instance))


@dataclass
class _Sweep:
    """One record's family while it is swept."""

    record: Record
    started_at: float = field(default_factory=anyio.current_time)
    started_at_utc: str = field(default_factory=utc_now)
    signals: list[SignalRecord] = field(default_factory=list)
    ended: dict[Identity, str] = field(default_factory=dict)
    sent: dict[Identity, signal.Signals] = field(default_factory=dict)

    async def run(self) -> None:
        """Let living helpers finish, then end what is left, within the record's own spans."""
        await self._let_helpers_finish()
        schedule = stages.plan(
            anyio.current_time(), 0.0, self.record.kill_after_s / 2, self.record.deadline_s
        )
        while left := await self._left():
            now = anyio.current_time()
            stage = stages.stage_at(schedule, now)
            self._signal(left, signal.SIGKILL if stage >= stages.KILL else signal.SIGTERM)
            until = stages.next_instant(schedule, now)
            if until is None:
                return
            await self._wait_gone(left, min(until, now + stages.CUSTODY_RETRY_S))
            await anyio.sleep(SCAN_AGAIN_S)

    async def _let_helpers_finish(self) -> None:
        """A relay does by itself what a stop needs; one that is stopped or stuck is given up.

        Its anchor then sees its pipe close and does the same in half the time.
        """
        relay, anchor = self._helper("relay"), self._helper("anchor")
        if relay:
            self._signal(relay, signal.SIGCONT)
            await self._wait_gone(relay, self.started_at + self.record.deadline_s)
            self._signal(relay, signal.SIGKILL)
        await self._wait_gone(anchor, anyio.current_time() + self.record.deadline_s / 2)

    def _helper(self, role: str) -> list[Identity]:
        identity = self.record.identities().get(role)
        return [] if identity is None else [identity]

    async def _left(self) -> list[Identity]:
        """Living processes of the family: known by identity, or carrying its mark."""
        exact = frozenset(self.record.identities().values())
        wanted = Wanted(
            mark=self.record.instance,
            sessions=frozenset(),  # numbers may be a stranger's by now
            pgid=None,
            helpers=frozenset(),
            identities=exact,
        )
        found = await anyio.to_thread.run_sync(scan, (wanted,))
        return [stat.identity for stat in found[self.record.instance]]

    def _signal(self, left: Iterable[Identity], number: signal.Signals) -> None:
        for identity in left:
            if number == signal.SIGTERM and identity in self.sent:
                continue
            stat = read_stat(identity.pid)
            if stat is None or not stat.alive:
                continue  # a zombie is somebody else's to reap
            pidfd = open_pidfd(identity)
            if pidfd is None:
                continue
            if number != signal.SIGCONT:
                self.ended.setdefault(identity, command_line(identity.pid, stat.command))
            result = signal_pidfd(pidfd, number)
            if number == signal.SIGTERM:
                signal_pidfd(pidfd, signal.SIGCONT)
            os.close(pidfd)
            if self.sent.get(identity) != number:
                self.sent[identity] = number
                self.signals.append(
                    SignalRecord(
                        target="orphan",
                        pid=identity.pid,
                        signal=number.name,
                        at_s=round(anyio.current_time() - self.started_at, 6),
                        result=result.outcome,
                        errno=result.errno,
                    )
                )

    @staticmethod
    async def _wait_gone(identities: Iterable[Identity], until: float) -> None:
        for identity in identities:
            pidfd = open_pidfd(identity)
            if pidfd is None:
                continue
            try:
                with anyio.move_on_at(until):
                    await anyio.wait_readable(pidfd)
            finally:
                os.close(pidfd)

    async def report(self, receipt: bytes) -> CleanupReport:
        """What is known now, told like any other stop."""
        left = await self._left()
        evidence = self._evidence(receipt, left)
        survivors = tuple(named for i in left if (named := describe(i, "swept")) is not None)
        now = anyio.current_time()
        return CleanupReport(
            instance=self.record.instance,
            server=self.record.server,
            session=self.record.session,
            reason="daemon_lost",
            outcome="unconfirmed" if evidence.missing else "confirmed",
            deadline_s=self.record.deadline_s,
            deadline_shortened_by=None,
            elapsed_s=round(now - self.started_at, 6),
            requested_at_utc=self.started_at_utc,
            facts=evidence.as_facts(self.started_at),
            missing=evidence.missing,
            signals=tuple(self.signals),
            failed_signals=tuple(s for s in self.signals if s.result == "refused"),
            survivors=survivors,
            unattributed=(),
            leftovers_ended=tuple(
                Leftover(pid=identity.pid, command=command)
                for identity, command in self.ended.items()
                if identity not in left
            ),
            exit=ExitStatus(code=None, signal=None),
            last_stderr=(),
            amended_at_utc=None,
            released=False,
        )

    def _evidence(self, receipt: bytes, left: list[Identity]) -> Evidence:
        evidence = Evidence()
        now = anyio.current_time()
        for fact, role in EXITS:
            identity = self.record.identities().get(role)
            if identity is None:
                evidence = evidence.learn(fact, "not_applicable", now, "not in the record")
            elif identity not in left:
                evidence = evidence.learn(fact, "confirmed", now, "no such pid and start time")
        for fact in PIPE_ENDS:
            evidence = evidence.learn(fact, "not_applicable", now, "died with the earlier daemon")
        verb, fields = message.decode(receipt.strip())
        if verb == message.CLOSED and fields.get("echild") == fields.get("group_gone") == "1":
            for fact in PROVED:
                evidence = evidence.learn(fact, "confirmed", now, "the relay wrote it down")
        if left:
            pids = sorted(identity.pid for identity in left)
            return evidence.learn("scan_clean", "contradicted", now, f"alive: {pids}")
        said = "no process has the instance's mark or an identity of its record"
        evidence = evidence.learn("scan_clean", "confirmed", now, said)
        return evidence.learn("group_gone", "confirmed", now, said)
