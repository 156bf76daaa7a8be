"""Whatever happens, a stop keeps its promises: random facts and requests in virtual time."""

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import example, given, settings

from core.simulation import NEVER, Moment, Simulation, World
from core.stopping import BY_THE_RELAY, POLICY
from supervisor.core import shutdown_events as e
from supervisor.core.evidence import FACTS
from supervisor.core.report import FactName, FactState
from supervisor.core.shutdown import CUSTODY_LOOK_S, JUDGED, LOOK_AGAIN_S
from supervisor.core.stages import Schedule

AFTER_S = 3.0
"""How long the simulation goes on after the latest deadline: a few looks of custody."""

MAX_AT = 8.0
MAX_STEPS = 2000
"""More than twice what looking at a group every 10 ms for a whole deadline comes to."""

BRIEF = settings(max_examples=40, deadline=None)
"""Seven properties look at 280 runs; one run may take 20 ms, and longer on a busy machine."""

# Few distinct instants, so that random runs often meet the ones that matter.
TIMES = st.sampled_from([0.0, 0.05, 0.1, 0.3, 1.0, 2.0, 3.0, 4.0, 4.2, 4.5, 4.9, 5.0, 6.0, MAX_AT])
STATES: st.SearchStrategy[FactState] = st.sampled_from(
    ["confirmed", "confirmed", "confirmed", "contradicted", "not_applicable"]
)
REQUESTS = st.builds(
    e.StopRequested,
    at=TIMES,
    reason=st.sampled_from(["stop", "shutdown", "crash"]),
    policy=st.just(POLICY),
    force=st.booleans(),
    verify=st.booleans(),
    budget_at=st.none() | TIMES,
)
HAPPENINGS = st.one_of(
    REQUESTS,
    st.builds(
        e.FactSeen, at=TIMES, fact=st.sampled_from(FACTS), state=STATES, evidence=st.just("seen")
    ),
    st.builds(
        e.FactSeen,
        at=TIMES,
        fact=st.sampled_from(FACTS),
        state=st.just("confirmed"),
        evidence=st.just("seen"),
    ),
    st.builds(e.HelperHeard, at=TIMES),
    st.builds(e.AnchorLost, at=TIMES),
)
SPANS = st.sampled_from([0.0, 0.02, 0.4, NEVER])
WORLDS = st.builds(
    World,
    probes=st.lists(st.sampled_from(["confirmed", "contradicted"]), min_size=1).map(tuple),
    scans=st.lists(
        st.tuples(st.sampled_from(["confirmed", "contradicted"]), SPANS), min_size=1
    ).map(tuple),
    looks=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1).map(tuple),
    relay_dies_after_s=SPANS,
    drained_after_s=SPANS,
)


def ends(at: float, order: list[FactName]) -> list[e.Event]:
    """All that is seen when a family ends at once."""
    return [e.FactSeen(at=at, fact=fact, state="confirmed", evidence="seen") for fact in order]


# Random facts alone hardly ever come to all eleven: half of the scripts hold a whole end.
SCRIPTS = st.builds(
    lambda happenings, end: [*happenings, *end],
    st.lists(HAPPENINGS, max_size=25),
    st.just([]) | st.builds(ends, TIMES, st.permutations(BY_THE_RELAY)),
)

RELAY_LOST_AT_ONCE = [
    e.FactSeen(at=0.0, fact=fact, state="confirmed", evidence="seen")
    for fact in ("control_closed", "relay_exited")
]


def simulate(world: World, script: list[e.Event]) -> Simulation:
    """Run a script that asks for a stop at its end at the latest."""
    last = e.StopRequested(at=MAX_AT, reason="stop", policy=POLICY)
    until = MAX_AT + POLICY.deadline_s + AFTER_S
    return Simulation(world, [*script, last]).run(until, MAX_STEPS)


def deadline_of(schedule: Schedule | None) -> float | None:
    """The deadline, once there is one."""
    return None if schedule is None else schedule.deadline_at


def timer_made_progress(moment: Moment) -> bool:
    """Whether the next wake is later, or something was asked for that is answered at once."""
    wakes = [effect.at for effect in moment.effects if isinstance(effect, e.WakeAt)]
    answered = any(
        isinstance(effect, e.LastLook | e.AskForStop | e.ProbeGroup | e.Report)
        for effect in moment.effects
    )
    return answered or not wakes or wakes[-1] > moment.event.at


@BRIEF
@given(WORLDS, SCRIPTS)
@example(World(looks=((2, 1),), relay_dies_after_s=NEVER), [])
@example(World(drained_after_s=NEVER), RELAY_LOST_AT_ONCE)
def test_a_verdict_is_given_at_the_deadline_at_the_latest(
    world: World, script: list[e.Event]
) -> None:
    """Whatever is silent, refused or repeated; a budget that is over may cut it to "now"."""
    simulation = simulate(world, script)

    assert len(simulation.moments) < MAX_STEPS
    assert simulation.reported_at
    assert simulation.state.schedule is not None
    budgets = [
        moment.event.at
        for moment in simulation.moments
        if deadline_of(moment.before.schedule) != deadline_of(moment.after.schedule)
    ]
    latest = max(simulation.state.schedule.deadline_at, *budgets)
    assert simulation.reported_at[0] <= latest


