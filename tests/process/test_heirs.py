"""The daemon as last heir, with real orphans: what is not known to be ours is never signalled.

Each scenario runs in a process of its own (`heirs_host.py`), which is a subreaper; what it leaves
is ended here.
"""

import json
import subprocess  # noqa: TID251 - the heir is a process of its own
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from leftovers import end
from process_table import children_of_self, reap_if_child

HOST: Final = Path(__file__).parent / "heirs_host.py"
DRAINED: Final = "descendants_gone: the daemon drained what it inherited"

Scenario = Callable[[str], dict[str, Any]]


@pytest.fixture
def heir(subreaper: None) -> Scenario:
    """Run one scenario; what it saw."""
    assert subreaper is None

    def run(name: str) -> dict[str, Any]:
        before = children_of_self()
        argv = [sys.executable, str(HOST), name]
        try:
            done = subprocess.run(argv, capture_output=True, check=False, timeout=20)  # noqa: S603 - our own code
        finally:
            # sleepers that outlived the scenario have come to us
            left = children_of_self() - before
            end(left)
            for pid in left:
                reap_if_child(pid)
        assert done.returncode == 0, done.stderr.decode()
        seen = json.loads(done.stdout)
        assert isinstance(seen, dict)
        return seen

    return run


def test_a_stranger_is_never_signalled_and_reaped_when_it_ends(heir: Scenario) -> None:
    """It may be anything: a daemon that another program started through us."""
    assert heir("strangers") == {
        "looked_at": "alive",
        "signalled": False,
        "dead": "zombie",
        "looked_at_dead": "gone",
    }


def test_an_unknown_child_is_not_reaped_while_a_spawn_is_unacknowledged(heir: Scenario) -> None:
    """It may be the new relay, whose exit somebody will wait for."""
    assert heir("spawning") == {"during": "zombie", "after": "gone"}


def test_a_child_that_somebody_waits_for_is_not_reaped(heir: Scenario) -> None:
    """Its wait status would be lost."""
    assert heir("expected") == {"expected": "zombie", "dismissed": "gone"}


ENDED: Final = {
    "before": ["alive", "alive"],
    "after": ["gone", "gone"],
    "signals": ["SIGCONT", "SIGTERM"],
    "signalled": True,
    "exit": "signal 15",
    "learned": ["server_exited: signal 15", DRAINED],
}


def test_what_carries_the_mark_is_ended_reaped_and_reported(heir: Scenario) -> None:
    """Nothing before the drain begins; then SIGTERM with SIGCONT, the exit, the fact."""
    assert heir("drained_by_mark") == {**ENDED, "stranger": ["alive", False]}


def test_where_no_stranger_can_come_no_mark_is_needed(heir: Scenario) -> None:
    """What cleared its environment and made its own session is ended all the same."""
    assert heir("drained_without_mark") == ENDED


def test_what_may_be_another_familys_is_not_signalled(heir: Scenario) -> None:
    """That family may still have its grace; once both are ended there is no doubt left."""
    assert heir("another_is_not_drained") == {"during": False, "both": True, "learned": []}


def test_a_dead_anchor_is_reaped_last(heir: Scenario) -> None:
    """Unreaped it pins the group, which is signalled as one; alive it cleans up by itself."""
    assert heir("anchor_dies_last") == {
        "anchor_got_sigterm": False,
        "pinned": "zombie",
        "group_signals": ["SIGCONT", "SIGTERM", "SIGCONT"],
        "after": ["gone", "gone"],
        "learned": [DRAINED],
    }


def test_what_comes_between_the_list_of_children_and_the_look_is_not_missed(
    heir: Scenario,
) -> None:
    """A dead anchor is not reaped, so nothing else says that the list is out of date."""
    assert heir("anchor_dies_during_a_look") == {
        "learned_early": [],
        "child": "gone",
        "learned": [DRAINED],
    }


def test_what_the_threads_of_a_dead_process_still_hold_is_not_missed(heir: Scenario) -> None:
    """Node and most servers have threads; the first of them ends before the others."""
    assert heir("first_thread_dies_first") == {
        "learned_early": [],
        "child": "gone",
        "learned": [DRAINED],
    }


def test_a_stranger_that_was_here_before_holds_no_drain_open(heir: Scenario) -> None:
    """It cannot be of a family whose relay lived then."""
    assert heir("came_before") == {
        "signalled": False,
        "state": "alive",
        "unattributed": [],
        "learned": [DRAINED],
    }


def test_a_stranger_that_came_with_the_loss_holds_the_drain_open_unharmed(heir: Scenario) -> None:
    """It cleared its environment, or it is somebody else's: both are possible."""
    assert heir("came_after") == {
        "held_open": True,
        "signalled": False,
        "learned_before": [],
        "learned_after": [DRAINED],
        "state": "gone",
    }


def test_while_a_spawn_is_unacknowledged_only_the_mark_counts(heir: Scenario) -> None:
    """A new relay has no mark, and no drain ends before it is known."""
    assert heir("signals_while_spawning") == {
        "during": [True, False],
        "after": [True, True],
        "kept_open": [],
        "learned": [DRAINED],
    }


def test_what_is_deaf_to_sigterm_is_killed_when_the_schedule_says_so(heir: Scenario) -> None:
    """An orphan announces itself by no signal: the heir looks again by itself."""
    seen = heir("killed_at_sigkill")
    assert seen["state"] == "gone"
    assert seen["signals"] == ["SIGTERM", "SIGCONT", "SIGKILL"]
    assert seen["learned"] == [DRAINED]


def test_a_family_that_is_given_up_claims_nothing(heir: Scenario) -> None:
    """`mcpctl release`: its processes are left alone."""
    assert heir("forgotten") == {"signals": ["SIGTERM", "SIGCONT"], "learned": []}


def test_what_an_operator_gave_up_is_not_anothers_to_end(heir: Scenario) -> None:
    """`mcpctl release` leaves its processes alone, whoever else is being drained."""
    assert heir("given_up_beside_a_drain") == {
        "signalled": False,
        "state": "alive",
        "learned": [DRAINED],
    }
