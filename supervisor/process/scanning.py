"""Scans of all processes, shared: stops that ask at the same time get one pass over /proc."""

from dataclasses import dataclass

import anyio
import anyio.to_thread

from supervisor.linux.processes import Wanted, scan
from supervisor.process.ports import ScanResult


@dataclass(slots=True, eq=False)
class _Ask:
    """One question; a family may ask twice at once, to name and to judge."""

    wanted: Wanted
    result: ScanResult | None = None


class Scanner:
    """Runs at most one scan at a time, in a worker thread, for all that asked before it began."""

    def __init__(self) -> None:
        self._asked: list[_Ask] = []
        self._turn = anyio.Lock()

    async def scan(self, wanted: Wanted) -> ScanResult:
        """Look for one family.

        Returns:
            What a pass found that began after this call.
        """
        ask = _Ask(wanted)
        self._asked.append(ask)
        try:
            async with self._turn:
                while ask.result is None:
                    await self._pass()
        finally:
            self._asked = [other for other in self._asked if other is not ask]
        return ask.result

    async def _pass(self) -> None:
        """Answer all that ask now; if it fails or is cancelled they still ask."""
        batch = tuple(self._asked)
        wanted = {ask.wanted.mark: ask.wanted for ask in batch}  # the last to ask knows most
        found = await anyio.to_thread.run_sync(scan, tuple(wanted.values()))
        for ask in batch:
            known = wanted[ask.wanted.mark]
            ask.result = ScanResult(
                tuple(
                    (stat.identity, _why(stat.sid, stat.pgid, known)) for stat in found[known.mark]
                )
            )
        self._asked = [ask for ask in self._asked if ask.result is None]


def _why(sid: int, pgid: int, wanted: Wanted) -> str:
    if pgid == wanted.pgid:
        return "group"
    return "session" if sid in wanted.sessions else "mark"
