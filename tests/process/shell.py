"""Runs the shell of one instance around a fake family, under trio's virtual clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from process.fake_family import FakeFamily
from supervisor.core.ids import InstanceId, ServerName
from supervisor.core.launch import StopPolicy
from supervisor.core.report import CleanupReport, ExitStatus
from supervisor.core.shutdown_events import Stage
from supervisor.process.instance import Instance

POLICY: Final = StopPolicy(deadline_s=5.0, term_after_s=2.0, kill_after_s=4.0)
ID: Final = InstanceId("0123456789abcdef")


@dataclass
class Shell:
    """An instance that runs.

    Attributes:
        verdicts: outcome and virtual seconds since the start, at each verdict.
        ended: set when the shell has left.
    """

    family: FakeFamily
    instance: Instance = field(init=False)
    verdicts: list[tuple[str, float]] = field(default_factory=list)
    ended: anyio.Event = field(default_factory=anyio.Event)

    def did(self, *, since: float = 0.0) -> list[str]:
        """What the shell did, in order, from a virtual instant on."""
        start = self.instance.started_at
        return [call for at, call in self.family.did if at - start >= since - 1e-9]

    def when(self, call: str) -> list[float]:
        """When it did this, in virtual seconds since the start."""
        start = self.instance.started_at
        return [round(at - start, 6) for at, did in self.family.did if did == call]

    def now(self) -> float:
        """Virtual seconds since the start."""
        return round(anyio.current_time() - self.instance.started_at, 6)

    def judged(self, instance: Instance) -> None:
        """Note a verdict."""
        assert instance.report is not None
        self.verdicts.append((instance.report.outcome, self.now()))


@asynccontextmanager
async def shell_of(family: FakeFamily, policy: StopPolicy = POLICY) -> AsyncIterator[Shell]:
    """Run one instance until the block ends."""
    async with anyio.create_task_group() as tasks:
        shell = Shell(family)
        instance = shell.instance = Instance(
            ID,
            ServerName("git"),
            None,
            policy,
            family,
            write_report=report_of,
            on_verdict=shell.judged,
        )
        family.open(instance.post)

        async def run() -> None:
            await instance.run(tasks)
            shell.ended.set()

        tasks.start_soon(run)
        await anyio.lowlevel.checkpoint()
        yield shell
        tasks.cancel_scope.cancel()


def report_of(instance: Instance) -> CleanupReport:
    """What the machine knows, and nothing of processes."""
    state = instance.state
    schedule = state.schedule
    assert schedule is not None
    return CleanupReport(
        instance=instance.id,
        server=instance.server,
        session=instance.session,
        reason=state.reason,
        outcome="confirmed" if state.stage is Stage.CONFIRMED else "unconfirmed",
        deadline_s=schedule.deadline_at - schedule.requested_at,
        deadline_shortened_by=state.shortened_by,
        elapsed_s=instance.settled_at - schedule.requested_at,
        requested_at_utc=instance.requested_at_utc,
        facts=state.evidence.as_facts(schedule.requested_at),
        missing=state.evidence.missing,
        signals=(),
        failed_signals=(),
        survivors=(),
        unattributed=(),
        leftovers_ended=(),
        exit=ExitStatus(code=None, signal=None),
        last_stderr=(),
        amended_at_utc=None if instance.report is None else "later",
        released=False,
    )
