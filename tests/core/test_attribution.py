"""Whose an orphan is that came to the daemon: what nobody can claim is never signalled."""

import hypothesis.strategies as st
from hypothesis import given, settings

from supervisor.core.attribution import Attributed, Claim, Identity, Orphan, attribute
from supervisor.core.ids import InstanceId

A, B = InstanceId("a" * 16), InstanceId("b" * 16)


def orphan(
    pid: int,
    *,
    start: int = 1,
    pgid: int = 900,
    sid: int = 901,
    mark: str | None = None,
    zombie: bool = False,
) -> Orphan:
    """A child of the daemon that it did not start; by default with nothing to know it by."""
    return Orphan(
        identity=Identity(pid, start), pgid=pgid, sid=sid, mark=mark, zombie=zombie, command="x"
    )


def claim(
    instance: InstanceId,
    *,
    sessions: tuple[int, ...] = (),
    identities: tuple[Identity, ...] = (),
    strangers: tuple[Identity, ...] = (),
) -> Claim:
    """A family that lost its relay."""
    return Claim(
        instance=instance,
        sessions=frozenset(sessions),
        identities=frozenset(identities),
        strangers=frozenset(strangers),
    )


def owned(found: Attributed, instance: InstanceId) -> list[int]:
    """Pids that this family owns."""
    return [o.identity.pid for o in found.owned[instance]]


def held_open(found: Attributed, instance: InstanceId) -> list[int]:
    """Pids that hold this family's drain open."""
    return [o.identity.pid for o in found.unattributed[instance]]


def test_a_mark_names_the_family() -> None:
    """It is inherited by whatever does not clear its environment, in any session."""
    found = attribute([orphan(5, mark=B)], [claim(A), claim(B)])
    assert (owned(found, A), owned(found, B)) == ([], [5])
    assert held_open(found, A) == held_open(found, B) == []


def test_a_reported_identity_names_the_family_of_an_orphan_without_a_mark() -> None:
    """The relay told of it while it lived."""
    found = attribute([orphan(5, start=7)], [claim(A, identities=(Identity(5, 7),))])
    assert owned(found, A) == [5]


def test_a_pid_with_another_start_is_somebody_else() -> None:
    """A number is handed out again."""
    found = attribute([orphan(5, start=8)], [claim(A, identities=(Identity(5, 7),))])
    assert owned(found, A) == []
    assert held_open(found, A) == [5]


def test_a_session_or_a_group_that_the_family_made_names_it() -> None:
    """Its anchor's and relay's, and those of descendants that lead one."""
    found = attribute([orphan(5, sid=70), orphan(6, pgid=70)], [claim(A, sessions=(70,))])
    assert owned(found, A) == [5, 6]


def test_a_mark_counts_more_than_an_identity_and_that_more_than_a_session() -> None:
    """The mark cannot be recycled, an identity within 10 ms, a session number after its end."""
    everything_of_a = claim(A, sessions=(70,), identities=(Identity(5, 1),))
    by_mark = attribute([orphan(5, sid=70, mark=B)], [everything_of_a, claim(B)])
    by_identity = attribute(
        [orphan(5, sid=70)], [claim(A, sessions=(70,)), claim(B, identities=(Identity(5, 1),))]
    )
    assert owned(by_mark, B) == [5]
    assert owned(by_identity, B) == [5]


def test_an_orphan_that_nobody_can_claim_holds_every_drain_open() -> None:
    """It may be either's: neither can say that its descendants are gone."""
    found = attribute([orphan(5)], [claim(A), claim(B)])
    assert owned(found, A) == owned(found, B) == []
    assert held_open(found, A) == held_open(found, B) == [5]


def test_a_child_that_was_there_before_the_relay_was_lost_holds_nothing_open() -> None:
    """It cannot be of that family; of one that lost its relay earlier, it may."""
    found = attribute([orphan(5)], [claim(A, strangers=(Identity(5, 1),)), claim(B)])
    assert held_open(found, A) == []
    assert held_open(found, B) == [5]


def test_a_zombie_that_nobody_can_claim_holds_nothing_open() -> None:
    """Its environment cannot be read any more, and it is reaped anyway."""
    found = attribute([orphan(5, zombie=True)], [claim(A)])
    assert owned(found, A) == held_open(found, A) == []


def test_a_mark_of_a_family_that_does_not_drain_is_no_claim_of_another() -> None:
    """It holds the drains open and is left alone."""
    found = attribute([orphan(5, mark="c" * 16)], [claim(A)])
    assert owned(found, A) == []
    assert held_open(found, A) == [5]


# Few numbers, so that random orphans and claims often meet.
NUMBERS = st.integers(1, 4)
IDENTITIES = st.builds(Identity, NUMBERS, NUMBERS)
ORPHANS = st.lists(
    st.builds(
        Orphan,
        identity=IDENTITIES,
        pgid=NUMBERS,
        sid=NUMBERS,
        mark=st.sampled_from([None, A, B, "c" * 16]),
        zombie=st.booleans(),
        command=st.just("x"),
    ),
    unique_by=lambda o: o.identity.pid,
)
CLAIMS = st.lists(
    st.builds(
        Claim,
        instance=st.sampled_from([A, B]),
        sessions=st.frozensets(NUMBERS),
        identities=st.frozensets(IDENTITIES),
        strangers=st.frozensets(IDENTITIES),
    ),
    unique_by=lambda c: c.instance,
)


@settings(max_examples=50, deadline=None)
@given(ORPHANS, CLAIMS)
def test_nothing_is_owned_without_a_reason_or_twice(
    orphans: list[Orphan], claims: list[Claim]
) -> None:
    """What is owned gets signals: it must have a mark, an identity, a session or a group."""
    found = attribute(orphans, claims)
    reasons = {c.instance: c for c in claims}
    seen = [o for owned_ in found.owned.values() for o in owned_]

    assert len(seen) == len(set(seen))
    for instance, theirs in found.owned.items():
        known = reasons[instance]
        for o in theirs:
            named = o.mark == instance or o.identity in known.identities
            assert named or {o.sid, o.pgid} & known.sessions


@settings(max_examples=50, deadline=None)
@given(ORPHANS, CLAIMS)
def test_nothing_unattributed_is_ever_owned_and_nothing_alive_is_overlooked(
    orphans: list[Orphan], claims: list[Claim]
) -> None:
    """Every living orphan is somebody's, or holds open all for whom it is no stranger."""
    found = attribute(orphans, claims)
    mine = {o for theirs in found.owned.values() for o in theirs}

    assert set(found.owned) == set(found.unattributed) == {c.instance for c in claims}
    for c in claims:
        waiting = set(found.unattributed[c.instance])
        assert not waiting & mine
        for o in set(orphans) - mine:
            assert (o in waiting) == (not o.zombie and o.identity not in c.strangers)
