"""What a stop does about helpers that are slow, silent, lost, or say what is no proof."""

import pytest

from core.stopping import (
    BY_THE_RELAY,
    DATA_PIPES,
    RELAY_GONE,
    asked,
    fired,
    group,
    heard,
    instants,
    looked,
    run,
    seen,
    traced,
    wake_at,
)
from supervisor.core.report import FactName
from supervisor.core.shutdown import HELPER_PATIENCE_S, LOOK_AGAIN_S, Shutdown
from supervisor.core.shutdown_events import (
    Drain,
    KillGroup,
    KillRelay,
    LookAtGroup,
    Nudge,
    Ping,
    ProbeGroup,
    Report,
    Scan,
    Stage,
)

SILENT_AT = 4.5
"""Half-way between SIGKILL at 4 s and the deadline at 5 s."""

NAMED_AT = 4.88
"""The last word's instant, 0.12 s before the deadline."""


def silent_since_sigkill() -> Shutdown:
    """A stop whose relay was asked for a word when SIGKILL was due, and says nothing."""
    return run(asked(0.0), fired(2.0), fired(4.0))


def all_pipes_closed(at: float) -> Shutdown:
    """The server has exited and nobody holds a pipe, but the relay does not leave."""
    return run(asked(0.0), seen(at, "server_exited", *DATA_PIPES))


# Silent: half-way between SIGKILL and deadline.


def test_a_relay_is_asked_for_a_word_when_sigkill_is_due() -> None:
    """Silence is judged against a question, not against having had nothing to say."""
    _, effects = traced(fired(4.0), state=run(asked(0.0), fired(2.0)))
    assert effects == [Ping()]


def test_a_relay_that_is_silent_half_way_from_sigkill_is_not_waited_for() -> None:
    """The daemon kills the group, whose id is still pinned, and looks what is left of it."""
    silent = silent_since_sigkill()
    assert wake_at(silent, fired(4.1)) == SILENT_AT

    _, early = traced(fired(4.4), state=silent)
    state, effects = traced(fired(SILENT_AT), state=silent)

    assert early == []
    assert effects == [KillGroup(), LookAtGroup()]
    assert instants(state)[-1] == 5.0


def test_the_relay_is_killed_only_when_nothing_in_its_group_lives() -> None:
    """Killing it sooner would hand a living group, whose leader it holds, to nobody in time."""
    state = run(fired(SILENT_AT), state=silent_since_sigkill())

    state, still = traced(group(4.51, living=2, beyond_anchor=1), state=state)
    assert wake_at(state, fired(4.52)) == pytest.approx(4.52 + LOOK_AGAIN_S)
    state, looking = traced(fired(4.52), state=state)
    state, anchor_only = traced(group(4.52, living=1, beyond_anchor=0), state=state)
    state, gone = traced(group(4.53, living=0, beyond_anchor=0), state=state)
    state, after = traced(group(4.54, living=0, beyond_anchor=0), state=state)

    assert still == [KillGroup()]
    assert looking == [LookAtGroup()]
    assert anchor_only == [KillGroup()]
    assert gone == [KillRelay()]
    assert after == []
    assert state.stage is Stage.KILLING


@pytest.mark.parametrize("at", [4.0, 4.3])
def test_a_relay_that_says_anything_after_sigkill_is_left_to_its_work(at: float) -> None:
    """It may be busy with a family that forks faster than it dies."""
    _, effects = traced(heard(at), fired(SILENT_AT), state=silent_since_sigkill())
    assert effects == []


def test_a_word_from_before_sigkill_is_no_answer() -> None:
    """A relay that was stopped since has not heard the question."""
    _, effects = traced(
        asked(0.0), heard(3.99), fired(4.0), fired(SILENT_AT), state=run(asked(0.0))
    )
    assert effects[-2:] == [KillGroup(), LookAtGroup()]


def test_force_brings_the_judgement_of_silence_forward_as_well() -> None:
    """Half-way from SIGKILL on, wherever SIGKILL is."""
    state = run(asked(0.0), asked(1.0, force=True), fired(1.0))
    assert wake_at(state, fired(1.1)) == 3.0

    _, effects = traced(fired(3.0), state=state)
    assert effects == [KillGroup(), LookAtGroup()]


def test_what_is_left_is_named_shortly_before_the_deadline() -> None:
    """The verdict has the names, and the scan that finds them judges nothing."""
    state = run(fired(SILENT_AT), heard(4.6), state=silent_since_sigkill())
    _, effects = traced(fired(NAMED_AT), state=state)
    assert Scan(judge=False) in effects

    state = run(fired(NAMED_AT), state=state)
    assert Scan(judge=False) not in traced(fired(4.9), state=state)[1]


