"""The server processes of named sessions: which one serves a client, and when one is started.

A session has one instance of a server for all clients that say the same of themselves in their
handshake, and that it would start in the same directory; a client that differs gets its own in
that session. What nobody has used for the idle time is reclaimed.

Source: design sections 8 and 9.
"""

from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from supervisor.core.ids import SHARED, InstanceId, ServerName, SessionKey
from supervisor.core.limits import DEFAULT_REQUEST_TIMEOUT_S
from supervisor.core.negotiation import Handshake
from supervisor.process.custody import Held
from supervisor.process.instance import Instance
from supervisor.transport.channel import Channel
from supervisor.transport.shared_handshake import ANYBODY, SharedHandshake

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager


class SessionChannel:
    """One instance of a session, with its channel, its handshake and its directory.

    Attributes:
        uses: clients that hold it, and requests of the daemon's own that are under way.
        released_at: the instant of its last use.
        negotiating: held while it does.
        probing: whether the server is being asked for its revision, which some do not survive.
        news: set when its idle time may have another end than before.
    """

    def __init__(self, channel: Channel, cwd: str | None) -> None:
        self.channel: Final = channel
        self.uses = 0
        self.released_at = anyio.current_time()
        self._negotiated: Handshake | None = None
        self.negotiating: Final = anyio.Lock()
        self.probing = False
        self.news = anyio.Event()
        self.handshake: Final = SharedHandshake(channel, self.negotiating)
        self.cwd: Final = cwd

    @property
    def negotiated(self) -> Handshake | None:
        """The handshake for the daemon's own use: its own, or that of a client before it."""
        if self._negotiated is None:
            self._negotiated = self.handshake.as_negotiated()
        return self._negotiated

    @negotiated.setter
    def negotiated(self, handshake: Handshake | None) -> None:
        self._negotiated = handshake
        if handshake is not None:
            self.handshake.adopt(handshake)

    @property
    def usable(self) -> bool:
        """Whether its server takes requests."""
        instance = self.channel.held.instance
        return self.channel.ended is None and instance.report is None and not instance.stopping


class SessionChannels:
    """The instances of all sessions, by id."""

    def __init__(self, manager: "Manager", tasks: TaskGroup) -> None:
        self._manager = manager
        self._tasks = tasks
        self._channels: dict[InstanceId, SessionChannel] = {}
        self._locks: dict[tuple[SessionKey, ServerName], anyio.Lock] = {}

    def lock(self, session: SessionKey, name: ServerName) -> anyio.Lock:
        """What serialises the work on one server of one session."""
        return self._locks.setdefault((session, name), anyio.Lock())

    def add(self, channel: Channel, cwd: str | None) -> SessionChannel:
        """A new instance of a session runs."""
        one = self._channels[channel.held.instance.id] = SessionChannel(channel, cwd)
        self._tasks.start_soon(self._reclaim, one)
        return one

    @staticmethod
    def acquire(one: SessionChannel) -> None:
        """Somebody uses an instance until `left`."""
        one.uses += 1
        one.news.set()

    @staticmethod
    def left(one: SessionChannel) -> None:
        """Somebody has let go of an instance."""
        one.uses -= 1
        one.released_at = anyio.current_time()
        one.news.set()

    def too_slow(self, one: SessionChannel | None, waiting_bytes: int) -> None:
        """A client is let go because it does not read what is sent to it."""
        instance = None if one is None else one.channel.held.instance
        self._manager.events.record(
            "client_too_slow",
            level="warning",
            server=None if instance is None else instance.server,
            instance=None if instance is None else instance.id,
            session=None if instance is None else instance.session,
            waiting_bytes=waiting_bytes,
        )

    def request_timeout_s(self, name: ServerName) -> float:
        """How long a request to a server may last; for one that is gone, the default."""
        record = self._manager.configuration.servers.get(name)
        return DEFAULT_REQUEST_TIMEOUT_S if record is None else record.calls.request_timeout_s

    async def _reclaim(self, one: SessionChannel) -> None:
        """Stop an instance that nobody has used for the idle time of its server."""
        instance = one.channel.held.instance
        while one.usable:
            idle_s = self._idle_s(instance)
            idle = idle_s > 0.0 and not one.uses
            due_at = one.released_at + idle_s if idle else float("inf")
            if due_at <= anyio.current_time():
                instance.request_stop("idle")
                return
            one.news = anyio.Event()
            with anyio.move_on_after(due_at - anyio.current_time()):
                await one.news.wait()

    def _idle_s(self, instance: Instance) -> float:
        """Seconds without use that a server is kept; 0.0 for ever."""
        record = self._manager.configuration.servers.get(instance.server)
        if record is not None and record.idle_s is not None:
            return record.idle_s
        if record is not None and record.autostart and instance.session == SHARED:
            return 0.0  # it was started without being used, and is to be there
        return self._manager.runtimes.idle_s(instance.session or SHARED)

    def forget(self, instance: InstanceId) -> str | None:
        """An instance is confirmed gone; the directory that it had of its clients, if any."""
        one = self._channels.pop(instance, None)
        if one is None:
            return None
        one.news.set()
        held = one.channel.held.instance
        key = (held.session or SHARED, held.server)
        lock = self._locks.get(key)
        if lock is not None and not lock.locked() and not self._of(held.server, key[0]):
            del self._locks[key]
        return one.cwd

    def probing(self, instance: InstanceId) -> bool:
        """Whether an instance was being asked for its revision."""
        one = self._channels.get(instance)
        return one is not None and one.probing

    def look_again(self) -> None:
        """The configuration has changed, and with it perhaps idle times."""
        for one in self._channels.values():
            one.news.set()

    def usable(
        self, name: ServerName, session: SessionKey, cwd: str | None, identity: str | None
    ) -> SessionChannel | None:
        """An instance that a client may use; None where there is none.

        Args:
            name: of the server.
            session: the key.
            cwd: the client's directory, which counts where the record names none.
            identity: of the client's handshake; None takes any.
        """
        fitting = [one for one in self._of(name, session) if one.usable and one.cwd == cwd]
        if identity is None:
            return fitting[0] if fitting else None
        for one in sorted(fitting, key=lambda one: one.handshake.identity is None):
            if one.handshake.identity in {identity, None}:
                return one
        return None

    async def ensure(
        self, name: ServerName, session: SessionKey, cwd: str | None, identity: str | None
    ) -> SessionChannel:
        """Find an instance for a client, or start one; it is claimed for `identity`.

        Raises:
            SupervisorError: there is none and it cannot be started; every subclass says why.
        """
        record = self._manager.record(name)
        where = None if record.cwd_given else cwd
        if record.scope == "shared":  # one process for all, whoever they are and wherever
            session, where = SHARED, None
            identity = None if identity is None else ANYBODY
        async with self.lock(session, name):
            found = self.usable(name, session, where, identity)
            if found is None:
                channel = await self._manager.spawn(record, session, where)
                found = self._channels.get(channel.held.instance.id)
                if found is None:
                    raise channel.gone_error()
            if identity is not None:
                found.handshake.claim(identity)
            return found

    def of(self, held: Held) -> SessionChannel | None:
        """What belongs to an instance; None for a private one."""
        return self._channels.get(held.instance.id)

    def _of(self, name: ServerName, session: SessionKey) -> list[SessionChannel]:
        return [
            one
            for one in self._channels.values()
            if one.channel.held.instance.server == name
            and one.channel.held.instance.session == session
        ]
