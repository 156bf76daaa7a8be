"""The relay's end of the control socket: evidence is queued and retried, news may be dropped.

A busy daemon never blocks the owner of processes: the socket is non-blocking, and what does not
fit waits here.
"""

import os

from supervisor.relay.message import MAX_MESSAGE_BYTES, encode

RETRY_S = 0.02
"""How soon a full socket is tried again; only while something waits."""


class Mailbox:
    """Messages to and from the daemon.

    Attributes:
        fd: the control socket, `SOCK_SEQPACKET`: one message a packet.
        daemon: whether the daemon is still there.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.daemon = True
        self.queue: list[bytes] = []

    def post(self, verb: str, **fields: "str | int") -> None:
        """Say something that the daemon must get."""
        self.post_raw(encode(verb, **fields))

    def post_raw(self, packet: bytes) -> None:
        """The same for a message that is encoded already."""
        if self.daemon:
            self.queue.append(packet)
            self.flush()

    def news(self, verb: str, **fields: "str | int") -> None:
        """Say something that may be lost when the daemon is busy."""
        self.news_raw(encode(verb, **fields))

    def news_raw(self, packet: bytes) -> None:
        """The same for a message that is encoded already."""
        if self.daemon and not self.queue:
            try:
                os.write(self.fd, packet)
            except OSError:
                pass

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        while self.queue:
            try:
                os.write(self.fd, self.queue[0])
            except BlockingIOError:
                return
            except OSError:
                self.queue.clear()  # the daemon is gone; poll says so next
                return
            del self.queue[0]

    def retry(self, pause_s: "float | None") -> "float | None":
        """Flush, and shorten a pause while something still waits."""
        self.flush()
        if not self.queue:
            return pause_s
        return RETRY_S if pause_s is None else min(pause_s, RETRY_S)

    def receive(self, handle: "object") -> bool:
        """Hand one waiting message to `handle`; false at the end of the socket."""
        try:
            packet = os.read(self.fd, MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not packet:
            return False
        handle(packet)  # type: ignore[operator] # Callable would import typing in every helper
        return True
