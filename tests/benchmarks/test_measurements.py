"""Each measurement of `scripts/bench` works: a bench that is broken is found when it is needed.

Their numbers mean nothing here and are not looked at; the machine may be loaded.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.benchmarks import running
from scripts.benchmarks.counts import TINY, Counts
from scripts.benchmarks.peers import Bare
from scripts.benchmarks.programs import DEAF
from scripts.benchmarks.results import Judged, Row, read_json, table, write_json
from scripts.benchmarks.running import MEASUREMENTS, run
from scripts.benchmarks.surroundings import machine

ROWS = {
    "spawn": {"spawn to hello, fork server", "spawn to hello, exec'd relay"},
    "memory": {"helpers' private memory per instance"},
    "crowd": {"2 instances up", "2 instances closed and confirmed"},
    "polite": {"polite stop of cat", "polite stop of a Python server"},
    "stubborn": {"stubborn stop, deadline 0.3 s", "stubborn stop, from SIGKILL on"},
    "unconfirmed": {"unconfirmed stop, beyond its deadline"},
    "exit": {"exit of a server noticed"},
    "loss": {
        "daemon killed, polite families gone",
        "daemon killed, all gone, deadline 0.3 s",
    },
    "cycles": {
        f"growth over 2 starts and stops, {what}"
        for what in ("descriptors", "threads", "processes", "resident memory")
    },
    "programs": {"mcpctl --help", "mcpctl status", "shim, until it asks the daemon"},
    "calls": {
        f"{calls} through {way}"
        for calls in (
            "call of 1 KB",
            "call of 1 MB",
            "1000 calls of 1 KB, 16 in flight,",
            "16 calls of 1 MB, 16 in flight,",
        )
        for way in ("connect", "a session")
    },
    "cpu": {
        f"daemon's CPU for a call of {size} through {way}"
        for size in ("1 KB", "1 MB")
        for way in ("connect", "a session")
    },
    "sdk": {
        f"SDK client's call to a server of the {kind} through {way}"
        for kind in ("standard library", "SDK")
        for way in ("connect", "a session")
    },
    "gateway": set(),  # installs something: not in tests
    "lines": {
        "answer of 0.1 MB through the byte channel",
        "answer of 0.1 MB through connect",
        "10 stray lines before the answer",
    },
    "lost": {"call in flight fails when its server exits"},
    "idle": {
        "mcpctl status, 2 instances",
        "idle daemon, 2 instances, of a core",
        "idle daemon, 2 instances, resident memory",
        "idle daemon, 2 instances, threads",
    },
}


def test_every_measurement_is_tried_here() -> None:
    """One that is added without a test would rot."""
    assert set(ROWS) == set(MEASUREMENTS)


@pytest.mark.parametrize("name", ROWS)
def test_a_measurement_gives_its_rows_and_leaves_no_process(name: str) -> None:
    """With counts so small that it takes a second; what it leaves behind would be a failure."""
    begun: list[str] = []

    rows, failures = run(TINY, [name], begun.append)

    assert failures == []
    assert begun == [name]
    assert {row.name for row in rows} == ROWS[name]
    assert all(row.count >= 1 and row.lowest <= row.median <= row.p90 for row in rows)
    assert all((row.peer is None) == (row.peer_median is None) for row in rows)


def test_a_measurement_that_fails_is_named_and_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One broken measurement must not cost the whole run."""

    def fails(_counts: Counts) -> list[Row]:
        message = "the machine is on fire"
        raise OSError(message)

    monkeypatch.setattr(running, "MEASUREMENTS", {"bad": fails, "good": lambda _: [A_ROW]})

    rows, failures = run(TINY, ["bad", "good"], lambda _name: None)

    assert failures == ["bad: OSError: the machine is on fire"]
    assert rows == [A_ROW]


def test_a_process_that_is_left_behind_is_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench promises to leave none, and a measurement may forget one."""
    left: list[Bare] = []

    def forgets(_counts: Counts) -> list[Row]:
        left.append(Bare(DEAF))
        left[0].greet()
        return [A_ROW]

    monkeypatch.setattr(running, "MEASUREMENTS", {"forgets": forgets})

    rows, (failure,) = run(TINY, ["forgets"], lambda _name: None)
    for fd in (left[0].stdin, left[0].stdout, left[0].pidfd):
        os.close(fd)

    assert rows == [A_ROW]
    assert failure.startswith(f"forgets: LeftBehindError: left running: {left[0].pid} ")


A_ROW = Row(
    name="stop",
    unit="ms",
    count=3,
    lowest=2.0,
    median=3.0,
    p90=9.0,
    peer="bare exit",
    peer_median=1.0,
    judged="difference",
    bound=5.0,
)


def test_rows_come_back_from_json_as_they_were(tmp_path: Path) -> None:
    """Runs are compared by their files."""
    rows, failures = run(TINY, ["spawn", "cycles"], lambda _name: None)
    file = tmp_path / "rows.json"

    write_json(file, machine(), rows)

    assert failures == []
    assert read_json(file) == tuple(rows)


@pytest.mark.parametrize(
    ("median", "judged", "bound", "within"),
    [
        (3.0, "ours", 3.0, True),
        (3.1, "ours", 3.0, False),
        (3.1, "difference", 3.0, True),
        (4.1, "difference", 3.0, False),
        (3.0, "ratio", 3.0, True),
        (3.1, "ratio", 3.0, False),
        (3.0, "ours", None, None),
    ],
)
def test_a_bound_is_for_what_the_row_is_about(
    median: float, judged: Judged, bound: float | None, within: bool | None
) -> None:
    """Beside a peer of 1 ms: a bound on the difference allows one more than one on our own."""
    row = replace(A_ROW, median=median, judged=judged, bound=bound)

    assert row.within is within


def test_the_table_says_what_was_compared_and_what_was_missed() -> None:
    """A person reads the last column first."""
    missed = replace(A_ROW, median=7.0)
    never = replace(A_ROW, peer_never=True, peer_median=1000.0, judged="ours")

    heading, *lines = table([A_ROW, missed, never]).splitlines()

    assert [line.split()[-1] for line in (heading, *lines)] == ["within", "yes", "NO", "yes"]
    assert "+2.00 ms" in lines[0]
    assert "never in 1.0 s" in lines[2]
