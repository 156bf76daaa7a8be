"""Decides how one family is stopped, and what can be said about it afterwards.

The relay executes the stages of a stop by itself, on a schedule that both sides know. What is
decided here: when a stop begins and who may hurry it, when helpers that are slow or silent are no
longer waited for, when the daemon takes the family over, and the verdict.

- The deadline is fixed by the first request. Joining, forcing and learning never move it; only
  the daemon's own shutdown budget may bring it nearer, and the report then says so.
- A family is CONFIRMED at the instant at which no fact is missing, in whatever stage that is.
- At the deadline comes one last look at every source, then the verdict. UNCONFIRMED is not the
  end of custody: facts are still taken, and a later CONFIRMED amends the report.

A shell hands events to `step` and carries out the effects that come back; it decides nothing.
Instants (`*_at`, `at`) are monotonic seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, assert_never

from supervisor.core import stages
from supervisor.core.evidence import PIPES, Evidence
from supervisor.core.report import FactName, Reason
from supervisor.core.shutdown_events import (
    AnchorLost,
    AskForStop,
    CloseStdin,
    Drain,
    Effect,
    Event,
    FactSeen,
    GroupSeen,
    HelperHeard,
    KillGroup,
    KillRelay,
    LastLook,
    LastLookDone,
    LookAtGroup,
    Nudge,
    Ping,
    ProbeGroup,
    Report,
    Scan,
    Stage,
    StopRequested,
    TellSchedule,
    TimerFired,
    WakeAt,
)

HELPER_PATIENCE_S: Final = 0.25
"""How long a helper may take once nothing is left to wait for: 100 times what it needs."""

OUTPUT_CLOSED_S: Final = 0.1
"""How long after the end of stdout the server may take to exit and be a crash: the kernel closes
the descriptors of a dying process before it reports its death."""

BUDGET_GRAIN_S: Final = 0.01
"""A budget that ends so little before the deadline of a stop does not shorten it."""

LOOK_AGAIN_S: Final = 0.01
"""How soon a group that was killed is looked at again; its members are nobody's to wait for."""

CUSTODY_LOOK_S: Final = 1.0
"""How often a quarantined family is looked at, besides what the kernel announces."""


AT_INSTANT: Final[Mapping[int, Stage]] = MappingProxyType(
    {
        stages.CLOSE: Stage.CLOSING,
        stages.TERM: Stage.TERMINATING,
        stages.KILL: Stage.KILLING,
        stages.OVER: Stage.KILLING,
    }
)
"""What each stage of the schedule is called here; the verdict is given by a last look only."""

JUDGED: Final = frozenset({Stage.CONFIRMED, Stage.UNCONFIRMED})

RECEIPT: Final[tuple[FactName, ...]] = ("closing_receipt", "descendants_gone")
"""What a relay that leaves properly has proved."""

ASKED: Final[frozenset[FactName]] = frozenset({"group_gone", "scan_clean"})
"""What is asked for last: an answer before all else is known would prove nothing."""

ASK_AGAIN_S: Final = 0.25
"""How soon after an answer that found somebody; a scan takes 50 ms of a worker thread."""

STOPPED_BY: Final[Mapping[FactName, Reason]] = MappingProxyType(
    {"server_exited": "crash", "control_closed": "relay_lost"}
)
"""Facts that end a running instance at once, and the reason that its report gives."""


