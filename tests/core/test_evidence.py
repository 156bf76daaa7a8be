"""What is known about the end of a family: facts are learned, never guessed, never taken back."""

import hypothesis.strategies as st
from hypothesis import given, settings

from supervisor.core.evidence import FACTS, Evidence
from supervisor.core.report import FactName, FactState

STATES: tuple[FactState, ...] = ("confirmed", "contradicted", "not_applicable", "missing")
LESSONS = st.lists(
    st.tuples(st.sampled_from(FACTS), st.sampled_from(STATES), st.floats(0.0, 9.0), st.text()),
    max_size=40,
)


def learned(*lessons: tuple[FactName, FactState, float, str]) -> Evidence:
    """What is known after these lessons."""
    evidence = Evidence()
    for lesson in lessons:
        evidence = evidence.learn(*lesson)
    return evidence


def test_at_first_everything_is_missing() -> None:
    """Silence proves nothing."""
    assert Evidence().missing == FACTS
    assert not Evidence().has("server_exited")
    assert Evidence().at("server_exited") is None


def test_the_facts_are_those_of_the_design() -> None:
    """Their names are part of the API (design section 6); the cgroup comes later."""
    assert FACTS == (
        "server_exited",
        "relay_exited",
        "descendants_gone",
        "group_gone",
        "stdout_eof",
        "stderr_eof",
        "lineage_eof",
        "control_closed",
        "closing_receipt",
        "anchor_exited",
        "scan_clean",
    )


def test_a_fact_keeps_its_first_confirmation() -> None:
    """A pidfd, the relay and a wait may all say the same; the report shows when it was known."""
    evidence = learned(
        ("server_exited", "confirmed", 1.0, "exit code 0"),
        ("server_exited", "confirmed", 2.0, "its pidfd is readable"),
        ("server_exited", "contradicted", 3.0, "a mistake"),
    )
    assert evidence.at("server_exited") == 1.0
    assert evidence.known["server_exited"].evidence == "exit code 0"


def test_a_contradiction_is_missing_until_something_better_is_seen() -> None:
    """A group that still had members may be gone when it is probed again."""
    contradicted = learned(("group_gone", "contradicted", 1.0, "it has members"))
    assert "group_gone" in contradicted.missing
    assert contradicted.at("group_gone") is None

    confirmed = contradicted.learn("group_gone", "confirmed", 2.0, "ESRCH")
    assert confirmed.at("group_gone") == 2.0


def test_what_is_not_needed_is_not_missing_and_has_no_instant() -> None:
    """It was never seen; nothing may be counted from it."""
    evidence = learned(("scan_clean", "not_applicable", 1.0, "the receipt is complete"))
    assert evidence.has("scan_clean")
    assert evidence.at("scan_clean") is None


def test_the_report_counts_from_the_request_and_never_below_zero() -> None:
    """A crash is known before anybody asks for a stop."""
    evidence = learned(
        ("server_exited", "confirmed", 9.0, "signal 11"),
        ("stdout_eof", "confirmed", 10.25, "EOF"),
        ("group_gone", "contradicted", 10.5, "it has members"),
    )
    facts = {fact.name: fact for fact in evidence.as_facts(requested_at=10.0)}

    assert facts["server_exited"].at_s == 0.0
    assert facts["stdout_eof"].at_s == 0.25
    assert (facts["group_gone"].state, facts["group_gone"].at_s) == ("contradicted", None)
    assert (facts["relay_exited"].state, facts["relay_exited"].evidence) == ("missing", "")
    assert tuple(facts) == FACTS


@settings(deadline=None)
@given(LESSONS)
def test_whatever_is_learned_a_confirmed_fact_stays(
    lessons: list[tuple[FactName, FactState, float, str]],
) -> None:
    """And what is missing is exactly what is neither confirmed nor unneeded."""
    evidence = Evidence()
    for lesson in lessons:
        before, evidence = evidence, evidence.learn(*lesson)
        for fact in FACTS:
            if before.state(fact) == "confirmed":
                assert evidence.known[fact] is before.known[fact]
    unproved = {fact for fact in FACTS if evidence.state(fact) in {"missing", "contradicted"}}
    assert set(evidence.missing) == unproved
