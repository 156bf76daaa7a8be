"""How long a call may take, with progress and without."""

import hypothesis.strategies as st
from hypothesis import given

from supervisor.core.call_time import begin, progressed, remaining_s
from supervisor.core.limits import CallLimits

PLAIN = CallLimits(request_timeout_s=60.0)
PATIENT = CallLimits(request_timeout_s=60.0, max_total_timeout_s=150.0, reset_on_progress=True)


def test_the_limit_runs_from_the_start() -> None:
    """And what is left never falls below nothing."""
    time = begin(PLAIN, 100.0)
    assert time.deadline_at == 160.0
    assert remaining_s(time, 130.0) == 30.0
    assert remaining_s(time, 170.0) == 0.0


def test_progress_extends_only_where_the_record_says_so() -> None:
    """A server could else keep a call open that nobody wants any more."""
    assert progressed(begin(PLAIN, 100.0), 130.0).deadline_at == 160.0
    assert progressed(begin(PATIENT, 100.0), 130.0).deadline_at == 190.0


def test_progress_never_extends_beyond_the_total() -> None:
    """The setting that ended the call is the one to name, with what it allows."""
    time = begin(PATIENT, 100.0)
    assert (time.setting, time.limit_s) == ("requestTimeoutMs", 60.0)
    for now in (150.0, 200.0, 240.0):
        time = progressed(time, now)
    assert time.deadline_at == 250.0
    assert (time.setting, time.limit_s) == ("maxTotalTimeoutMs", 150.0)


def test_without_a_total_progress_may_go_on() -> None:
    """That is what the operator asked for."""
    time = begin(CallLimits(request_timeout_s=10.0, reset_on_progress=True), 0.0)
    for now in range(5, 1000, 5):
        time = progressed(time, float(now))
    assert time.deadline_at == 1005.0


def test_progress_after_the_deadline_comes_too_late() -> None:
    """The call has already been given up."""
    time = begin(PATIENT, 100.0)
    assert progressed(time, 160.0) == time


@given(
    st.lists(st.integers(0, 50).map(float), max_size=30),
    st.integers(60, 500).map(float),
)
def test_the_deadline_moves_forward_only_and_not_beyond_the_total(
    waits: list[float], total_s: float
) -> None:
    """Whatever a server reports, and however often."""
    limits = CallLimits(request_timeout_s=60.0, max_total_timeout_s=total_s, reset_on_progress=True)
    now, time = 7.0, begin(limits, 7.0)
    for wait_s in waits:
        now += wait_s
        before, time = time, progressed(time, now)
        assert before.deadline_at <= time.deadline_at <= 7.0 + total_s