Doing = Literal[
    "nudged",
    "retired",
    "pinged",
    "spared",
    "taken_over",
    "relay_killed",
    "draining",
    "named",
    "probed_last",
]
"""What is done once in a stop; each is in `Shutdown.done` from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """The whole state of one stop; `step` returns a new one."""

    stage: Stage = Stage.RUNNING
    reason: Reason = "stop"
    schedule: stages.Schedule | None = None
    shortened_by: str | None = None
    verify: bool = False
    evidence: Evidence = field(default_factory=Evidence)
    heard_at: float = float("-inf")
    done: Mapping[Doing, float] = field(default_factory=dict)
    asked_probe: bool = False
    asked_scan: bool = False

    def did(self, doing: Doing, at: float) -> "Shutdown":
        """The state after `doing` was done."""
        return replace(self, done={**self.done, doing: at})

    @property
    def relay_lost(self) -> bool:
        """The relay is gone and has not proved that all is: the daemon is the heir."""
        states = map(self.evidence.state, RECEIPT)
        gone = self.evidence.has("relay_exited", "control_closed")
        return gone and any(state != "confirmed" for state in states)


def step(state: Shutdown, event: Event) -> tuple[Shutdown, tuple[Effect, ...]]:
    """Apply one event.

    Args:
        state: what `step` returned last, or a new `Shutdown()`.
        event: what the shell saw; its `at` must not be older than the last event's.

    Returns:
        The new state and the effects to carry out, in order.
    """
    if state.stage is Stage.CONFIRMED:
        return state, ()
    match event:
        case StopRequested():
            state, effects = _request(state, event)
        case FactSeen():
            state, effects = _learn(state, event)
        case HelperHeard():
            return replace(state, heard_at=event.at), ()
        case AnchorLost():
            asks = state.stage is Stage.RUNNING
            return state, (AskForStop("anchor_lost"),) if asks else ()
        case GroupSeen():
            state, effects = _group(state, event)
        case TimerFired():
            state, effects = _timer(state, event.at)
        case LastLookDone():
            state, effects = _judge(state, event.at)
        case _:
            assert_never(event)
    return _settle(state, effects, event.at)


def _request(state: Shutdown, event: StopRequested) -> tuple[Shutdown, tuple[Effect, ...]]:
    state = replace(state, verify=state.verify or event.verify)
    effects: tuple[Effect, ...] = ()
    if state.schedule is None:
        policy = event.policy
        schedule = stages.plan(
            event.at, policy.term_after_s, policy.kill_after_s, policy.deadline_s
        )
        if state.evidence.has("server_exited"):
            schedule = stages.pull_forward(schedule, event.at, stages.TERM)
        state = replace(state, schedule=schedule, reason=event.reason, stage=Stage.CLOSING)
        effects = (CloseStdin(),)
    elif state.stage in JUDGED:
        return state, ()
    schedule = hurried = _scheduled(state)
    if event.force:
        hurried = stages.pull_forward(hurried, event.at, stages.KILL)
    if event.budget_at is not None and event.budget_at < hurried.deadline_at - BUDGET_GRAIN_S:
        hurried = stages.nearer(hurried, event.budget_at)
        state = replace(state, shortened_by="the daemon's own shutdown")
    state = replace(state, schedule=hurried)
    if not effects and hurried is schedule:
        return state, ()
    return state, (*effects, TellSchedule(hurried))


def _learn(state: Shutdown, event: FactSeen) -> tuple[Shutdown, tuple[Effect, ...]]:
    before = state.evidence
    evidence = before.learn(event.fact, event.state, event.at, event.evidence)
    if evidence is before:
        return state, ()
    # what was asked before this was known has to be asked again
    again = event.fact not in ASKED
    state = replace(
        state,
        evidence=evidence,
        asked_probe=state.asked_probe and not again,
        asked_scan=state.asked_scan and not again,
    )
    if state.stage is Stage.RUNNING:
        reason = STOPPED_BY.get(event.fact) if event.state == "confirmed" else None
        return state, () if reason is None else (AskForStop(reason),)
    if event.fact == "server_exited" and state.stage is Stage.CLOSING:
        hurried = stages.pull_forward(_scheduled(state), event.at, stages.TERM)
        return replace(state, schedule=hurried), ()
    return state, ()


def _timer(state: Shutdown, now: float) -> tuple[Shutdown, tuple[Effect, ...]]:
    if state.stage is Stage.RUNNING:
        closed_at = state.evidence.at("stdout_eof")
        if closed_at is not None and now >= closed_at + OUTPUT_CLOSED_S:
            return state, (AskForStop("output_closed"),)
        return state, ()
    if state.stage in JUDGED:
        return replace(state, asked_probe=False, asked_scan=False), ()
    schedule = _scheduled(state)
    state = replace(state, stage=AT_INSTANT[stages.stage_at(schedule, now)])
    if now >= schedule.deadline_at:
        return state, (LastLook(),)
    if _finds_somebody(state):
        state = replace(state, asked_probe=False, asked_scan=False)
    effects: list[Effect] = []
    for due_at, doing, act in _duties(state):
        if now >= due_at and doing not in state.done:
            state = state.did(doing, now)
            effects += act
    if _takes_over(state):
        effects.append(LookAtGroup())
    return state, tuple(effects)


def _duties(state: Shutdown) -> list[tuple[float, Doing, tuple[Effect, ...]]]:
    """What is done once in this stop, and from when on, as far as it is known now."""
    schedule, known = _scheduled(state), state.evidence
    duties: list[tuple[float, Doing, tuple[Effect, ...]]] = [
        (stages.last_word_at(schedule), "named", (Scan(judge=False),))
    ]
    if state.relay_lost:
        return duties
    receipt_at = known.at("closing_receipt")
    if receipt_at is not None:
        # it has proved that all is gone, so nothing is lost with it
        return [*duties, (receipt_at + HELPER_PATIENCE_S, "relay_killed", (KillRelay(),))]
    duties.append((schedule.kill_at, "pinged", (Ping(),)))
    silent_at = stages.silent_at(schedule)
    if state.heard_at < schedule.kill_at:
        duties.append((silent_at, "taken_over", (KillGroup(),)))
    exited_at = known.at("server_exited")
    if exited_at is None:
        return duties
    duties.append((exited_at + HELPER_PATIENCE_S, "nudged", (Nudge(retire=False),)))
    closed = [at for at in map(known.at, PIPES) if at is not None]
    if len(closed) == len(PIPES):
        idle_at = max(exited_at, *closed) + HELPER_PATIENCE_S
        duties.append((idle_at, "retired", (Nudge(retire=True),)))
        nudged_at = state.done.get("retired")
        deaf = nudged_at is not None and state.heard_at < nudged_at
        if nudged_at is not None and deaf and "spared" not in state.done:
            duties.append((nudged_at + HELPER_PATIENCE_S, "taken_over", ()))
    return duties


def _group(state: Shutdown, event: GroupSeen) -> tuple[Shutdown, tuple[Effect, ...]]:
    """A helper is deaf: kill the anchor's group once only it is left, then the relay."""
    if state.stage in JUDGED or not _takes_over(state) or "relay_killed" in state.done:
        return state, ()
    if not event.living:
        return state.did("relay_killed", event.at), (KillRelay(),)
    if event.beyond_anchor and event.at < stages.silent_at(_scheduled(state)):
        # somebody may still use the grace; the relay's silence is judged when it is over
        done: dict[Doing, float] = {**state.done, "spared": event.at}
        done.pop("taken_over", None)
        return replace(state, done=done), ()
    return state, (KillGroup(),)


