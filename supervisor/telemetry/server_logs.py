"""What servers write to stderr, in one rotating log file each, and those who read along.

The event loop only puts bytes into a queue; one thread makes lines of them, writes, and reads
for `tail` and `follow`. A slow disk therefore holds nothing up: what the queue has no room for is
dropped, counted, and noted in the file where it is missing. Since one thread does all in order,
a follower gets each line exactly once, after those of its tail.

A line is `<UTC time> <instance id> <text>`. Servers can write anything: control characters are
made harmless and known secrets masked before a line leaves this module.

Source: design sections 9, 12 and 17.
"""

import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from supervisor.core.ids import InstanceId, ServerName
from supervisor.telemetry.events import utc_now
from supervisor.telemetry.log_files import ROTATE_BYTES
from supervisor.telemetry.log_lines import LineMaker
from supervisor.telemetry.log_worker import Follower, Piece, Request, Source, Worker
from supervisor.telemetry.masking import add_secrets

QUEUE_BYTES: Final = 8 * 1024 * 1024
"""What may wait for the disk, of all servers together."""

INSTANCE_BYTES: Final = 1024 * 1024
"""The same of one instance, so that one that floods leaves room for the others."""

PIECE_BYTES: Final = 256
"""What a queued piece counts beside its bytes: a server may write them one by one."""

TAIL_LINES: Final = 10000
"""The most that one `tail` gives."""

PATIENCE_S: Final = 2.0
"""How long `tail` waits for a disk that does not answer, and the end of the daemon likewise."""


class ServerLogs:
    """The log files of all servers.

    Args:
        directory: where they are; made with mode 0700 when it is missing.
        rotate_bytes: how large a file may grow.
    """

    def __init__(self, directory: str, *, rotate_bytes: int = ROTATE_BYTES) -> None:
        self._worker = Worker(directory, rotate_bytes)
        self._taken_bytes = 0  # written by the event loop's thread only
        self._dropped: defaultdict[ServerName, int] = defaultdict(int)  # likewise
        self._followers: set[Follower] = set()  # likewise

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ServerLogs"]:
        """Write until the end of the block, and then what is still queued, if the disk takes it."""
        worker = self._worker
        # a daemon thread: a disk that hangs must not keep the process from its end
        thread = threading.Thread(
            target=worker.run,
            args=(anyio.lowlevel.current_token(),),
            name="server-logs",
            daemon=True,
        )
        thread.start()
        try:
            yield self
        finally:
            self.end_follows()
            worker.items.put(None)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join, PATIENCE_S)

    def open(
        self, server: ServerName, instance: InstanceId, secrets: frozenset[str]
    ) -> "StderrLog":
        """Where the stderr of one instance goes, from its first byte on.

        Args:
            server: whose log it is.
            instance: named in every line.
            secrets: values that no line may show, whoever writes it.
        """
        add_secrets(secrets)
        return StderrLog(self, Source(server, instance, LineMaker(secrets)))

    async def tail(self, server: ServerName, lines: int) -> tuple[str, ...]:
        """The last lines of a server, oldest first, also of instances that ended long ago.

        Args:
            server: one that is configured; nothing is checked here.
            lines: how many; at most `TAIL_LINES`, and at most 4 MiB of them.

        Raises:
            TimeoutError: the disk does not answer.
        """
        asked = Request(server, min(lines, TAIL_LINES), None)
        self._worker.items.put(asked)
        with anyio.fail_after(PATIENCE_S):
            await asked.answered.wait()
        return asked.lines

    async def follow(self, server: ServerName, lines: int = 0) -> AsyncIterator[str]:
        """The last lines of a server and all that come, until `end_follows`.

        Returns:
            An iterator whose place is fixed when this returns, not by its first step.

        Raises:
            TimeoutError: the disk does not answer.
        """
        follower = Follower()
        asked = Request(server, min(lines, TAIL_LINES), follower)
        self._followers.add(follower)
        try:
            self._worker.items.put(asked)
            with anyio.fail_after(PATIENCE_S):
                await asked.answered.wait()
        except BaseException:
            follower.close()
            self._followers.discard(follower)
            raise
        return self._follow(asked.lines, follower)

    def end_follows(self) -> None:
        """End every follower once it has what has been written; called before the API's stop."""
        for follower in tuple(self._followers):
            follower.close()

    def dropped_bytes(self) -> Mapping[ServerName, int]:
        """What no file took, by server: the queue was full, or the disk."""
        lost = dict(self._worker.lost)
        for server, count in self._dropped.items():
            lost[server] = lost.get(server, 0) + count
        return lost

    async def _follow(self, lines: tuple[str, ...], follower: Follower) -> AsyncIterator[str]:
        try:
            for line in lines:
                yield line
            async for line in follower:
                yield line
        finally:
            follower.close()
            self._followers.discard(follower)

    def take(self, source: Source, data: bytes | None) -> None:
        """Queue a piece of stderr, or its end (None), for the worker."""
        weight = PIECE_BYTES + len(data) if data else 0  # an end always has room
        waiting = self._taken_bytes - self._worker.done_bytes
        if waiting + weight > QUEUE_BYTES or source.waiting_bytes + weight > INSTANCE_BYTES:
            source.dropped_bytes += len(data or b"")
            self._dropped[source.server] += len(data or b"")
            return
        self._taken_bytes += weight
        source.taken_bytes += weight
        self._worker.items.put(Piece(source, utc_now(), data, weight, source.dropped_bytes))


class StderrLog:
    """The way of one instance into its server's log. Called by the event loop's thread."""

    def __init__(self, logs: ServerLogs, source: Source) -> None:
        self._logs = logs
        self._source = source

    def feed(self, data: bytes) -> None:
        """Take what the server wrote. Blocks: no."""
        self._logs.take(self._source, data)

    def end(self) -> None:
        """Nothing more comes: write a last line that has no newline. Blocks: no."""
        self._logs.take(self._source, None)
