"""Requests, deadline, facts and verdict of a stop: no processes, no clock, no event loop."""

from collections.abc import Callable

import pytest

from core.stopping import (
    BY_THE_RELAY,
    DATA_PIPES,
    asked,
    fired,
    instants,
    looked,
    run,
    seen,
    told,
    traced,
    wake_at,
    without_schedules,
)
from supervisor.core import stages
from supervisor.core.evidence import FACTS
from supervisor.core.launch import StopPolicy
from supervisor.core.report import FactName, Reason
from supervisor.core.shutdown import AT_INSTANT, JUDGED, OUTPUT_CLOSED_S, STOPPED_BY, Shutdown
from supervisor.core.shutdown_events import (
    AnchorLost,
    AskForStop,
    CloseStdin,
    Effect,
    FactSeen,
    LastLook,
    ProbeGroup,
    Report,
    Scan,
    Stage,
    StopRequested,
)


def test_every_stage_is_named_in_the_tables() -> None:
    """A stage that a table forgets would be silently stuck."""
    assert set(AT_INSTANT) == {stages.CLOSE, stages.TERM, stages.KILL, stages.OVER}
    assert set(AT_INSTANT.values()) | JUDGED | {Stage.RUNNING} == set(Stage)
    assert set(STOPPED_BY) <= set(FACTS)


def test_a_stop_closes_stdin_and_hands_the_instants_to_the_relay() -> None:
    """The relay executes the stages; the daemon tells it the absolute instants."""
    state, effects = traced(asked(100.0))

    assert state.stage is Stage.CLOSING
    assert effects[0] == CloseStdin()
    assert told(effects) == [(100.0, 102.0, 104.0, 105.0)]
    assert len(effects) == 2


def test_stages_follow_the_instants_until_the_last_look() -> None:
    """Close stdin, SIGTERM at 2 s, SIGKILL at 4 s, judge at 5 s."""
    state = run(asked(0.0))

    seen_stages = []
    for at in (1.0, 2.0, 3.9, 4.0, 4.99):
        state = run(fired(at), state=state)
        seen_stages.append(state.stage)
    state, effects = traced(fired(5.0), state=state)

    closing, term, kill = Stage.CLOSING, Stage.TERMINATING, Stage.KILLING
    assert seen_stages == [closing, term, term, kill, kill]
    assert effects == [LastLook()]
    assert state.stage is Stage.KILLING
    assert run(looked(5.0), state=state).stage is Stage.UNCONFIRMED


def test_nothing_is_judged_before_every_source_was_asked_once_more() -> None:
    """Events that are already in the kernel count (design section 5)."""
    at_deadline = run(asked(0.0), seen(4.9, *BY_THE_RELAY[:-1], "group_gone"), fired(5.0))

    state, effects = traced(seen(5.0, "relay_exited"), looked(5.0), state=at_deadline)

    assert state.stage is Stage.CONFIRMED
    assert effects == [Report()]


def test_a_second_request_joins_the_first() -> None:
    """Same deadline, same reason, nothing said twice, whatever the second one asks for."""
    first = run(asked(0.0, reason="stop"))
    longer = StopPolicy(deadline_s=60.0, term_after_s=20.0, kill_after_s=40.0)
    shorter = StopPolicy(deadline_s=0.3, term_after_s=0.1, kill_after_s=0.2)

    for policy in (longer, shorter):
        second, effects = traced(asked(1.0, reason="crash", policy=policy), state=first)

        assert instants(second) == (0.0, 2.0, 4.0, 5.0)
        assert second.reason == "stop"
        assert effects == []


def test_a_second_request_may_ask_for_verification() -> None:
    """`--verify` on a stop under way costs a scan and moves nothing."""
    state, effects = traced(asked(0.0), asked(1.0, verify=True))
    assert state.verify
    assert len(told(effects)) == 1

    state, effects = traced(seen(1.1, *BY_THE_RELAY), seen(1.2, "group_gone"), state=state)
    assert effects == [ProbeGroup(), Scan(judge=True)]
    assert run(seen(1.3, "scan_clean"), state=state).stage is Stage.CONFIRMED


