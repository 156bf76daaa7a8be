"""What follows from a verdict: its report is kept, counted and told, and a restart may be due."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from supervisor.core.ending import UNASKED
from supervisor.core.ids import InstanceId, ServerName
from supervisor.core.report import CleanupReport
from supervisor.core.shutdown_events import Stage
from supervisor.manager import snapshots
from supervisor.process.instance import Instance

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager


class Verdicts:
    """The verdicts on the instances of one manager."""

    def __init__(self, manager: "Manager") -> None:
        self._manager = manager

    def take_swept(self, swept: Iterable[CleanupReport]) -> None:
        """Keep what the sweep of an earlier run found."""
        for report in swept:
            self._manager.archive.keep(report)
            self._manager.metrics.swept(report)
            self._manager.events.record(
                "instance_swept",
                level="info" if report.outcome == "confirmed" else "warning",
                server=ServerName(report.server),
                instance=InstanceId(report.instance),
                outcome=report.outcome,
                missing=list(report.missing),
                ended=[leftover.pid for leftover in report.leftovers_ended],
            )

    def judged(self, instance: Instance) -> None:
        """A verdict is in, or was amended."""
        report = instance.report
        if report is None:
            return
        self._manager.archive.keep(report)
        self._manager.metrics.stopped(report)
        self._act(instance, report)
        amended = report.amended_at_utc is not None
        self._manager.events.record(
            "cleanup_amended" if amended else f"cleanup_{report.outcome}",
            level="info" if report.outcome == "confirmed" else "error",
            server=instance.server,
            instance=instance.id,
            session=instance.session,
            report=report.as_json(),
        )

    def _act(self, instance: Instance, report: CleanupReport) -> None:
        """Forget what is gone, remember how it failed, and plan what comes next."""
        manager, name = self._manager, instance.server
        confirmed = instance.state.stage is Stage.CONFIRMED
        # a server that died of the question for its revision is started again at once
        counts = report.reason in UNASKED and not manager.sessions.probing(instance.id)
        cwd = None
        if confirmed:
            manager.channels.pop(instance.id, None)
            cwd = manager.sessions.forget(instance.id)
        if report.reason == "start_failed":
            manager.restarts.start_failed(name)
            manager.errors.setdefault(name, snapshots.death_sentence(report))
        if counts:
            manager.errors[name] = snapshots.death_sentence(report)
            if confirmed and not manager.stopping:
                uptime_s = instance.requested_at - instance.started_at
                manager.restarts.ended((instance.session, name), report, uptime_s, cwd)
