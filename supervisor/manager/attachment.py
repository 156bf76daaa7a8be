"""One client on a private instance: bytes both ways, untouched, and who waits for whom.

A client that does not read pauses its server, a server that does not read pauses its client; a
stop waits for neither.
"""

from typing import Final

from supervisor.linux.pipes import HangUp, Sink, Source
from supervisor.process.custody import Held

HIGH_WATER_BYTES: Final = 1048576
"""How much may wait for a reader before its writer is paused: some results of usual size."""


class Attachment:
    """Copies between a client's connection and its server."""

    def __init__(self, source: Source, sink: Sink, held: Held) -> None:
        self._source = source
        self._sink = sink
        self._held = held
        self._hang_up: HangUp | None = None

    def begin(self, early: bytes) -> None:
        """Copy from now on; `early` came with the greeting."""
        stdin = self._held.family.stdin
        self._sink.on_drained = self._held.family.stdout.resume
        stdin.on_drained = self._listen
        self._held.family.attach(self._to_client, self._sink.end)
        self._source.redirect(self._to_server)
        if early:
            self._to_server(early)
        if self._source.ended:
            self.client_left()

    def client_left(self) -> None:
        """The client has closed its side: stop, and hand on what both have still to say.

        On a pipe the end comes behind the data, so stdin is closed behind what the client sent.
        """
        if self._held.instance.stopping:
            return
        self._held.family.fed_to_the_end = True
        self._held.instance.request_stop("disconnect")
        if self._source.ended:
            self._held.family.stdin.end()

    def source_ended(self) -> None:
        """All that the client sent has been read."""
        if self._held.family.fed_to_the_end:
            self._held.family.stdin.end()
        else:
            self.client_left()

    def end(self) -> None:
        """The instance is judged: nothing more comes."""
        self._forget_hang_up()
        self._source.close()
        self._sink.end()

    def _to_server(self, data: bytes) -> None:
        stdin = self._held.family.stdin
        stdin.write(data)
        if stdin.waiting_bytes > HIGH_WATER_BYTES:
            self._stop_listening()

    def _stop_listening(self) -> None:
        """The server does not read; that the client leaves must be noticed all the same."""
        self._source.pause()
        if self._hang_up is None:
            self._hang_up = HangUp(self._source.fd, self.client_left)

    def _listen(self) -> None:
        self._forget_hang_up()
        self._source.resume()

    def _forget_hang_up(self) -> None:
        if self._hang_up is not None:
            self._hang_up.close()
            self._hang_up = None

    def _to_client(self, data: bytes) -> None:
        full = self._sink.waiting_bytes > HIGH_WATER_BYTES
        if full and self._held.instance.stopping:
            return  # a stop drains the server, whoever does not read
        self._sink.write(data)
        if self._sink.waiting_bytes > HIGH_WATER_BYTES and not self._held.instance.stopping:
            self._held.family.stdout.pause()
