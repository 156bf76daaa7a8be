"""The daemon as last heir: what comes to it when a relay dies is ended and reaped here.

The daemon is a child subreaper. As long as a relay lives, nothing of its family can come here;
when one dies without a receipt, its family claims what comes, and a drain ends it on the
instance's own schedule. `core/attribution.py` decides whose an orphan is, `core/drain.py` what it
is sent.

An orphan that nobody can claim is signalled only where it cannot be a stranger: a process that is
not init, and had no children before its first, inherits from its own families alone, and of those
only from the ones that lost their relay, all of which are being ended.
"""

import contextlib
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from supervisor.core import stages
from supervisor.core.attribution import Identity, Orphan, attribute
from supervisor.core.drain import DrainSignal, Send, plan_drain
from supervisor.core.ids import Pgid, Pid
from supervisor.linux import reaping
from supervisor.linux.processes import read_orphan, read_stat
from supervisor.linux.reaping import Exited
from supervisor.linux.signals import signal_child, signal_group

if TYPE_CHECKING:
    from supervisor.core.report import SignalTarget
    from supervisor.process.family import Family

_log = structlog.get_logger(__name__)

FASTEST_LOOK_S: Final = 0.005
SLOWEST_LOOK_S: Final = 0.1
"""While a drain is under way: an orphan that arrives alive announces itself by no signal, so the
list of children is looked at again, less and less often, besides every SIGCHLD."""

LOOK_SHARE: Final = 4.0
"""How many times what a look costs passes until the next one that a signal asks for."""

SLICE_S: Final = 0.02
"""How long one look may hold up the loop, and with it the timers of all stops."""


@dataclass(slots=True)
class _Drain:
    """One family that lost its relay."""

    family: "Family"
    strangers: frozenset[Identity]
    active: bool = False
    sent: dict[Identity, DrainSignal] = field(default_factory=dict)
    group_sent: set[signal.Signals] = field(default_factory=set)