@pytest.mark.parametrize("at", [0.0, 1.0, 3.0])
def test_force_pulls_sigkill_forward_inside_the_same_deadline(at: float) -> None:
    """A second Ctrl-C must not wait for the grace, and must not cut the proof short."""
    state, effects = traced(asked(0.0), asked(at, force=True))

    assert instants(state) == (0.0, min(at, 2.0), at, 5.0)
    assert told(effects)[-1] == instants(state)
    assert state.shortened_by is None
    assert run(fired(at), state=state).stage is Stage.KILLING


def test_force_after_sigkill_changes_nothing() -> None:
    """Stages are pulled forward, never back."""
    assert instants(run(asked(0.0), asked(4.5, force=True))) == (0.0, 2.0, 4.0, 5.0)


def test_a_stop_may_be_forced_from_its_first_instant() -> None:
    """`mcpctl stop --force` of a running instance."""
    state, effects = traced(asked(7.0, force=True))

    assert instants(state) == (7.0, 7.0, 7.0, 12.0)
    assert told(effects) == [instants(state)]


def test_only_the_daemons_budget_brings_the_deadline_nearer_and_the_report_says_so() -> None:
    """A daemon that must leave in 2 s cannot give a server 5; all stages keep their share."""
    state, effects = traced(asked(0.0), asked(0.5, reason="shutdown", budget_at=2.5))

    assert instants(state) == (0.0, 1.0, 2.0, 2.5)
    assert told(effects)[-1] == instants(state)
    assert state.shortened_by == "the daemon's own shutdown"
    assert state.reason == "stop"


def test_a_budget_that_is_larger_than_the_deadline_changes_nothing() -> None:
    """The budget bounds a stop; it never gives it more time."""
    state, effects = traced(asked(0.0), asked(0.5, budget_at=30.0))

    assert instants(state) == (0.0, 2.0, 4.0, 5.0)
    assert state.shortened_by is None
    assert len(told(effects)) == 1


def test_a_budget_that_is_over_leads_to_the_last_look_at_once() -> None:
    """The daemon is out of time; the stop still looks once before it judges."""
    state, effects = traced(asked(0.0), asked(3.0, budget_at=1.0), fired(3.0))

    assert instants(state)[-1] == 1.0
    assert without_schedules(effects) == [LastLook()]


def test_a_server_that_leaves_by_itself_makes_sigterm_due_at_once() -> None:
    """What outlives the leader has had its grace (design section 5)."""
    state = run(asked(0.0), seen(0.4, "server_exited"))

    assert instants(state) == (0.0, 0.4, 4.0, 5.0)
    assert run(fired(0.4), state=state).stage is Stage.TERMINATING


def test_a_stop_of_a_family_whose_server_is_gone_begins_with_sigterm() -> None:
    """After a crash nobody is left who could read the end of stdin."""
    state, effects = traced(seen(1.0, "server_exited"), asked(1.0, reason="crash"))

    assert effects[0] == AskForStop("crash")
    assert instants(state) == (1.0, 1.0, 5.0, 6.0)
    assert told(effects) == [instants(state)]


def test_an_exit_after_sigterm_moves_no_instant() -> None:
    """SIGTERM was due already."""
    state = run(asked(0.0), fired(2.0), seen(2.5, "server_exited"))
    assert instants(state) == (0.0, 2.0, 4.0, 5.0)


@pytest.mark.parametrize(("fact", "reason"), [*STOPPED_BY.items()])
def test_a_fact_that_ends_a_running_instance_asks_for_the_stop(
    fact: FactName, reason: Reason
) -> None:
    """A death is noticed through its wait status or the relay's end, not through EOF."""
    state, effects = traced(seen(1.0, fact))

    assert effects == [AskForStop(reason)]
    assert state.stage is Stage.RUNNING


