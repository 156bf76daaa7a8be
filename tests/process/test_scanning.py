"""Scans are shared: stops that are judged together cost one pass over /proc."""

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import anyio
import pytest

from leftovers import Groups
from supervisor.core.attribution import Identity
from supervisor.core.ids import INSTANCE_MARK
from supervisor.linux.processes import ProcessStat, Wanted
from supervisor.process.ports import ScanResult
from supervisor.process.scanning import Scanner

pytestmark = pytest.mark.anyio
WITHIN_S = 5.0


def wanted(mark: str, *, sessions: tuple[int, ...] = (), pgid: int | None = None) -> Wanted:
    """What one family asks for."""
    return Wanted(
        mark=mark,
        sessions=frozenset(sessions),
        pgid=pgid,
        helpers=frozenset(),
        identities=frozenset(),
    )


def row(pid: int, *, sid: int = 1, pgid: int = 1) -> ProcessStat:
    """A process that a pass has found."""
    return ProcessStat(Identity(pid, 1), "S", 1, pgid, sid, "x")


class Passes:
    """Stands in for the pass over /proc: notes who it was for, and waits where it is told to.

    Attributes:
        batches: the marks that each pass looked for.
        found: what the next pass finds for each mark.
    """

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.found: dict[str, ProcessStat] = {}
        self._gate = threading.Event()
        self._gate.set()

    def __call__(self, families: Iterable[Wanted]) -> dict[str, tuple[ProcessStat, ...]]:
        """One pass, in the worker thread."""
        marks = sorted(family.mark for family in families)
        self.batches.append(marks)
        found = {
            mark: tuple(row for name, row in self.found.items() if name == mark) for mark in marks
        }
        assert self._gate.wait(WITHIN_S)
        return found

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold a pass open until the block ends."""
        self._gate.clear()
        yield
        self._gate.set()


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """No pass looks at real processes."""
    found = Passes()
    monkeypatch.setattr("supervisor.process.scanning.scan", found)
    return found


async def turns_until(wanted: Callable[[], bool]) -> None:
    """Let others run until something has happened."""
    with anyio.fail_after(WITHIN_S):
        while not wanted():
            await anyio.lowlevel.checkpoint()


async def scan_into(results: dict[str, ScanResult], scanner: Scanner, mark: str) -> None:
    """Ask for one family."""
    results[mark] = await scanner.scan(wanted(mark))


async def test_all_that_ask_together_share_one_pass(passes: Passes) -> None:
    """200 stops at once must not read /proc 200 times."""
    scanner, results = Scanner(), dict[str, ScanResult]()
    passes.found = {"a": row(1), "b": row(2)}
    async with anyio.create_task_group() as askers:
        for mark in ("a", "b", "c"):
            askers.start_soon(scan_into, results, scanner, mark)

    assert passes.batches == [["a", "b", "c"]]
    pids = {mark: [identity.pid for identity, _ in r.found] for mark, r in results.items()}
    assert pids == {"a": [1], "b": [2], "c": []}


async def test_an_asker_that_comes_during_a_pass_gets_the_next(passes: Passes) -> None:
    """What began before the question cannot answer it; late askers share again."""
    scanner, results = Scanner(), dict[str, ScanResult]()
    async with anyio.create_task_group() as askers:
        with passes.held():
            askers.start_soon(scan_into, results, scanner, "a")
            await turns_until(lambda: bool(passes.batches))
            passes.found = {"b": row(2)}
            for mark in ("b", "c"):
                askers.start_soon(scan_into, results, scanner, mark)
            await anyio.wait_all_tasks_blocked()
            assert passes.batches == [["a"]]
            assert results == {}

    assert passes.batches == [["a"], ["b", "c"]]
    assert [identity.pid for identity, _ in results["b"].found] == [2]


async def test_a_family_that_asks_again_is_looked_for_again(passes: Passes) -> None:
    """An answer is used once: the next look is about now."""
    scanner = Scanner()
    passes.found = {"a": row(1)}
    assert (await scanner.scan(wanted("a"))).found
    passes.found = {}
    assert not (await scanner.scan(wanted("a"))).found
    assert passes.batches == [["a"], ["a"]]


async def test_an_asker_that_gave_up_takes_nobody_elses_answer_along(passes: Passes) -> None:
    """Its family is confirmed by other facts meanwhile, or the daemon leaves."""
    scanner, results = Scanner(), dict[str, ScanResult]()
    passes.found = {"a": row(1), "c": row(3)}
    async with anyio.create_task_group() as askers:
        with passes.held():
            askers.start_soon(scan_into, results, scanner, "a")
            await turns_until(lambda: bool(passes.batches))
            async with anyio.create_task_group() as given_up:
                given_up.start_soon(scan_into, results, scanner, "b")
                askers.start_soon(scan_into, results, scanner, "c")
                await anyio.wait_all_tasks_blocked()
                given_up.cancel_scope.cancel()

    assert set(results) == {"a", "c"}
    assert [identity.pid for identity, _ in results["c"].found] == [3]


async def test_a_family_that_asks_twice_at_once_gets_the_same_answer_twice(
    passes: Passes,
) -> None:
    """A scan for names and one that judges may meet; an empty answer would prove an end."""
    scanner, results = Scanner(), list[ScanResult]()
    passes.found = {"a": row(1)}

    async def ask() -> None:
        results.append(await scanner.scan(wanted("a")))

    async with anyio.create_task_group() as askers:
        askers.start_soon(ask)
        askers.start_soon(ask)
    assert [len(result.found) for result in results] == [1, 1]
    assert passes.batches == [["a"]]


async def test_a_pass_that_fails_is_no_clean_scan_for_those_that_shared_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of descriptors: each hears of it, nobody gets "nothing found"."""

    def fail(_families: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("supervisor.process.scanning.scan", fail)
    scanner, failed = Scanner(), list[str]()

    async def ask(mark: str) -> None:
        with pytest.raises(OSError, match="Too many open files"):
            await scanner.scan(wanted(mark))
        failed.append(mark)

    async with anyio.create_task_group() as askers:
        for mark in ("a", "b"):
            askers.start_soon(ask, mark)
    assert sorted(failed) == ["a", "b"]


async def test_an_asker_that_gives_up_before_its_pass_leaves_the_turn_to_others(
    passes: Passes,
) -> None:
    """It had the turn, for all of them."""
    scanner, results = Scanner(), dict[str, ScanResult]()
    passes.found = {"b": row(2)}
    async with anyio.create_task_group() as askers, anyio.create_task_group() as given_up:
        given_up.start_soon(scan_into, results, scanner, "a")
        askers.start_soon(scan_into, results, scanner, "b")
        await turns_until(lambda: scanner._turn.statistics().tasks_waiting == 1)
        given_up.cancel_scope.cancel()
    assert len(results["b"].found) == 1


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (row(5, pgid=70), "group"),
        (row(5, sid=71), "session"),
        (row(5), "mark"),
    ],
)
async def test_each_finding_says_why_it_counts(
    passes: Passes, found: ProcessStat, why: str
) -> None:
    """A survivor's row shows it (design section 6)."""
    passes.found = {"a": found}
    result = await Scanner().scan(wanted("a", sessions=(71,), pgid=70))
    assert result.found == ((Identity(5, 1), why),)


async def test_a_real_pass_finds_a_process_by_its_mark_alone(groups: Groups) -> None:
    """In a session of its own, a child of nobody that we know: only its environment tells."""
    mark = "feedfacefeedface"
    process = groups.start(["/bin/cat"], env={INSTANCE_MARK: mark})
    scanner = Scanner()

    found = (await scanner.scan(wanted(mark))).found
    assert [(identity.pid, why) for identity, why in found] == [(process.pid, "mark")]

    assert process.stdin is not None
    process.stdin.close()
    process.wait(WITHIN_S)
    assert (await scanner.scan(wanted(mark))).found == ()