def _takes_over(state: Shutdown) -> bool:
    """Whether the group is looked at: only an unreaped anchor pins its number."""
    pinned = not state.relay_lost and state.evidence.at("closing_receipt") is None
    return pinned and "taken_over" in state.done


def _finds_somebody(state: Shutdown) -> bool:
    """Whether all that is missing was asked for and contradicted: nothing announces its end."""
    missing = state.evidence.missing
    contradicted = any(state.evidence.state(name) == "contradicted" for name in missing)
    return contradicted and ASKED.issuperset(missing)


def _judge(state: Shutdown, now: float) -> tuple[Shutdown, tuple[Effect, ...]]:
    missing = state.evidence.missing
    if state.stage in JUDGED or not missing:
        return state, ()
    if ASKED.issuperset(missing) and "group_gone" in missing and "probed_last" not in state.done:
        # the probe is a source too, and could not be asked before the others had spoken
        state = replace(state.did("probed_last", now), asked_probe=True)
        return state, (ProbeGroup(), LastLook())
    return replace(state, stage=Stage.UNCONFIRMED), (Report(),)


def _settle(
    state: Shutdown, effects: tuple[Effect, ...], now: float
) -> tuple[Shutdown, tuple[Effect, ...]]:
    """Ask for what can be asked now, give the verdict if nothing is missing, set the timer."""
    if state.stage is Stage.RUNNING:
        closed_at = state.evidence.at("stdout_eof")
        return state, effects if closed_at is None else (
            *effects,
            WakeAt(closed_at + OUTPUT_CLOSED_S),
        )
    if state.stage is Stage.CONFIRMED:
        return state, effects
    more: list[Effect] = []
    if state.relay_lost and "draining" not in state.done:
        state = state.did("draining", now)
        more.append(Drain())
    state = _not_needed(state, now)
    missing = state.evidence.missing
    if missing and ASKED.issuperset(missing):
        if "group_gone" in missing and not state.asked_probe:
            state = replace(state, asked_probe=True)
            more.append(ProbeGroup())
        elif missing == ("scan_clean",) and not state.asked_scan:
            state = replace(state, asked_scan=True)
            more.append(Scan(judge=True))
    if not missing:
        state = replace(state, stage=Stage.CONFIRMED)
        more.append(Report())
    else:
        more.append(WakeAt(_next_instant(state, now)))
    return state, (*effects, *more)


def _not_needed(state: Shutdown, now: float) -> Shutdown:
    """Say which facts this stop does without, and why."""
    evidence = state.evidence
    proved = all(evidence.state(name) == "confirmed" for name in RECEIPT)
    # what the daemon had to drain, a receipt has not proved
    if proved and "draining" not in state.done and not state.verify:
        evidence = evidence.learn("scan_clean", "not_applicable", now, "the receipt is complete")
    if evidence.has("descendants_gone"):
        if evidence.state("relay_exited") == "not_applicable":
            evidence = evidence.learn("scan_clean", "not_applicable", now, "nothing was started")
        if state.relay_lost:
            for name in ("closing_receipt", "anchor_exited"):
                evidence = evidence.learn(name, "not_applicable", now, "drained by the daemon")
    return state if evidence is state.evidence else replace(state, evidence=evidence)


def _next_instant(state: Shutdown, now: float) -> float:
    """The earliest instant at which `_timer` has something to do."""
    if state.stage is Stage.UNCONFIRMED:
        return now + CUSTODY_LOOK_S
    schedule = _scheduled(state)
    coming = [schedule.deadline_at]
    coming += [at for at in (schedule.term_at, schedule.kill_at) if at > now]
    coming += [at for at, doing, _ in _duties(state) if doing not in state.done]
    if _takes_over(state):
        coming.append(now + LOOK_AGAIN_S)
    if _finds_somebody(state):
        coming.append(now + ASK_AGAIN_S)
    return min(coming)


def _scheduled(state: Shutdown) -> stages.Schedule:
    if state.schedule is None:
        message = f"{state.stage} has no schedule: no stop was requested"
        raise ValueError(message)
    return state.schedule
