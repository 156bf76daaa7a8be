"""Many at once: two hundred servers started together, and stopped together."""

import os
from time import perf_counter
from typing import TYPE_CHECKING, Final

import anyio

from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import Owner, open_owner
from scripts.benchmarks.peers import Bare
from scripts.benchmarks.programs import CAT
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.surroundings import UnexpectedError

if TYPE_CHECKING:
    from supervisor.process.custody import Held

UP_S: Final = 1.0
CLOSED_S: Final = 0.3
"""Source: design section 21, for 200 instances."""

PATIENCE_S: Final = 60.0
AT_ONCE: Final = os.cpu_count() or 1
"""As many starts run at once as in the daemon by default (`startConcurrency`)."""


def measure_crowd(counts: Counts) -> list[Row]:
    """Wall time until all are up, and until all are closed and confirmed."""
    return anyio.run(_crowd, counts)


async def _crowd(counts: Counts) -> list[Row]:
    ours_up, ours_closed, bare_up, bare_closed = [], [], [], []
    async with open_owner() as owner:
        for _ in range(counts.crowd_rounds):
            up_s, closed_s = _bare_round(owner, counts.crowd)
            bare_up.append(up_s)
            bare_closed.append(closed_s)
            with anyio.fail_after(PATIENCE_S):
                up_s, closed_s = await _our_round(owner, counts.crowd)
            ours_up.append(up_s)
            ours_closed.append(closed_s)
    many = f"{counts.crowd} instances"
    return [
        row(
            f"{many} up",
            ours_up,
            unit="s",
            peer=Peer("bare exec", bare_up),
            bound=UP_S,
        ),
        row(
            f"{many} closed and confirmed",
            ours_closed,
            unit="s",
            peer=Peer("bare exit", bare_closed),
            bound=CLOSED_S,
        ),
    ]


def _bare_round(owner: Owner, size: int) -> tuple[float, float]:
    """Seconds until all bare processes have started, and until all have ended."""
    began_at = perf_counter()
    processes = [Bare(CAT, heirs=owner.custody.heirs) for _ in range(size)]
    up_s = perf_counter() - began_at
    began_at = perf_counter()
    for process in processes:
        process.close_stdin()
    for process in processes:
        process.wait_end()
    closed_s = perf_counter() - began_at
    for process in processes:
        process.release()
    return up_s, closed_s


async def _our_round(owner: Owner, size: int) -> tuple[float, float]:
    """Seconds until all are up, and until every cleanup is confirmed."""
    held: list[Held] = []
    turns = anyio.CapacityLimiter(AT_ONCE)

    async def start() -> None:
        async with turns:
            held.append(await owner.spawn(CAT))

    began_at = perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(size):
            tasks.start_soon(start)
    up_s = perf_counter() - began_at
    began_at = perf_counter()
    for each in held:
        each.instance.request_stop("stop")
    reports = [await each.instance.wait_settled() for each in held]
    closed_s = perf_counter() - began_at
    if any(report.outcome != "confirmed" for report in reports):
        message = "not every cleanup of the crowd was confirmed"
        raise UnexpectedError(message)
    return up_s, closed_s
