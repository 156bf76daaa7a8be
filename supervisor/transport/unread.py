"""What waits to be read by a server that does not read, and until when.

A request's time begins when it comes, not when it has been written: a server that reads nothing
would else hold its callers for ever.

Source: design section 9.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request: it is read once `end` bytes have been, counted from the first ever written."""

    end: int
    client: int
    id_token: bytes
    expires_at: float


class Unread:
    """The requests that were accepted and not yet taken by the server, oldest first.

    Attributes:
        accepted_bytes: how many bytes were ever accepted for the server.
        waiting: the requests.
    """

    def __init__(self) -> None:
        self.accepted_bytes = 0
        self.waiting: deque[Waiting] = deque()

    def add(self, client: int, asked: Iterable[bytes], expires_at: float) -> None:
        """Note requests that were accepted with the last write and do not fit the pipe."""
        for id_token in asked:
            self.waiting.append(Waiting(self.accepted_bytes, client, id_token, expires_at))

    def forget(self, client: int) -> None:
        """A client has left; nobody waits for its requests."""
        self.waiting = deque(one for one in self.waiting if one.client != client)

    def expired(self, unread_bytes: int, now: float) -> tuple[Waiting, ...]:
        """Take out the requests whose time is over.

        Args:
            unread_bytes: how much of what was accepted has not been written.
            now: the present instant.

        Returns:
            Those of them that the server has not read.
        """
        read_to = self.accepted_bytes - unread_bytes
        over = list[Waiting]()
        while self.waiting and (
            self.waiting[0].end <= read_to or self.waiting[0].expires_at <= now
        ):
            one = self.waiting.popleft()
            if one.end > read_to:
                over.append(one)
        return tuple(over)