@BRIEF
@given(WORLDS, SCRIPTS)
@example(World(probes=("contradicted",)), [])
def test_a_timer_that_fires_makes_progress(world: World, script: list[e.Event]) -> None:
    """No instant is asked for again and again: a shell would spin, and starve all others."""
    for moment in simulate(world, script).moments:
        if isinstance(moment.event, e.TimerFired):
            assert timer_made_progress(moment)


@BRIEF
@given(WORLDS, SCRIPTS)
def test_the_deadline_moves_through_the_daemons_budget_only(
    world: World, script: list[e.Event]
) -> None:
    """And then nearer, never away, and the report says by what."""
    for moment in simulate(world, script).moments:
        before, after = moment.before.schedule, moment.after.schedule
        if before is None or after is None:
            continue
        if after.deadline_at != before.deadline_at:
            assert isinstance(moment.event, e.StopRequested)
            assert after.deadline_at == moment.event.budget_at
            assert after.deadline_at < before.deadline_at
            assert moment.after.shortened_by is not None
        requested, term, kill, _ = after.instants()
        assert requested == before.requested_at
        assert requested <= term <= kill
        assert term <= before.term_at
        assert kill <= before.kill_at


@BRIEF
@given(WORLDS, SCRIPTS)
def test_confirmed_means_that_nothing_is_missing(world: World, script: list[e.Event]) -> None:
    """At that instant, neither sooner nor later; and what is confirmed is never taken back."""
    for moment in simulate(world, script).moments:
        after = moment.after
        complete = after.schedule is not None and not after.evidence.missing
        assert (after.stage is e.Stage.CONFIRMED) == complete
        for fact in FACTS:
            if moment.before.evidence.state(fact) == "confirmed":
                assert after.evidence.known[fact] == moment.before.evidence.known[fact]


@BRIEF
@given(WORLDS, SCRIPTS)
def test_what_is_done_once_is_done_once(world: World, script: list[e.Event]) -> None:
    """Stdin closed, drain begun, relay killed; a verdict given, and at most one amendment."""
    simulation = simulate(world, script)

    effects = [effect for moment in simulation.moments for effect in moment.effects]
    for kind, most in ((e.CloseStdin, 1), (e.Drain, 1), (e.KillRelay, 1), (e.Report, 2)):
        assert sum(isinstance(effect, kind) for effect in effects) <= most


@BRIEF
@given(WORLDS, SCRIPTS)
def test_a_verdict_changes_for_the_better_only(world: World, script: list[e.Event]) -> None:
    """UNCONFIRMED comes at the deadline, and only CONFIRMED follows it."""
    for moment in simulate(world, script).moments:
        if moment.before.stage in JUDGED and moment.after.stage is not moment.before.stage:
            assert moment.before.stage is e.Stage.UNCONFIRMED
            assert moment.after.stage is e.Stage.CONFIRMED
        if e.Report() in moment.effects and moment.after.stage is e.Stage.UNCONFIRMED:
            assert moment.after.schedule is not None
            assert moment.event.at >= moment.after.schedule.deadline_at


@BRIEF
@given(WORLDS, SCRIPTS)
def test_a_relay_that_is_gone_is_not_signalled(world: World, script: list[e.Event]) -> None:
    """Its pid, and its anchor's group, may belong to somebody else by now."""
    for moment in simulate(world, script).moments:
        if moment.before.relay_lost:
            sent = (e.KillRelay, e.KillGroup, e.Nudge, e.Ping)
            assert not any(isinstance(effect, sent) for effect in moment.effects)


def test_a_group_that_is_looked_at_is_looked_at_every_ten_milliseconds() -> None:
    """While a deaf relay is taken over, nobody waits for the group's members but this look."""
    moments = simulate(World(looks=((2, 1),), relay_dies_after_s=NEVER), []).moments
    looks = [m.event.at for m in moments if e.LookAtGroup() in m.effects]

    assert len(looks) >= 45
    gaps = [after - before for before, after in pairwise(looks)]
    assert max(gaps) < LOOK_AGAIN_S * 1.5


def test_custody_goes_on_at_leisure() -> None:
    """A quarantined family costs one look a second."""
    simulation = simulate(World(), [])
    judged_at = simulation.reported_at[0]
    fired = [
        moment.event.at - judged_at
        for moment in simulation.moments
        if isinstance(moment.event, e.TimerFired) and moment.before.stage is e.Stage.UNCONFIRMED
    ]
    assert fired == [CUSTODY_LOOK_S * count for count in range(1, int(AFTER_S) + 1)]
