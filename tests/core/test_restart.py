"""Restart policies in Erlang's words: what follows an end that nobody had asked for."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.limits import RestartKind, RestartPolicy
from supervisor.core.restart import (
    JITTER,
    STEADY_S,
    Again,
    Decision,
    GiveUp,
    History,
    Rest,
    backoff_s,
    plan_restart,
)

POLICY = RestartPolicy(kind="transient", intensity=3, period_s=60.0, backoff_s=0.5)


def ends(
    count: int,
    *,
    policy: RestartPolicy = POLICY,
    abnormal: bool = True,
    uptime_s: float = 0.1,
) -> list[Decision]:
    """So many ends in a row, each right after the start before it."""
    history, now, decisions = History(), 100.0, list[Decision]()
    for _ in range(count):
        history, decision = plan_restart(
            history, policy, abnormal=abnormal, uptime_s=uptime_s, now=now, chance=0.0
        )
        decisions.append(decision)
        now = (decision.at if isinstance(decision, Again) else now) + uptime_s
    return decisions


def test_each_wait_is_twice_the_one_before() -> None:
    """A server that cannot stay up comes back less and less often."""
    waits = [backoff_s(POLICY, failures, 0.0) for failures in range(1, 6)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_more_restarts_than_the_intensity_are_a_loop() -> None:
    """Then it has failed, until somebody changes or starts it."""
    decisions = ends(5)
    assert [type(decision) for decision in decisions[:3]] == [Again, Again, Again]
    assert decisions[3] == GiveUp(3, 60.0)


def test_restarts_that_lie_further_back_than_the_period_do_not_count() -> None:
    """Three in a minute are a loop, three in a week are not."""
    old = History(restarts=(1.0, 2.0, 3.0), failures=3)
    _, decision = plan_restart(old, POLICY, abnormal=True, uptime_s=0.0, now=1000.0, chance=0.0)
    assert isinstance(decision, Again)


@pytest.mark.parametrize(
    ("kind", "abnormal", "again"),
    [
        ("permanent", True, True),
        ("permanent", False, True),
        ("transient", True, True),
        ("transient", False, False),
        ("temporary", True, False),
        ("temporary", False, False),
    ],
)
def test_the_kind_decides_which_ends_are_followed_by_a_restart(
    kind: RestartKind, abnormal: bool, again: bool
) -> None:
    """Source: Erlang/OTP supervisor, restart types."""
    (decision,) = ends(1, policy=replace(POLICY, kind=kind), abnormal=abnormal)
    assert isinstance(decision, Again if again else Rest)


def test_only_a_stretch_of_uptime_makes_the_next_wait_short_again() -> None:
    """A finished handshake is no uptime: 66 487 processes in seven minutes had all had theirs."""
    tired = History(failures=5)
    quick, _ = plan_restart(tired, POLICY, abnormal=True, uptime_s=1.0, now=9.0, chance=0.0)
    steady, _ = plan_restart(tired, POLICY, abnormal=True, uptime_s=STEADY_S, now=9.0, chance=0.0)
    assert (quick.failures, steady.failures) == (6, 1)


def test_a_server_that_is_left_alone_still_paces_starts_on_demand() -> None:
    """Its policy asks for no restart, but a client that connects at once shall not spin it."""
    history, decision = plan_restart(
        History(), POLICY, abnormal=False, uptime_s=0.0, now=10.0, chance=0.0
    )
    assert isinstance(decision, Rest)
    assert history.next_at == 10.5


@given(st.integers(min_value=0, max_value=10_000), st.floats(min_value=0, max_value=1))
def test_a_wait_is_never_longer_than_its_maximum_nor_jitter_below_it(
    failures: int, chance: float
) -> None:
    """However many failures, and whatever chance says."""
    wait_s = backoff_s(POLICY, failures, chance)
    assert 0 < wait_s <= POLICY.backoff_max_s
    assert wait_s >= min(POLICY.backoff_max_s, POLICY.backoff_s) * (1 - JITTER)
