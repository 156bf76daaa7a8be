"""What is idle and when: never what is used, and what was used only after its time in full."""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from supervisor.core.leases import (
    NEVER,
    Leases,
    acquired,
    closed,
    idle,
    next_expiry,
    opened,
    released,
    used,
)


def one(idle_s: float = 10.0) -> Leases[str]:
    """A key that was opened at 0."""
    return opened(Leases[str](), "a", idle_s=idle_s, now=0.0)


def test_idle_time_runs_from_the_last_use() -> None:
    """And the timer is told of the instant."""
    leases = used(one(), "a", 4.0)
    assert next_expiry(leases) == 14.0
    assert idle(leases, 13.9) == ()
    assert idle(leases, 14.0) == ("a",)


def test_idle_time_runs_from_the_release_too() -> None:
    """The end of an hour-long call is not the end of its runtime."""
    leases = released(acquired(one(), "a", 1.0), "a", 3600.0)
    assert idle(leases, 3609.0) == ()
    assert idle(leases, 3610.0) == ("a",)


def test_nothing_idles_under_a_use_that_lasts() -> None:
    """A call or an open task may take as long as it likes; each one counts."""
    leases = acquired(acquired(one(), "a", 1.0), "a", 2.0)
    leases = released(leases, "a", 3.0)
    assert next_expiry(leases) is None
    assert idle(leases, 1e9) == ()


def test_zero_means_never() -> None:
    """As `sessionIdleTtlMs` says."""
    assert next_expiry(one(NEVER)) is None
    assert idle(one(NEVER), 1e9) == ()


def test_a_release_after_the_close_changes_nothing() -> None:
    """A session may be ended by force while its calls are still returning."""
    leases = closed(acquired(one(), "a", 1.0), "a")
    assert released(leases, "a", 2.0) == leases
    assert used(leases, "a", 2.0) == leases
    assert leases.get("a") is None


def test_the_longest_unused_comes_first() -> None:
    """Where several are over, the order of reclaiming is that of their ends."""
    leases = opened(one(10.0), "b", idle_s=5.0, now=1.0)
    assert next_expiry(leases) == 6.0
    assert idle(leases, 20.0) == ("b", "a")


def test_a_new_idle_time_applies_without_a_new_key() -> None:
    """A changed configuration keeps what is held."""
    leases = opened(acquired(one(), "a", 1.0), "a", idle_s=3.0, now=2.0)
    assert idle(leases, 100.0) == ()
    assert next_expiry(released(leases, "a", 5.0)) == 8.0


KEYS = st.sampled_from(["a", "b", "c"])


class VirtualTime(RuleBasedStateMachine):
    """Random uses of three keys; a plain model remembers what each was used for last."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.leases = Leases[str]()
        self.model: dict[str, tuple[float, int, float]] = {}

    @rule(key=KEYS, idle_s=st.sampled_from([NEVER, 1.0, 10.0]))
    def open(self, key: str, idle_s: float) -> None:
        """A key is opened, or opened again."""
        self.leases = opened(self.leases, key, idle_s=idle_s, now=self.now)
        self.model[key] = (idle_s, self.model.get(key, (0.0, 0, 0.0))[1], self.now)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), change=st.sampled_from([-1, 0, 1]))
    def use(self, data: st.DataObject, change: int) -> None:
        """A lasting use ends, a short one happens, a lasting one begins."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        idle_s, active, _ = self.model[key]
        if active + change < 0:
            return
        act = {-1: released, 0: used, 1: acquired}[change]
        self.leases = act(self.leases, key, self.now)
        self.model[key] = (idle_s, active + change, self.now)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """A key is gone."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.leases = closed(self.leases, key)
        del self.model[key]

    @rule(seconds=st.sampled_from([0.5, 1.0, 9.0, 100.0]))
    def wait(self, seconds: float) -> None:
        """Time passes, and a timer fires on its way: nothing may be over before it."""
        until, at = self.now + seconds, next_expiry(self.leases)
        if at is not None and self.now < at <= until:
            assert idle(self.leases, (self.now + at) / 2) == idle(self.leases, self.now)
            assert idle(self.leases, at)
        self.now = until

    @invariant()
    def agrees_with_the_model(self) -> None:
        """Exactly what is unused, and has been for its time, is idle."""
        over = {
            key
            for key, (idle_s, active, at) in self.model.items()
            if idle_s != NEVER and active == 0 and self.now >= at + idle_s
        }
        assert set(idle(self.leases, self.now)) == over


TestVirtualTime = VirtualTime.TestCase
