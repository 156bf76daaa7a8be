"""The instants of a stop: what relay, anchor and daemon all compute alike."""

import subprocess  # noqa: TID251 - a fresh interpreter shows what an import brings in
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from supervisor.core import stages
from supervisor.core.stages import CLOSE, KILL, OVER, TERM, Schedule

DEFAULT = stages.plan(100.0, 2.0, 4.0, 5.0)

INSTANTS = st.floats(min_value=0.0, max_value=1e6)
SPANS = st.tuples(*[st.floats(min_value=0.0, max_value=60.0)] * 3).map(sorted)
SCHEDULES = st.builds(lambda at, spans: stages.plan(at, *spans), INSTANTS, SPANS)


def test_a_plan_is_absolute() -> None:
    """An instant can be handed from one process to another, a span cannot."""
    assert DEFAULT.instants() == (100.0, 102.0, 104.0, 105.0)


@pytest.mark.parametrize(
    ("now", "stage", "following"),
    [
        (99.0, CLOSE, 102.0),
        (101.999, CLOSE, 102.0),
        (102.0, TERM, 104.0),
        (103.999, TERM, 104.0),
        (104.0, KILL, 105.0),
        (104.999, KILL, 105.0),
        (105.0, OVER, None),
        (1e9, OVER, None),
    ],
)
def test_a_stage_begins_at_its_instant(now: float, stage: int, following: float | None) -> None:
    """Neither before nor after, and the next instant is always one that lies ahead."""
    assert stages.stage_at(DEFAULT, now) == stage
    assert stages.next_instant(DEFAULT, now) == following


def test_stages_without_any_grace_are_due_at_once() -> None:
    """`0 <= term <= kill < deadline`: both may be zero."""
    assert stages.stage_at(stages.plan(1.0, 0.0, 0.0, 5.0), 1.0) == KILL


@settings(deadline=None)
@given(SCHEDULES, INSTANTS, st.sampled_from([TERM, KILL]))
def test_pulling_forward_makes_a_stage_due_and_moves_nothing_back(
    schedule: Schedule, now: float, stage: int
) -> None:
    """The deadline stays, and the order of the stages with it."""
    pulled = stages.pull_forward(schedule, now, stage)

    assert pulled.deadline_at == schedule.deadline_at
    assert pulled.requested_at == schedule.requested_at
    assert pulled.term_at <= min(schedule.term_at, now)
    assert pulled.kill_at <= schedule.kill_at
    assert stages.stage_at(pulled, now) >= stage
    if stage == TERM:
        assert pulled.kill_at == schedule.kill_at


@settings(deadline=None)
@given(SCHEDULES, INSTANTS)
def test_a_nearer_deadline_keeps_the_order_and_lets_nothing_wait_longer(
    schedule: Schedule, deadline_at: float
) -> None:
    """Only the daemon's budget asks for it; a later deadline is not taken at all."""
    squeezed = stages.nearer(schedule, deadline_at)

    if deadline_at >= schedule.deadline_at:
        assert squeezed is schedule
        return
    assert squeezed.deadline_at == deadline_at
    assert squeezed.requested_at <= squeezed.term_at <= squeezed.kill_at
    assert squeezed.term_at <= schedule.term_at
    assert squeezed.kill_at <= schedule.kill_at
    assert squeezed.kill_at <= max(deadline_at, schedule.requested_at) + 1e-6


def test_a_nearer_deadline_keeps_the_shares_of_time() -> None:
    """40 % and 80 % of half the time."""
    assert stages.nearer(DEFAULT, 102.5).instants() == (100.0, 101.0, 102.0, 102.5)


def test_a_deadline_before_the_request_leaves_no_grace() -> None:
    """A budget that is over: SIGKILL is due, and the verdict."""
    assert stages.nearer(DEFAULT, 90.0).instants() == (100.0, 100.0, 100.0, 90.0)
    assert stages.nearer(stages.plan(1.0, 0.0, 0.0, 0.0), 0.5).instants() == (1.0, 1.0, 1.0, 0.5)


@settings(deadline=None)
@given(SCHEDULES)
def test_silence_is_judged_and_names_are_taken_between_sigkill_and_the_deadline(
    schedule: Schedule,
) -> None:
    """However short that span is: what comes after the deadline is of no use."""
    silent, last_word = stages.silent_at(schedule), stages.last_word_at(schedule)

    assert schedule.kill_at <= silent <= schedule.deadline_at
    assert silent <= last_word + 1e-9
    assert last_word <= schedule.deadline_at
    assert schedule.deadline_at - last_word <= stages.LAST_WORD_S + 1e-9


def test_the_default_stop_has_its_known_instants() -> None:
    """Half-way between 4 s and 5 s, and 0.12 s before the end."""
    assert stages.silent_at(DEFAULT) == 104.5
    assert stages.last_word_at(DEFAULT) == pytest.approx(104.88)


def test_the_table_brings_in_no_other_module() -> None:
    """Every helper process loads it; a relay has 3 ms from fork to hello."""
    code = (
        "import sys; before = set(sys.modules); import supervisor.core.stages; "
        "print(sorted(set(sys.modules) - before))"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, check=True)  # noqa: S603 - our own code
    loaded = "['supervisor', 'supervisor.core', 'supervisor.core.stages']"
    assert done.stdout.decode().strip() == loaded


@pytest.mark.parametrize(
    ("now", "pause_s"),
    [
        (100.0, 2.0),
        (101.5, 0.5),
        (102.0, 2.0),
        (104.0, stages.RETRY_S),
        (104.9, stages.RETRY_S),
        (105.0, stages.CUSTODY_RETRY_S),
        (900.0, stages.CUSTODY_RETRY_S),
    ],
)
def test_a_relay_sleeps_until_the_next_stage_and_retries_after_sigkill(
    now: float, pause_s: float
) -> None:
    """No polling while the grace lasts; often while SIGKILL is tried; at leisure in custody."""
    assert stages.pause_s(stages.plan(100.0, 2.0, 4.0, 5.0), now) == pytest.approx(pause_s)
