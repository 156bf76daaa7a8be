"""Puts together what a scrape shows: counters kept as things happen, and how things are now."""

from collections import Counter
from typing import TYPE_CHECKING

import anyio.to_thread

from supervisor.linux.sampling import FamilyRoots, Sampler
from supervisor.process.custody import Held
from supervisor.telemetry.metrics import MetricsSnapshot

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager


async def metrics_text(manager: "Manager", sampler: Sampler) -> bytes:
    """What Prometheus reads; the sampling and the writing are done in a worker thread."""
    status = manager.status()
    held = manager.held()
    reports = [h.instance.report for h in held if h.instance.quarantined]
    usage = await anyio.to_thread.run_sync(sampler.sample, [_roots(h) for h in held])
    snapshot = MetricsSnapshot(
        instances=Counter((view.server, view.state) for view in status.instances),
        sessions=len(status.sessions),
        queue=status.queue,
        survivors=sum(len(report.survivors) for report in reports if report is not None),
        usage={str(name): used for name, used in usage.items()},
        log_dropped_bytes={
            str(n): count for n, count in manager.custody.log_dropped_bytes().items()
        },
    )
    return await anyio.to_thread.run_sync(manager.metrics.collect, snapshot)


def _roots(held: Held) -> FamilyRoots:
    """Whose memory and CPU time count as the server's."""
    family = held.family
    helpers = [identity for identity in (family.relay, family.anchor) if identity is not None]
    server = [] if family.server is None else [family.server]
    return FamilyRoots(
        instance=held.instance.id,
        server=held.instance.server,
        roots=(*helpers, *server),
        helpers=frozenset(helpers),
    )
