"""Fixtures of all tests, and the check that no test leaves anything behind.

Sync tests run as they are; async ones set `pytestmark = pytest.mark.anyio` and run on asyncio.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from ground_truth import GroundTruth
from leftovers import Groups, Holdings, end, reap_zombies, set_subreaper
from process_table import children_of_self

# a machine that is busy with other tests is no failure of an example
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The daemon runs on asyncio; tests of shells start trio's virtual clock by themselves."""
    return "asyncio"


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves descriptors, threads or children of this process behind."""
    before = Holdings.now()
    yield
    problems = before.problems_after()
    left = children_of_self() - before.children
    if left:
        end(left)
        reap_zombies(left)
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture
def truth(tmp_path: Path) -> Iterator[GroundTruth]:
    """What is truly alive of the commands that a test starts; all of it is killed at the end.

    Where there is no cgroup it relies on the pid files of `misbehaving` in `tmp_path`.
    """
    with GroundTruth(tmp_path) as found:
        yield found


@pytest.fixture
def groups(truth: GroundTruth) -> Iterator[Groups]:
    """Programs started by the test; what is left of them is killed and fails the test."""
    started = Groups(truth)  # before `truth` ends, which kills without a word
    yield started
    left = started.left()
    started.close()
    if left:
        names = ", ".join(f"{row.pid} ({row.comm}, state {row.state})" for row in left)
        pytest.fail(f"the test left processes running: {names}", pytrace=False)


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Let this process adopt the orphans of the test; those that are dead at the end are reaped."""
    before = children_of_self()
    set_subreaper(on=True)
    try:
        yield
    finally:
        set_subreaper(on=False)
        reap_zombies(children_of_self() - before)


@pytest.fixture
def tmp_runtime() -> Iterator[Path]:
    """A directory, mode 0700, short enough for socket paths (107 bytes)."""
    with tempfile.TemporaryDirectory(prefix="mcps-") as directory:
        yield Path(directory)