def test_a_server_that_never_ran_asks_for_nothing() -> None:
    """A failed launch has its own reason, and whoever spawned it asks."""
    state, effects = traced(seen(1.0, "server_exited", state="not_applicable"))
    assert (state.stage, effects) == (Stage.RUNNING, [])


def test_an_anchor_that_dies_while_the_server_runs_ends_the_instance_once() -> None:
    """Its orphans climb to the relay, which ends the family; in a stop that is nothing new."""
    _, running = traced(AnchorLost(at=1.0))
    _, stopping = traced(AnchorLost(at=1.0), state=run(asked(0.0)))

    assert running == [AskForStop("anchor_lost")]
    assert stopping == []


def test_closed_output_is_a_crash_if_the_server_exits_within_a_tenth_of_a_second() -> None:
    """The kernel closes the descriptors of a dying process before it reports its death."""
    closed = run(seen(10.0, "stdout_eof"))
    assert wake_at(Shutdown(), *seen(10.0, "stdout_eof")) == 10.0 + OUTPUT_CLOSED_S

    _, early = traced(fired(10.05), state=closed)
    _, crashed = traced(seen(10.09, "server_exited"), state=closed)
    _, alive = traced(fired(10.0 + OUTPUT_CLOSED_S), state=closed)

    assert early == []
    assert crashed == [AskForStop("crash")]
    assert alive == [AskForStop("output_closed")]


def test_a_timer_that_fires_early_is_asked_for_again() -> None:
    """A shell may wake too soon; the stage then goes on until its end."""
    state = run(asked(0.0))

    assert wake_at(state, fired(1.9)) == 2.0
    assert run(fired(1.9), state=state).stage is Stage.CLOSING


@pytest.mark.parametrize("last", [*DATA_PIPES, "server_exited", "control_closed", "relay_exited"])
def test_a_stop_is_confirmed_by_the_last_missing_fact_whichever_it_is(last: FactName) -> None:
    """Not before, and at that very instant; the scan is not needed where a receipt is complete.

    The receipt itself always comes before the end of the socket that brings it.
    """
    others = [fact for fact in BY_THE_RELAY if fact != last]
    before, early = traced(asked(0.0), seen(0.1, *others, "group_gone"))
    state, effects = traced(seen(0.2, last), state=before)

    assert before.stage not in JUDGED
    assert Report() not in early
    assert state.stage is Stage.CONFIRMED
    assert effects[-1] == Report()
    assert state.evidence.state("scan_clean") == "not_applicable"


def test_the_group_is_probed_only_when_all_else_is_known() -> None:
    """A group of zombies still takes signals: reap first, probe second."""
    _, early = traced(asked(0.0), seen(0.1, *BY_THE_RELAY[:-1]))
    _, effects = traced(asked(0.0), seen(0.1, *BY_THE_RELAY))

    assert ProbeGroup() not in early
    assert effects[-1] == ProbeGroup()


def test_a_probe_that_finds_somebody_is_not_repeated_for_nothing() -> None:
    """Asked again after something new was learned, not in a loop."""
    probed = run(asked(0.0), seen(0.1, *BY_THE_RELAY[:-1]))
    state, effects = traced(
        seen(0.2, "relay_exited"), seen(0.2, "group_gone", state="contradicted"), state=probed
    )

    assert effects == [ProbeGroup()]
    assert state.evidence.missing == ("group_gone",)
    assert state.stage not in JUDGED


@pytest.mark.parametrize(
    ("answer", "other", "again"),
    [
        ("group_gone", "scan_clean", ProbeGroup()),
        ("scan_clean", "group_gone", Scan(judge=True)),
    ],
)
def test_an_answer_that_found_somebody_is_asked_for_again_before_the_deadline(
    answer: FactName, other: FactName, again: Effect
) -> None:
    """Nothing announces the end of a straggler; it must not cost the verdict and a slot."""
    state = run(asked(0.0, verify=True), seen(0.1, *BY_THE_RELAY, other), fired(1.0))
    state = run(seen(1.1, answer, state="contradicted"), state=state)

    at = wake_at(state, fired(1.2))
    assert at is not None
    assert 1.2 < at < 2.0
    assert traced(fired(at), state=state)[1] == [again]