# Slow: nothing is left to wait for, 0.25 s.


def test_a_relay_that_does_not_follow_the_servers_exit_is_nudged_once() -> None:
    """It may have been stopped; SIGTERM to the rest of the family is due."""
    state = run(asked(0.0), seen(1.0, "server_exited"))
    due_at = 1.0 + HELPER_PATIENCE_S
    assert wake_at(state, fired(1.1)) == due_at

    state, effects = traced(fired(due_at), state=state)
    assert effects == [Nudge(retire=False)]
    assert traced(fired(due_at + 0.1), state=state)[1] == []


def test_an_anchor_that_has_nothing_left_to_hold_is_retired_through_its_relay() -> None:
    """Once no pipe is held, waiting for a stopped anchor proves nothing more."""
    state = all_pipes_closed(1.0)

    _, early = traced(fired(1.2), state=state)
    _, effects = traced(fired(1.0 + HELPER_PATIENCE_S), state=state)

    assert early == []
    assert effects == [Nudge(retire=False), Nudge(retire=True)]


@pytest.mark.parametrize("open_pipe", DATA_PIPES)
def test_an_open_pipe_keeps_the_anchor(open_pipe: FactName) -> None:
    """A descendant that holds a pipe is still to be waited for, and has its grace."""
    closed = [pipe for pipe in DATA_PIPES if pipe != open_pipe]
    state = run(asked(0.0), seen(1.0, "server_exited", *closed))

    state, effects = traced(fired(1.25), fired(1.9), state=state)
    assert Nudge(retire=True) not in effects

    _, effects = traced(seen(1.9, *DATA_PIPES), fired(1.9), fired(2.15), state=state)
    assert effects == [Nudge(retire=True)]


def test_a_relay_that_is_deaf_to_the_nudge_is_killed_when_the_anchors_group_is_gone() -> None:
    """By the daemon directly, long before the deadline."""
    state = run(fired(1.25), state=all_pipes_closed(1.0))

    state, effects = traced(fired(1.5), state=state)
    assert effects == [LookAtGroup()]

    _, anchor_only = traced(group(1.5, living=1, beyond_anchor=0), state=state)
    _, gone = traced(group(1.5, living=0, beyond_anchor=0), state=state)
    assert anchor_only == [KillGroup()]
    assert gone == [KillRelay()]


def test_somebody_in_the_group_spares_a_deaf_relay_until_silence_is_judged() -> None:
    """A member that closed its pipes may still use its grace; a kill before 4.5 s would cut it."""
    state = run(fired(1.25), fired(1.5), state=all_pipes_closed(1.0))

    state, spared = traced(group(1.5, living=2, beyond_anchor=1), state=state)
    state, later = traced(fired(1.6), fired(4.0), fired(4.4), state=state)
    state, silent = traced(fired(SILENT_AT), state=state)
    _, killed = traced(group(SILENT_AT, living=2, beyond_anchor=1), state=state)

    assert spared == []
    assert later == [Ping()]
    assert silent == [KillGroup(), LookAtGroup()]
    assert killed == [KillGroup()]


def test_a_relay_that_answers_the_nudge_is_not_killed() -> None:
    """It has work to do, and reaps the anchor itself."""
    _, effects = traced(fired(1.25), heard(1.3), fired(1.5), state=all_pipes_closed(1.0))
    assert effects == [Nudge(retire=False), Nudge(retire=True)]


def test_a_relay_that_stays_after_its_receipt_is_killed_after_a_quarter_of_a_second() -> None:
    """It has proved that all is gone, so nothing is lost with it."""
    state = run(asked(0.0), seen(1.0, *BY_THE_RELAY[:-2]))

    _, early = traced(fired(1.2), state=state)
    state, effects = traced(fired(1.25), state=state)
    _, again = traced(fired(1.6), state=state)

    assert early == []
    assert effects == [KillRelay()]
    assert again == []
    _, effects = traced(seen(1.3, *RELAY_GONE), seen(1.3, "group_gone"), state=state)
    assert effects == [ProbeGroup(), Report()]


# Lost: the daemon is the heir.


@pytest.mark.parametrize(("first", "second"), [RELAY_GONE, RELAY_GONE[::-1]])
def test_a_lost_relay_lets_the_daemon_drain_once(first: FactName, second: FactName) -> None:
    """Only when both its exit and the end of its socket are seen: a last word may wait in it."""
    state, waiting = traced(asked(0.0), seen(1.0, first))
    state, effects = traced(seen(1.1, second), state=state)
    _, later = traced(fired(2.0), seen(2.1, "stdout_eof"), fired(4.0), state=state)

    assert Drain() not in waiting
    assert effects == [Drain()]
    assert Drain() not in later


