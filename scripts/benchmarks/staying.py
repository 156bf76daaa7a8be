"""What many starts and stops leave in the process that does them: nothing."""

import gc
import os
from dataclasses import astuple, dataclass
from typing import Final, Self

import anyio
import psutil

from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import Owner, open_owner
from scripts.benchmarks.programs import CAT
from scripts.benchmarks.results import Row, Unit, row

WARM_UP_CYCLES: Final = 20
"""Until modules, caches and the allocator's pools are what they stay."""

GROWTH_MIB: Final = 1.0
"""Resident memory moves by some pages; 10 KiB kept for each cycle would be found."""

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Holdings:
    """What this process holds; all its descendants count as processes."""

    descriptors: int
    threads: int
    processes: int
    resident_mib: float

    @classmethod
    def now(cls) -> Self:
        gc.collect()
        this = psutil.Process()
        return cls(
            len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - counted, not walked
            this.num_threads(),
            len(this.children(recursive=True)),
            this.memory_info().rss / MIB,
        )


def measure_cycles(counts: Counts) -> list[Row]:
    """Growth of what this process holds over many starts and stops."""
    return anyio.run(_cycles, counts)


async def _cycles(counts: Counts) -> list[Row]:
    async with open_owner() as owner:
        await _turn(owner, min(WARM_UP_CYCLES, counts.cycles))
        before = _Holdings.now()
        await _turn(owner, counts.cycles)
        after = _Holdings.now()
    growth = [now - then for now, then in zip(astuple(after), astuple(before), strict=True)]
    columns: tuple[tuple[str, Unit, float], ...] = (
        ("descriptors", "count", 0),
        ("threads", "count", 0),
        ("processes", "count", 0),
        ("resident memory", "MiB", GROWTH_MIB),
    )
    return [
        row(
            f"growth over {counts.cycles} starts and stops, {name}", [grown], unit=unit, bound=bound
        )
        for (name, unit, bound), grown in zip(columns, growth, strict=True)
    ]


async def _turn(owner: Owner, cycles: int) -> None:
    for _ in range(cycles):
        held = await owner.spawn(CAT)
        await owner.greet(held)
        await owner.stop(held)