def test_the_last_look_asks_the_probe_after_all_others_have_spoken() -> None:
    """It is one of the sources (design section 5), and proves nothing before the reaping."""
    state = run(asked(0.0), fired(5.0), seen(5.0, *BY_THE_RELAY))

    state, effects = traced(looked(5.0), state=state)
    assert effects == [ProbeGroup(), LastLook()]
    confirmed, good = traced(seen(5.0, "group_gone"), looked(5.0), state=state)
    contradicted = run(seen(5.0, "group_gone", state="contradicted"), looked(5.0), state=state)

    assert (confirmed.stage, good) == (Stage.CONFIRMED, [Report()])
    assert contradicted.stage is Stage.UNCONFIRMED


def test_a_confirmed_stop_learns_nothing_more() -> None:
    """Its shell is over; a contradiction of what was not needed would unsay the verdict."""
    state = run(asked(0.0), seen(0.1, *BY_THE_RELAY, "group_gone"))
    late = seen(0.2, "scan_clean", state="contradicted")
    assert run(late, fired(9.0), asked(9.0), state=state) is state


def test_an_unconfirmed_stop_is_upgraded_by_later_facts_and_never_before_all_are_there() -> None:
    """Custody outlives the verdict; the report is amended (design section 5)."""
    state = run(asked(0.0), fired(5.0), looked(5.0))
    assert state.stage is Stage.UNCONFIRMED

    for fact in BY_THE_RELAY:
        state, effects = traced(seen(9.0, fact), state=state)
        assert state.stage is Stage.UNCONFIRMED
        assert Report() not in effects
    state, effects = traced(seen(9.0, "group_gone"), state=state)

    assert state.stage is Stage.CONFIRMED
    assert effects == [Report()]


def test_a_quarantined_family_is_looked_at_once_a_second() -> None:
    """What was refused may have ended; each look asks again for what nothing announces."""
    state = run(asked(0.0), fired(5.0), looked(5.0), seen(5.0, *BY_THE_RELAY))
    state = run(seen(5.0, "group_gone", state="contradicted"), state=state)

    assert wake_at(state, fired(6.0)) == 7.0
    assert traced(fired(6.0), state=state)[1] == [ProbeGroup()]


def ask_again() -> StopRequested:
    """A request after the verdict."""
    return asked(9.0, reason="shutdown", force=True, budget_at=9.5)


@pytest.mark.parametrize("event", [ask_again, lambda: fired(9.0), lambda: looked(9.0)])
def test_nothing_but_facts_changes_a_verdict(event: Callable[[], StopRequested]) -> None:
    """The report was handed over; a new request gets the same."""
    judged = run(asked(0.0), fired(5.0), looked(5.0))
    state, effects = traced(event(), state=judged)

    assert (state.stage, state.reason) == (Stage.UNCONFIRMED, "stop")
    assert instants(state) == instants(judged)
    assert state.shortened_by is None
    assert effects == []


def test_what_is_confirmed_is_never_taken_back() -> None:
    """The first sight of a fact is what the report shows."""
    state = run(asked(0.0), seen(0.1, *DATA_PIPES))
    again = FactSeen(at=3.0, fact="stdout_eof", state="contradicted", evidence="a mistake")

    assert run(again, state=state).evidence == state.evidence


def test_a_stop_with_no_time_at_all_still_looks_before_it_judges() -> None:
    """A deadline of zero is a caller's right; silence is no proof even then."""
    none = StopPolicy(deadline_s=0.0, term_after_s=0.0, kill_after_s=0.0)
    state, effects = traced(asked(1.0, policy=none), fired(1.0), looked(1.0))

    assert without_schedules(effects) == [LastLook(), Report()]
    assert state.stage is Stage.UNCONFIRMED
