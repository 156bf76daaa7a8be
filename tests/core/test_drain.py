"""What inherited processes are sent, and when."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from supervisor.core.attribution import Identity, Orphan
from supervisor.core.drain import DrainSignal, Send, plan_drain
from supervisor.core.stages import CLOSE, KILL, OVER, TERM

SERVER, CHILD, ANCHOR = Identity(5, 1), Identity(6, 1), Identity(4, 1)


def orphan(identity: Identity, *, zombie: bool = False) -> Orphan:
    """One of the family's processes."""
    return Orphan(
        identity=identity, pgid=identity.pid, sid=4, mark=None, zombie=zombie, command="x"
    )


FAMILY = [orphan(ANCHOR), orphan(SERVER), orphan(CHILD)]


def test_each_gets_sigterm_once_and_can_act_on_it() -> None:
    """SIGCONT follows: a stopped process cannot obey."""
    sends = plan_drain([orphan(SERVER), orphan(CHILD)], None, TERM, {SERVER: "SIGTERM"})
    assert sends == (Send(CHILD, "SIGTERM"), Send(CHILD, "SIGCONT"))


def test_there_is_no_grace_for_a_family_that_lost_its_relay() -> None:
    """Its stdin is closed and nobody else will signal it."""
    assert Send(SERVER, "SIGTERM") in plan_drain([orphan(SERVER)], None, CLOSE, {})


def test_an_anchor_cleans_up_by_itself_before_sigkill_is_due() -> None:
    """It saw its relay's end; a SIGTERM would be ignored, a SIGKILL would waste its work."""
    sends = plan_drain(FAMILY, ANCHOR, TERM, {})
    assert [send.signal for send in sends if send.identity == ANCHOR] == ["SIGCONT"]


@pytest.mark.parametrize("stage", [KILL, OVER])
def test_sigkill_goes_to_all_again_and_again(stage: int) -> None:
    """The anchor included, and whatever it was sent before."""
    sent: dict[Identity, DrainSignal] = {SERVER: "SIGKILL", CHILD: "SIGTERM"}
    sends = plan_drain(FAMILY, ANCHOR, stage, sent)
    assert sends == tuple(Send(who, "SIGKILL") for who in (ANCHOR, SERVER, CHILD))


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([CLOSE, TERM, KILL, OVER]),
    st.lists(st.builds(orphan, st.builds(Identity, st.integers(1, 9), st.just(1)))),
    st.lists(st.builds(orphan, st.builds(Identity, st.integers(11, 19), st.just(1)))),
)
def test_the_dead_get_nothing_and_nobody_living_is_left_out(
    stage: int, living: list[Orphan], dead: list[Orphan]
) -> None:
    """Only what was handed in is signalled."""
    zombies = [orphan(o.identity, zombie=True) for o in dead]
    sends = plan_drain([*zombies, *living], None, stage, {})
    assert {send.identity for send in sends} == {o.identity for o in living}