class Heirs:
    """Knows every child of the daemon that is expected, and owns all others.

    Attributes:
        spawning: spawns whose relay is not known yet: it may be an unexpected child of ours, so
            that none is reaped, and none without a mark is signalled, until it is known.
    """

    def __init__(self) -> None:
        self.spawning = 0
        self._strangers_come = os.getpid() == 1 or bool(reaping.own_children())
        self._seen: dict[Identity, Orphan] = {}
        self._last_pid = Pid(0)
        self._unfinished = False
        self._looked_at = float("-inf")
        self._look_cost_s = 0.0
        self._expected: set[Pid] = set()
        self._drains: dict[str, _Drain] = {}
        self._strangers: set[Identity] = set()
        self._wake = anyio.Event()

    def expect(self, pid: Pid) -> None:
        """A child that somebody else waits for: a relay or a fork server."""
        self._expected.add(pid)

    def dismiss(self, pid: Pid) -> None:
        """It has been reaped."""
        self._expected.discard(pid)

    def claim(self, family: "Family") -> None:
        """The relay of `family` is gone: what comes from now on may be its family's."""
        if family.relay_pid is not None:
            self.dismiss(family.relay_pid)
        self._drains.setdefault(family.id, _Drain(family, frozenset(self._strangers)))

    def drain(self, family: "Family") -> None:
        """End and reap what `family` left to us."""
        self.claim(family)
        self._drains[family.id].active = True
        self._wake.set()
        self.look()

    def forget(self, family: "Family") -> None:
        """Nothing more is expected of `family`; what is left of it is not another's to end."""
        left = {o.identity for o in self.inherited(family) if o not in family.unattributed}
        self._drains.pop(family.id, None)
        for drain in self._drains.values():
            drain.strangers |= left
        if family.relay_pid is not None:
            self.dismiss(family.relay_pid)

    def look(self) -> None:
        """Reap what is dead, signal what is due, say what is drained.

        Blocks: for a slice of time at most; what it did not get to is next at the next look.
        """
        began_at = anyio.current_time()
        try:
            orphans, complete = self._orphans(began_at + SLICE_S)
        except OSError as error:  # out of files: nothing can be said, so look again
            _log.warning("children_not_listed", errno=error.errno)
            self._unfinished = True
            return
        pinned = {d.family.anchor for d in self._drains.values()}
        if not self.spawning:
            dead = [o for o in orphans if o.zombie and o.identity not in pinned]
            for orphan in dead:
                self._reap(orphan)
            # What the dead held has come to us meanwhile, or comes when the last thread of one
            # ends: its first is a zombie before, and hands its children to the others.
            complete = complete and not dead
        claims = [d.family.claim(d.strangers) for d in self._drains.values()]
        attributed = attribute(orphans, claims)
        complete = complete and self._nothing_new(orphans)
        self._remember_strangers(orphans)
        for drain in tuple(self._drains.values()):
            owned = tuple(o for o in attributed.owned[drain.family.id] if not o.zombie)
            anchor = next((o for o in orphans if o.identity == drain.family.anchor), None)
            nobodys = attributed.unattributed[drain.family.id]
            drain.family.unattributed = nobodys
            for orphan in owned:
                drain.family.remember(orphan.identity, orphan.pgid, orphan.sid)
            if drain.active:
                self._send(drain, owned, anchor)
                if not self._strangers_come and all(d.active for d in self._drains.values()):
                    self._send(drain, nobodys, None)
                if complete and not owned and not nobodys and not self.spawning:
                    self._finish(drain, anchor)
        self._unfinished = not complete
        self._looked_at = anyio.current_time()
        self._look_cost_s = self._looked_at - began_at

    def _nothing_new(self, orphans: tuple[Orphan, ...]) -> bool:
        """Whether no child has come since the list was read, where that may decide.

        A child may die between the list and the look at it, as a zombie that is not reaped (the
        anchor, which pins its group): what it held came here after the list.
        """
        if not any(drain.active for drain in self._drains.values()):
            return True
        listed = {Pid(orphan.identity.pid) for orphan in orphans}
        try:
            return reaping.own_children() <= self._expected | listed
        except OSError:
            return False

    def _finish(self, drain: _Drain, anchor: Orphan | None) -> None:
        """All but a dead anchor is gone: now its group id may be given back."""
        if anchor is not None:
            self._reap(anchor)
        self._drains.pop(drain.family.id)
        drain.family.learn("descendants_gone", "the daemon drained what it inherited")

    def inherited(self, family: "Family") -> tuple[Orphan, ...]:
        """What of `family`, or possibly of it, is a living child of this process right now."""
        drain = self._drains.get(family.id)
        if drain is None:
            return ()
        try:
            orphans, _ = self._orphans(anyio.current_time() + SLICE_S)
        except OSError:
            return ()
        found = attribute(orphans, [family.claim(drain.strangers)])
        owned = (o for o in found.owned[family.id] if not o.zombie)
        return (*owned, *found.unattributed[family.id])

    def look_soon(self) -> None:
        """Look now, unless looking takes long and was done just now.

        Five hundred orphans die one by one, and each death is announced.
        """
        if anyio.current_time() >= self._looked_at + LOOK_SHARE * self._look_cost_s:
            self.look()
        else:
            self._unfinished = True
            self._wake.set()

    async def run(self) -> None:
        """Look again and again while a drain is under way; otherwise wait for one."""
        pause_s = FASTEST_LOOK_S
        while True:
            if not self._unfinished and not any(d.active for d in self._drains.values()):
                await self._wake.wait()
                self._wake = anyio.Event()
                pause_s = FASTEST_LOOK_S
            await anyio.sleep(pause_s)
            self.look()
            hurried = self._unfinished or any(map(self._kills, self._drains.values()))
            pause_s = FASTEST_LOOK_S if hurried else min(pause_s * 1.5, SLOWEST_LOOK_S)

    def _kills(self, drain: _Drain) -> bool:
        """Whether SIGKILL is due and the deadline is not over: what respawns needs many tries."""
        return drain.active and self._stage(drain) == stages.KILL

    def _orphans(self, until: float) -> tuple[tuple[Orphan, ...], bool]:
        """Unexpected children, and whether all of them were looked at before `until`.

        Marks are read only where they decide: where strangers come, or several families drain.
        """
        reads_marks = self._strangers_come or len(self._drains) != 1
        pids = sorted(reaping.own_children() - self._expected)
        # begin where the last look ended, so that each gets its turn
        later = [pid for pid in pids if pid > self._last_pid]
        orphans: list[Orphan] = []
        complete = True
        for pid in (*later, *(pid for pid in pids if pid <= self._last_pid)):
            if anyio.current_time() > until:
                complete = False
                break
            found = read_orphan(pid, self._seen if reads_marks else None)
            if found is not None:
                orphans.append(found)
            self._last_pid = pid
        if reads_marks and complete:
            self._seen = {o.identity: o for o in orphans if o.mark is not None}
        return tuple(orphans), complete

    def _remember_strangers(self, orphans: tuple[Orphan, ...]) -> None:
        """What was here while every relay lived belongs to no family of ours.

        The kernel hands orphans over and makes their parent a zombie in one step. But a relay
        that has begun to exit is passed over already when its anchor dies, so that what the
        anchor held comes here. A relay that has not begun to after the list was read had nothing
        in it.
        """
        living = {orphan.identity for orphan in orphans if not orphan.zombie}
        self._strangers &= living
        quiet = living - self._strangers and not self._drains and not self.spawning
        if quiet and all(self._lives(pid) for pid in self._expected):
            self._strangers |= living

    @staticmethod
    def _lives(pid: Pid) -> bool:
        try:
            stat = read_stat(pid)
        except OSError:
            return False
        return stat is not None and not stat.exiting

    def _reap(self, orphan: Orphan) -> bool:
        if not orphan.zombie:
            return False
        with contextlib.suppress(ChildProcessError):
            exited = reaping.reap_pid(Pid(orphan.identity.pid))
            if exited is not None:
                self._tell_exit(orphan.identity, exited)
                return True
        return False

    def _tell_exit(self, identity: Identity, exited: Exited) -> None:
        for drain in self._drains.values():
            if drain.family.server == identity:
                drain.family.take_exit(exited)
                drain.family.learn("server_exited", str(exited))

    def _send(self, drain: _Drain, living: tuple[Orphan, ...], anchor: Orphan | None) -> None:
        stage = self._stage(drain)
        if living and anchor is not None and (anchor.zombie or stage >= stages.KILL):
            self._signal_group(drain, anchor, stage)
        if self.spawning:
            living = tuple(orphan for orphan in living if orphan.mark is not None)
        for send in plan_drain(living, drain.family.anchor, stage, drain.sent):
            first = drain.sent.get(send.identity) != send.signal
            drain.sent[send.identity] = send.signal
            self._signal(drain, send, record=first)

    @staticmethod
    def _stage(drain: _Drain) -> int:
        schedule = drain.family.schedule
        # there is no grace for a family that lost its relay
        now = anyio.current_time()
        return stages.TERM if schedule is None else max(stages.TERM, stages.stage_at(schedule, now))

    @staticmethod
    def _signal_group(drain: _Drain, anchor: Orphan, stage: int) -> None:
        """Signal the group whose leader is our unreaped child: all members in one step.

        A living anchor has sent SIGTERM by itself. SIGKILL comes again and again.
        """
        signals = (signal.SIGTERM, signal.SIGCONT) if stage == stages.TERM else (signal.SIGKILL,)
        for number in signals:
            again = number in drain.group_sent
            if again and number != signal.SIGKILL:
                continue
            result = signal_group(Pgid(anchor.identity.pid), number)
            if not again:
                drain.group_sent.add(number)
                drain.family.record("group", anchor.identity.pid, number, result)

    @staticmethod
    def _signal(drain: _Drain, send: Send, *, record: bool) -> None:
        number = signal.Signals[send.signal]
        result = signal_child(Pid(send.identity.pid), number)
        is_anchor = send.identity == drain.family.anchor
        if record or result.outcome == "refused":
            target: SignalTarget = "anchor" if is_anchor else "orphan"
            drain.family.record(target, send.identity.pid, number, result)
