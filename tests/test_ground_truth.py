"""The ground truth sees and ends everything, and the look at processes is exact.

Verdicts of the project are compared with it; so it is compared with plain processes here.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ground_truth import Alive, GroundTruth
from leftovers import Groups
from misbehaving import Scenario
from process_table import (
    Identity,
    identity_of,
    kill_pinned,
    open_pidfd,
    pinned,
    still_runs,
    wait_gone,
)

pytestmark = pytest.mark.usefixtures("subreaper")

END_WITHIN_S = 5.0


@pytest.fixture(params=["cgroup", "scan"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GroundTruth]:
    """Both ways to the truth: the kernel's list, and the scan for machines without one."""
    with GroundTruth(tmp_path, cgroup=request.param == "cgroup") as found:
        if request.param == "cgroup" and not found.by_cgroup:
            pytest.skip("no cgroup v2 directory can be made here")
        yield found


def test_both_ways_to_the_truth_find_and_end_a_family_without_traces(
    either: GroundTruth, groups: Groups, tmp_path: Path
) -> None:
    """The scan needs the pid file for it; a machine without cgroups must not see less."""
    with Scenario("daemonize_cleanenv", tmp_path) as scenario:
        groups.start(either.join_argv(scenario.argv))
        assert scenario.wait_ready() == 2

        assert [process.comm for process in either.alive()[1:]] == ["sleep"]
        assert len(either.kill_all()) == 2
        assert either.alive() == []


def test_a_zombie_is_not_alive(either: GroundTruth, groups: Groups, tmp_path: Path) -> None:
    """A family of zombies is gone, whoever has to reap it."""
    with Scenario("zombies", tmp_path) as scenario:
        process = groups.start(either.join_argv(scenario.argv))
        scenario.wait_ready()

        assert [one.pid for one in either.alive()] == [process.pid]
        either.kill_all()


def test_the_end_of_a_truth_kills_what_is_left(groups: Groups, tmp_path: Path) -> None:
    """A failing test leaves no process and no cgroup to the next one."""
    with ExitStack() as pins, Scenario("setsid", tmp_path) as scenario:
        with GroundTruth(tmp_path) as truth:
            groups.start(truth.join_argv(scenario.argv))
            scenario.wait_ready()
            pidfds = pins.enter_context(pinned(scenario.pids()))
            assert len(pidfds) == 2

        assert wait_gone(pidfds.values(), 0.0) == ()


def test_waiting_names_the_processes_that_do_not_end(groups: Groups) -> None:
    """Nobody waits longer than asked, and the survivor is named."""
    stays = groups.start(["/bin/sleep", "600"])
    leaves = groups.start(["/bin/sleep", "0"])

    with pinned([stays.pid, leaves.pid]) as pidfds:
        assert wait_gone([pidfds[leaves.pid]], END_WITHIN_S) == ()
        assert wait_gone(pidfds.values(), 0.01) == (pidfds[stays.pid],)
        kill_pinned(pidfds[stays.pid])
        assert wait_gone(pidfds.values(), END_WITHIN_S) == ()


def test_an_identity_is_over_when_its_process_is(groups: Groups) -> None:
    """A pid with another start time is another process; a zombie runs no more."""
    process = groups.start(["/bin/sleep", "600"])
    identity = identity_of(process.pid)
    assert identity is not None
    assert still_runs(identity)
    assert not still_runs(Identity(identity.pid, identity.start_ticks - 1))

    process.kill()
    with pinned([process.pid]) as pidfds:
        wait_gone(pidfds.values(), END_WITHIN_S)
    assert not still_runs(identity)
    process.wait(END_WITHIN_S)
    assert identity_of(process.pid) is None
    with pytest.raises(ProcessLookupError):
        open_pidfd(process.pid)


def test_alive_is_made_of_pid_name_and_state(either: GroundTruth, groups: Groups) -> None:
    """Names are what a failing assertion shows; the wrappers must not be left in the list."""
    process = groups.start(either.join_argv(["/bin/cat"]))
    stream = process.stdin
    output = process.stdout
    assert stream is not None
    assert output is not None
    stream.write(b"x\n")
    stream.flush()
    assert output.readline() == b"x\n"

    (only,) = either.alive()
    assert only == Alive(process.pid, "cat", only.state)
    assert only.state in {"R", "S"}  # it may not have gone back to its read yet
    either.kill_all()
