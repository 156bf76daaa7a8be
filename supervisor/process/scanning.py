"""Scans of all processes, shared: stops that ask at the same time get one pass over /proc."""

import anyio
import anyio.to_thread

from supervisor.linux.processes import Wanted, scan
from supervisor.process.ports import ScanResult


class Scanner:
    """Runs at most one scan at a time, in a worker thread, for all that asked before it began."""

    def __init__(self) -> None:
        self._asked: dict[str, Wanted] = {}
        self._results: dict[str, ScanResult] = {}
        self._turn = anyio.Lock()

    async def scan(self, wanted: Wanted) -> ScanResult:
        """Look for one family.

        Returns:
            What a pass found that began after this call.
        """
        self._asked[wanted.mark] = wanted
        async with self._turn:
            if wanted.mark in self._asked:
                await self._pass()
            return self._results.pop(wanted.mark, ScanResult(()))

    async def _pass(self) -> None:
        batch, self._asked = self._asked, {}
        found = await anyio.to_thread.run_sync(scan, tuple(batch.values()))
        for mark, stats in found.items():
            rows = tuple((stat.identity, _why(stat.sid, stat.pgid, batch[mark])) for stat in stats)
            self._results[mark] = ScanResult(rows)


def _why(sid: int, pgid: int, wanted: Wanted) -> str:
    if pgid == wanted.pgid:
        return "group"
    return "session" if sid in wanted.sessions else "mark"
