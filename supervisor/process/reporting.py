"""Writes the cleanup report of an instance whose verdict is in."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from supervisor.core.redaction import mask, redact_argv
from supervisor.core.report import CleanupReport, ExitStatus, Fact, Leftover, Survivor
from supervisor.core.shutdown_events import Stage
from supervisor.linux.processes import describe
from supervisor.process.family import Family
from supervisor.process.hearing import Heard
from supervisor.process.instance import Instance
from supervisor.telemetry.events import utc_now

if TYPE_CHECKING:
    from supervisor.core.attribution import Identity

MAX_SURVIVORS: Final = 1000
"""More names help nobody, and the report must stay printable."""


def write_report(
    instance: Instance, family: Family, heard: Heard, secrets: frozenset[str]
) -> CleanupReport:
    """The report as things stand now.

    A survivor is whatever is known to be alive: named by the relay before the deadline, found by
    a scan, known by identity, or inherited by the daemon.
    """
    state = instance.state
    confirmed = state.stage is Stage.CONFIRMED
    requested_at = state.schedule.requested_at if state.schedule else instance.started_at
    survivors = () if confirmed else _survivors(instance, family, heard)
    before = instance.report
    exited = family.exit
    return CleanupReport(
        instance=instance.id,
        server=instance.server,
        session=instance.session,
        reason=state.reason,
        outcome="confirmed" if confirmed else "unconfirmed",
        deadline_s=_deadline_s(instance),
        deadline_shortened_by=state.shortened_by,
        elapsed_s=round(instance.settled_at - requested_at, 6),
        requested_at_utc=instance.requested_at_utc,
        facts=_facts(instance, family, requested_at),
        missing=state.evidence.missing,
        signals=tuple(family.signals),
        failed_signals=tuple(s for s in family.signals if s.result == "refused"),
        survivors=_shown(survivors, secrets),
        unattributed=_shown(_unattributed(family), secrets),
        leftovers_ended=tuple(
            Leftover(pid=identity.pid, command=_safe(command, secrets))
            for identity, command in family.leftovers.items()
            if describe(identity, "leftover") is None
        ),
        exit=ExitStatus(
            code=None if exited is None else exited.code,
            signal=None if exited is None else exited.signal,
        ),
        last_stderr=family.tail.lines(),
        amended_at_utc=None if before is None else utc_now(),
        released=False,
    )


def _facts(instance: Instance, family: Family, requested_at: float) -> tuple[Fact, ...]:
    """The facts; how the server ended is often known only after that it did."""
    return tuple(
        replace(fact, evidence=str(family.exit))
        if fact.name == "server_exited" and fact.state == "confirmed" and family.exit
        else fact
        for fact in instance.state.evidence.as_facts(requested_at)
    )


def _deadline_s(instance: Instance) -> float:
    schedule = instance.state.schedule
    if schedule is None:
        return instance.policy.deadline_s
    return round(schedule.deadline_at - schedule.requested_at, 6)


def _survivors(instance: Instance, family: Family, heard: Heard) -> Iterator[Survivor]:
    why: dict[Identity, str] = {}
    roles = {family.server: "pid", family.anchor: "pid", family.relay: "pid"}
    for identity in family.known:
        why[identity] = roles.get(identity, "its relay")
    for identity in heard.remaining:
        why[identity] = roles.get(identity, "its relay")
    for identity, reason in instance.found:
        why.setdefault(identity, reason)
    nobodys = {orphan.identity for orphan in family.unattributed}
    for orphan in family.inherited():
        if orphan.identity in nobodys:
            continue  # it is listed apart, since it may be a stranger
        why.setdefault(orphan.identity, "its parent, the daemon")
    for identity, reason in list(why.items())[:MAX_SURVIVORS]:
        named = describe(identity, reason)
        if named is not None:
            yield named


def _unattributed(family: Family) -> Iterator[Survivor]:
    for orphan in family.unattributed:
        named = describe(orphan.identity, "its parent, the daemon")
        if named is not None:
            yield named


def _shown(found: Iterable[Survivor], secrets: frozenset[str]) -> tuple[Survivor, ...]:
    rows = {survivor.pid: survivor for survivor in found}
    return tuple(
        Survivor(
            pid=row.pid,
            ppid=row.ppid,
            pgid=row.pgid,
            sid=row.sid,
            started_at_utc=row.started_at_utc,
            command=_safe(row.command, secrets),
            why=row.why,
        )
        for _, row in sorted(rows.items())
    )


def _safe(command: str, secrets: frozenset[str]) -> str:
    return mask(" ".join(redact_argv(tuple(command.split(" ")))), secrets)
