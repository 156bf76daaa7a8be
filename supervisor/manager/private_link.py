"""One client on a private instance: its lines both ways, and who waits for whom.

A client that does not read pauses its server, a server that does not read pauses its client; a
stop waits for neither. The instance ends with the connection, and the connection with it.
"""

from typing import Final

import anyio
from anyio.abc import TaskGroup

from supervisor.core.call_errors import CallError, ServerGoneError
from supervisor.core.envelope import error_line
from supervisor.core.framing import LineSplitter
from supervisor.linux.pipes import HangUp, Sink, Source
from supervisor.transport.channel import Channel

HIGH_WATER_BYTES: Final = 1048576
"""How much may wait for a client before its server is paused: some results of usual size."""


class PrivateLink:
    """The only peer of a private channel."""

    is_client = True

    def __init__(self, source: Source, sink: Sink, channel: Channel, tasks: TaskGroup) -> None:
        self._source = source
        self._sink = sink
        self._channel = channel
        self._tasks = tasks
        self._client = channel.attach(self)
        self._splitter = LineSplitter(channel.limits.max_line_bytes)
        self._hang_up: HangUp | None = None
        self._discards = False

    def begin(self, early: bytes) -> None:
        """Take lines from now on; `early` came with the greeting."""
        self._sink.on_drained = self._channel.resume_output
        self._source.redirect(self._from_client)
        if early:
            self._from_client(early)
        if self._source.ended:
            self.source_ended()

    def client_left(self) -> None:
        """The client has closed its side: stop, and hand on what both have still to say.

        On a pipe the end comes behind the data, so stdin is closed behind what the client sent.
        """
        held = self._channel.held
        if held.instance.stopping:
            return
        held.family.fed_to_the_end = True
        held.instance.request_stop("disconnect")
        self._tasks.start_soon(self._discard_in_time)
        if self._source.ended:
            held.family.stdin.end()

    def source_ended(self) -> None:
        """All that the client sent has been read."""
        self._send_last()
        if self._channel.held.family.fed_to_the_end:
            self._channel.held.family.stdin.end()
        else:
            self.client_left()

    def end(self) -> None:
        """The instance is judged: nothing more comes."""
        self._forget_hang_up()
        self._channel.detach(self._client)
        self._source.close()
        self._sink.end()

    # As the channel's peer

    def deliver(self, data: bytes) -> None:
        """Write to the client; one that does not read pauses the server, until SIGTERM is due."""
        full = self._sink.waiting_bytes > HIGH_WATER_BYTES
        if full and self._discards:
            return
        self._sink.write(data)
        if self._sink.waiting_bytes > HIGH_WATER_BYTES and not self._discards:
            self._channel.pause_output()

    def fail(self, id_token: bytes, error: CallError) -> None:
        """Answer one request with an error."""
        self.deliver(error_line(id_token, error.rpc_code, str(error)) + b"\n")

    def pause(self) -> None:
        """The server does not read; that the client leaves must be noticed all the same."""
        self._source.pause()
        if self._hang_up is None and self._source.fd >= 0:
            self._hang_up = HangUp(self._source.fd, self.client_left)

    def resume(self) -> None:
        """The server reads again."""
        self._forget_hang_up()
        self._source.resume()

    def channel_ended(self, error: ServerGoneError, failed: int) -> None:
        """The report says how the server ended; the connection ends with the verdict."""
        self._sink.end()

    # Inside

    def _from_client(self, data: bytes) -> None:
        self._channel.send(self._client, self._splitter.feed(data))

    def _send_last(self) -> None:
        self._channel.send(self._client, self._splitter.end())

    async def _discard_in_time(self) -> None:
        """From SIGTERM on the stop drains the server, whoever does not read."""
        await self._channel.held.instance.wait_stopping()
        schedule = self._channel.held.family.schedule
        if schedule is not None:
            await anyio.sleep_until(schedule.term_at)
        self._discards = True
        self._channel.resume_output()

    def _forget_hang_up(self) -> None:
        if self._hang_up is not None:
            self._hang_up.close()
            self._hang_up = None
