"""The sessions of the daemon: created, reused, changed and deleted by their keys.

Work on one key is serialised; others do not wait. A session is a plan and what came of it: its
servers are started by their first use. One that nobody has used for its idle time and that holds
no instance is forgotten.

Source: design section 10.
"""

import secrets
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from supervisor.config.models import Server
from supervisor.config.states import state_of
from supervisor.core import leases
from supervisor.core.call_errors import CallError, ProtocolVersionError
from supervisor.core.errors import UnknownServerError
from supervisor.core.fingerprint import canonical
from supervisor.core.ids import SHARED, ServerName, SessionKey
from supervisor.core.leases import Leases
from supervisor.core.negotiation import Handshake
from supervisor.core.tool_errors import UnknownSessionError
from supervisor.core.views import (
    ProbeView,
    SessionAnswer,
    SessionServerView,
    SessionView,
    StopAnswer,
)
from supervisor.manager.session_channels import SessionChannel
from supervisor.process.custody import Held
from supervisor.runtime.opening import Opened
from supervisor.runtime.probe import probe
from supervisor.runtime.session import SessionPlan, SessionRuntime
from supervisor.telemetry.masking import mask_text

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager

MAX_NOTED: Final = 4096
"""Tools of which it is remembered that people were told; a server may list thousands."""

DAEMON: Final = "mcp-supervisord"
"""The identity of the daemon among those who make handshakes."""


