"""Starting servers: time to `hello`, and the memory of the processes that own them."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

import anyio
import psutil

from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import Owner, open_owner
from scripts.benchmarks.peers import Bare
from scripts.benchmarks.programs import CAT, ECHO, NOTHING
from scripts.benchmarks.results import Peer, Row, row
from supervisor.process.custody import Held

HELLO_MS: Final = 5.0
HELLO_EXEC_MS: Final = 15.0
HELPERS_MIB: Final = 1.5
"""Source: design section 21."""

BARE_INTERPRETERS: Final = 3
"""Alive at once, so that what they share counts as shared."""

MIB: Final = 1024 * 1024


def measure_spawns(counts: Counts) -> list[Row]:
    """Time from the request to `hello`, which is said once the server's exec has happened."""
    return anyio.run(_spawns, counts)


async def _spawns(counts: Counts) -> list[Row]:
    rows = []
    for use_fork_server, way, bound in (
        (True, "fork server", HELLO_MS),
        (False, "exec'd relay", HELLO_EXEC_MS),
    ):
        async with open_owner(use_fork_server=use_fork_server) as owner:
            ours, bare, interpreters = await _spawn_by_turns(owner, counts)
        name = f"spawn to hello, {way}"
        rows += [
            row(name, ours, peer=Peer("bare exec", bare), judged="difference", bound=bound),
            row(name, ours, peer=Peer("bare interpreter's start", interpreters)),
        ]
    return rows


async def _spawn_by_turns(
    owner: Owner, counts: Counts
) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of ours, of a bare exec, and of an interpreter from its exec to its end.

    The last says how fast this machine is with Python: an exec'd relay cannot be faster.
    """
    ours, bare, interpreters = [], [], []
    for _ in range(counts.warm_up + counts.spawns):
        began_at = perf_counter()
        process = Bare(CAT, heirs=owner.custody.heirs)
        bare.append((perf_counter() - began_at) * 1000)
        process.release()
        began_at = perf_counter()
        process = Bare(NOTHING, heirs=owner.custody.heirs)
        process.wait_end()
        interpreters.append((perf_counter() - began_at) * 1000)
        process.release()
        began_at = perf_counter()
        held = await owner.spawn(CAT)
        ours.append((perf_counter() - began_at) * 1000)
        await owner.stop(held)
    skip = counts.warm_up
    return ours[skip:], bare[skip:], interpreters[skip:]


def measure_memory(counts: Counts) -> list[Row]:
    """Private memory (USS) of relay and anchor together, while many instances are alive."""
    return anyio.run(_memory, counts)


async def _memory(counts: Counts) -> list[Row]:
    async with open_owner() as owner:
        held = [await owner.spawn(CAT) for _ in range(counts.held)]
        ours = [_uss_mib(*_helpers(each)) for each in held]
        with _bare_interpreters(owner) as processes:
            bare = [_uss_mib(process.pid) for process in processes]
    return [
        row(
            "helpers' private memory per instance",
            ours,
            unit="MiB",
            peer=Peer("one bare interpreter", bare),
            bound=HELPERS_MIB,
        )
    ]


@contextmanager
def _bare_interpreters(owner: Owner) -> Iterator[list[Bare]]:
    processes = []
    try:
        for _ in range(BARE_INTERPRETERS):
            processes.append(Bare(ECHO, heirs=owner.custody.heirs))
            processes[-1].greet()  # an interpreter that still starts is smaller
        yield processes
    finally:
        for process in processes:
            process.release()


def _helpers(held: Held) -> tuple[int, ...]:
    return tuple(i.pid for i in (held.family.relay, held.family.anchor) if i is not None)


def _uss_mib(*pids: int) -> float:
    """Memory that nobody else maps, of all these processes together."""
    used: int = sum(psutil.Process(pid).memory_full_info().uss for pid in pids)
    return used / MIB