def test_after_a_lost_relay_receipt_and_anchor_are_not_needed_once_the_drain_is_done() -> None:
    """Only then: until the daemon has drained, silence of the relay proves nothing."""
    state = run(asked(0.0), seen(1.0, *RELAY_GONE, "server_exited", *DATA_PIPES))
    assert state.evidence.state("closing_receipt") == "missing"
    assert state.evidence.state("anchor_exited") == "missing"

    state, effects = traced(seen(1.2, "descendants_gone"), state=state)

    assert state.evidence.state("closing_receipt") == "not_applicable"
    assert state.evidence.state("anchor_exited") == "not_applicable"
    assert effects == [ProbeGroup()]


def test_after_a_lost_relay_a_scan_has_to_be_clean() -> None:
    """No receipt, so that /proc is asked as well (design section 6)."""
    state = run(asked(0.0), seen(1.0, *RELAY_GONE, "server_exited", *DATA_PIPES))
    state, effects = traced(seen(1.2, "descendants_gone"), seen(1.2, "group_gone"), state=state)

    assert effects == [ProbeGroup(), Scan(judge=True)]
    assert state.evidence.missing == ("scan_clean",)
    assert run(seen(1.3, "scan_clean"), state=state).stage is Stage.CONFIRMED


def test_a_lost_relay_is_neither_pinged_nor_nudged_nor_killed() -> None:
    """There is nobody to hear it, and its pid may be another's."""
    state = run(asked(0.0), seen(1.0, *RELAY_GONE, "server_exited", *DATA_PIPES))
    _, effects = traced(
        *map(fired, (1.3, 1.6, 2.0, 4.0, SILENT_AT, 4.7)),
        group(4.7, living=0, beyond_anchor=0),
        state=state,
    )
    assert effects == []


def test_a_relay_that_leaves_with_its_receipt_is_no_loss() -> None:
    """Nothing can have come to the daemon, so there is nothing to drain."""
    _, effects = traced(asked(0.0), seen(0.1, *BY_THE_RELAY))
    assert Drain() not in effects


def test_a_receipt_without_echild_is_no_proof() -> None:
    """The relay still had children: what it left comes to the daemon, which drains it."""
    named = BY_THE_RELAY[: BY_THE_RELAY.index("descendants_gone")]
    state = run(asked(0.0), seen(1.0, *named))
    state = run(seen(1.0, "descendants_gone", state="contradicted"), state=state)
    assert "descendants_gone" in state.evidence.missing

    state, effects = traced(seen(1.1, *RELAY_GONE), state=state)
    assert effects == [Drain()]
    assert state.stage not in {Stage.CONFIRMED, Stage.UNCONFIRMED}

    state = run(fired(5.0), looked(5.0), state=state)
    assert state.stage is Stage.UNCONFIRMED


def test_after_a_receipt_that_contradicts_a_scan_has_to_be_clean() -> None:
    """It is needed where the receipt is missing or contradicted (design section 6)."""
    state = run(asked(0.0), seen(1.0, *BY_THE_RELAY[: BY_THE_RELAY.index("descendants_gone")]))
    state = run(seen(1.0, "descendants_gone", state="contradicted"), state=state)
    state, effects = traced(
        seen(1.1, *RELAY_GONE),
        seen(1.2, "descendants_gone"),
        seen(1.2, "group_gone"),
        state=state,
    )

    assert effects == [Drain(), ProbeGroup(), Scan(judge=True)]
    assert state.evidence.missing == ("scan_clean",)


def test_after_the_receipt_the_group_is_neither_looked_at_nor_killed() -> None:
    """The relay has reaped the anchor: from then on the number may be another group's."""
    state = run(fired(SILENT_AT), heard(4.51), state=silent_since_sigkill())
    state = run(seen(4.51, *BY_THE_RELAY[:-2]), state=state)

    _, effects = traced(fired(4.52), group(4.52, living=1, beyond_anchor=1), state=state)
    assert effects == []


def test_a_launch_without_a_relay_needs_its_pipes_only() -> None:
    """Neither fork nor exec gave one: there is no process to prove anything about."""
    nothing = [fact for fact in BY_THE_RELAY if fact not in {*DATA_PIPES, "control_closed"}]
    state = run(seen(0.0, *nothing, state="not_applicable"))
    state = run(asked(0.0, reason="start_failed"), state=state)
    assert state.stage is Stage.CLOSING

    state, effects = traced(seen(0.1, *DATA_PIPES, "control_closed"), state=state)
    assert ProbeGroup() in effects
    state = run(seen(0.1, "group_gone", state="not_applicable"), state=state)
    assert state.stage is Stage.CONFIRMED