class Runtimes:
    """All sessions; gives their connections the instances that they ask for."""

    def __init__(self, manager: "Manager", tasks: TaskGroup, key: bytes, concurrency: int) -> None:
        self.cold_starts: Final = anyio.CapacityLimiter(concurrency)
        self._manager = manager
        self._key = key
        self._runtimes: dict[SessionKey, SessionRuntime] = {}
        self._locks: dict[SessionKey, anyio.Lock] = {}
        self._eras: dict[str, Handshake] = {}
        self._refused: dict[str, ProtocolVersionError] = {}
        self._unchecked: set[tuple[ServerName, str]] = set()
        self._leases: Leases[SessionKey] = Leases()
        self._news = anyio.Event()
        tasks.start_soon(self._forget_idle)

    # Sessions

    async def put(self, key: SessionKey, plan: SessionPlan) -> SessionAnswer:
        """Create a session, or give it another plan.

        Raises:
            UnknownServerError: the plan names a server that is not configured.
        """
        for name in plan.servers or ():
            self.record(name)
        async with self._lock(key):
            known = self._runtimes.get(key)
            before = None if known is None else self.fingerprint(known)
            runtime = self._ensure(key)
            if known is None or runtime.plan != plan:
                removed = set(runtime.names()) - set(SessionRuntime(key, plan, self).names())
                runtime.plan = plan
                self._manager.sessions.look_again()  # its idle time may be another one
                await self._stop(key, removed)
            now = self.fingerprint(runtime)
            self._use(runtime)
            return SessionAnswer(
                key=key,
                fingerprint=now,
                reused=before == now,
                servers=self._servers(runtime),
                diagnostics=self._diagnostics(runtime),
            )

    def runtime(self, key: SessionKey) -> SessionRuntime:
        """The session of this key, made with all servers where there is none; counts as a use."""
        runtime = self._ensure(key)
        self._use(runtime)
        return runtime

    async def delete(self, key: SessionKey) -> StopAnswer:
        """Stop all that a session holds, and forget it; answers when decided.

        Raises:
            UnknownSessionError: there is no such session.
        """
        async with self._lock(key):
            held = self._manager.held(session=key)
            if key not in self._runtimes and not held:
                raise UnknownSessionError(key)
            self._manager.restarts.forget_session(key)
            self._drop(key)
            try:
                return await self._manager.stop_held(held, "stop")
            finally:  # of what was ending by itself when the stop came
                self._manager.restarts.forget_session(key)

    async def probe(self, name: ServerName) -> ProbeView:
        """Start a server in a session of its own, ask what it offers, and stop it.

        Raises:
            UnknownServerError: there is no such server.
        """
        self.record(name)
        self._refused.pop(self._fingerprint_of(name), None)
        began_at = anyio.current_time()
        key = SessionKey(f"probe-{secrets.token_hex(4)}")
        runtime = self._runtimes[key] = SessionRuntime(key, SessionPlan(servers=(name,)), self)
        ran = bool(self._manager.held(name, SHARED))
        try:
            return await probe(runtime.connection(name), began_at)
        finally:
            with anyio.CancelScope(shield=True):  # a probe leaves nothing, whoever gave up on it
                await self.delete(key)
                unused = [h for h in self._manager.held(name, SHARED) if not self._is_used(h)]
                if not ran:
                    await self._manager.stop_held(unused, "stop")

    def views(self) -> tuple[SessionView, ...]:
        """All sessions, sorted by key: those with a plan and those that hold an instance."""
        holding = {held.instance.session for held in self._manager.held()} - {None, SHARED}
        keys = {key for key in holding if key is not None} | self._runtimes.keys()
        return tuple(self.view(key) for key in sorted(keys))

    def view(self, key: SessionKey) -> SessionView:
        """One of them.

        Raises:
            UnknownSessionError: there is no such session.
        """
        held = self._manager.held(session=key)
        runtime = self._runtimes.get(key)
        if runtime is None and not held:
            raise UnknownSessionError(key)
        shown = runtime or SessionRuntime(key, SessionPlan(servers=()), self)
        lease = self._leases.get(key)
        return SessionView(
            key=key,
            instances=tuple(one.instance.id for one in held),
            fingerprint=None if runtime is None else self.fingerprint(runtime),
            servers=self._servers(shown),
            idle_timeout_s=None if lease is None or not lease.idle_s else lease.idle_s,
        )

    def summary(self, key: SessionKey) -> dict[str, object]:
        """What is in a session's fingerprint, for people: records as written, secrets hidden.

        Raises:
            UnknownSessionError: there is no such session, or it has no plan.
        """
        runtime = self._runtimes.get(key)
        if runtime is None:
            raise UnknownSessionError(key)
        return {
            "servers": {name: self.record(name).shown for name in runtime.names()},
            "toolFilter": runtime.plan.tool_filter.as_json(),
            "requester": runtime.plan.requester,
        }

    def fingerprint(self, runtime: SessionRuntime) -> str:
        """Equal for sessions that are the same in all that their clients can notice."""
        servers = {}
        for name in runtime.names():
            record = self.record(name)
            servers[name] = {
                "connection": state_of(record, self._key).fingerprint,
                "calls": asdict(record.calls),
                "filter": record.tool_filter.as_json(),
                "parallel": record.parallel,
            }
        whole = {
            "servers": servers,
            "filter": runtime.plan.tool_filter.as_json(),
            "requester": runtime.plan.requester,
        }
        return sha256(canonical(whole)).hexdigest()

    def idle_s(self, key: SessionKey) -> float:
        """Seconds without use that a session is kept; 0.0 for ever."""
        runtime = self._runtimes.get(key)
        own_s = None if runtime is None else runtime.plan.idle_s
        return self._manager.configuration.settings.session_idle_s if own_s is None else own_s

    # What connections ask for: see `Opens`

    def enabled(self) -> tuple[ServerName, ...]:
        """The servers that a session may have, sorted."""
        servers = self._manager.configuration.servers
        return tuple(name for name in sorted(servers) if servers[name].enabled)

    def record(self, name: ServerName) -> Server:
        """The record of a configured server."""
        return self._manager.record(name)

    async def wait_turn(self, name: ServerName, session: SessionKey) -> None:
        """Wait until a server that failed before may be started again."""
        where = SHARED if self.record(name).scope == "shared" else session
        if self._manager.sessions.usable(name, where, None, None) is None:
            await self._manager.restarts.wait_turn((where, name))

    def cold_start(self) -> AbstractAsyncContextManager[object]:
        """Wait for a turn."""
        return self.cold_starts

    async def open(self, name: ServerName, session: SessionKey) -> SessionChannel:
        """Find the instance for the daemon's own use, or start one.

        One of no known revision is not asked again: it would answer the same. A start by hand, a
        probe or another record gives it a new chance.

        Raises:
            SupervisorError: there is none and it cannot be started; every subclass says why.
        """
        refused = self._refused.get(self._fingerprint_of(name))
        if refused is not None and name in self._manager.failed:
            raise ProtocolVersionError(name, refused.why)
        return await self._manager.sessions.ensure(name, session, None, DAEMON)

    async def retire(self, opened: Opened) -> None:
        """End an instance that did not survive the question for its revision."""
        instance = opened.channel.held.instance
        instance.request_stop("restart")
        await instance.wait_settled()

    @contextmanager
    def in_use(self, opened: Opened, session: SessionKey) -> Iterator[None]:
        """Keep an instance from idling, and the session that uses it."""
        sessions = self._manager.sessions
        one = sessions.of(opened.channel.held)
        if one is not None:
            sessions.acquire(one)
        with self.session_in_use(session):
            try:
                yield
            finally:
                if one is not None:
                    sessions.left(one)

    @contextmanager
    def session_in_use(self, session: SessionKey) -> Iterator[None]:
        """Keep a session from being forgotten; one that is forgotten already stays so."""
        if self._leases.get(session) is not None:
            self._leases = leases.acquired(self._leases, session, anyio.current_time())
        try:
            yield
        finally:
            self._leases = leases.released(self._leases, session, anyio.current_time())
            self._news.set()

    def era(self, name: ServerName) -> Handshake | None:
        """What a server with this configuration answered last."""
        return self._eras.get(self._fingerprint_of(name))

    def remember_era(self, name: ServerName, handshake: Handshake) -> None:
        """It answered this."""
        self._eras[self._fingerprint_of(name)] = handshake

    def note_failed(self, name: ServerName, error: CallError) -> None:
        """A server runs and did not get ready."""
        if isinstance(error, ProtocolVersionError):
            self._refused[self._fingerprint_of(name)] = error
        self._manager.errors[name] = mask_text(str(error))
        self._manager.failed.add(name)
        self._manager.events.record("start_failed", level="warning", server=name, reason=str(error))

    def note_unchecked(self, name: ServerName, tool: str, why: str) -> None:
        """Something was passed on without a check: said once for each tool."""
        if (name, tool) not in self._unchecked and len(self._unchecked) < MAX_NOTED:
            self._unchecked.add((name, tool))
            self._manager.events.record(
                "schema_not_checked", level="warning", server=name, tool=tool, reason=why
            )

    # Inside

    def _ensure(self, key: SessionKey) -> SessionRuntime:
        runtime = self._runtimes.get(key)
        if runtime is None:
            runtime = self._runtimes[key] = SessionRuntime(key, SessionPlan(), self)
        return runtime

    def _use(self, runtime: SessionRuntime) -> None:
        now = anyio.current_time()
        idle_s = self.idle_s(runtime.key)
        self._leases = leases.opened(self._leases, runtime.key, idle_s=idle_s, now=now)
        self._news.set()

    async def _forget_idle(self) -> None:
        """Forget sessions that hold nothing and that nobody has used for their idle time."""
        while True:
            self._news = anyio.Event()
            due_at = leases.next_expiry(self._leases)
            left_s = float("inf") if due_at is None else due_at - anyio.current_time()
            with anyio.move_on_after(max(0.0, left_s)):
                await self._news.wait()
            for key in leases.idle(self._leases, anyio.current_time()):
                runtime = self._runtimes.get(key)
                if self._manager.held(session=key) or (runtime and runtime.watchers):
                    self._leases = leases.used(self._leases, key, anyio.current_time())
                    continue
                self._drop(key)
                self._manager.events.record("session_forgotten", session=key)

    def _drop(self, key: SessionKey) -> None:
        """Forget a session; who calls or is served through it is told."""
        self._leases = leases.closed(self._leases, key)
        runtime = self._runtimes.pop(key, None)
        if runtime is not None:
            runtime.end()

    async def _stop(self, key: SessionKey, names: set[ServerName]) -> None:
        for name in names:
            self._manager.restarts.cancel_all(name, key)
        gone = [held for held in self._manager.held(session=key) if held.instance.server in names]
        await self._manager.stop_held(gone, "reload")

    def _servers(self, runtime: SessionRuntime) -> tuple[SessionServerView, ...]:
        return tuple(
            SessionServerView(name=name, state=self._manager.state_in_session(name, runtime.key))
            for name in runtime.names()
        )

    def _diagnostics(self, runtime: SessionRuntime) -> tuple[str, ...]:
        """What is known to be wrong with its servers, without asking any."""
        found = (self._manager.server(name).error for name in runtime.names())
        return tuple(text for text in found if text is not None)

    def _fingerprint_of(self, name: ServerName) -> str:
        try:
            return state_of(self.record(name), self._key).fingerprint or name
        except UnknownServerError:
            return name

    def _is_used(self, held: Held) -> bool:
        one = self._manager.sessions.of(held)
        return one is not None and bool(one.uses)

    def _lock(self, key: SessionKey) -> anyio.Lock:
        return self._locks.setdefault(key, anyio.Lock())
