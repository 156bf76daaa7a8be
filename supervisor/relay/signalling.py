"""What the relay sends, and what it reports of it.

Only pinned numbers are signalled: the group of the unreaped anchor, and own unreaped children.
"""

import os

from supervisor.relay import kernel, message
from supervisor.relay.mailbox import Mailbox

MAX_SIGNAL_NEWS = 64
"""Delivered signals to single descendants that are reported; refused ones always are."""


class Signalling:
    """The signals of one relay.

    Attributes:
        strongest: what each child got last; who is reaped is to be removed.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self.strongest: dict[int, int] = {}
        self._mailbox = mailbox
        self._news = 0

    def to_group(self, anchor: int, signal: int) -> None:
        """To every member of the group; its anchor is unreaped, so the id is nobody else's."""
        self._record("group", anchor, signal, kernel.send(os.killpg, anchor, signal))

    def to_each(self, children: "list[int]", signal: int) -> None:
        """To own children one by one, each once per signal; SIGKILL again and again."""
        for pid in children:
            again = self.strongest.get(pid, 0) == signal
            if again and signal == kernel.SIGTERM:
                continue
            found = kernel.stat(pid)
            if found is None or not found.alive:
                continue
            errno = kernel.send(os.kill, pid, signal)
            if signal == kernel.SIGTERM:
                # a stopped process cannot act on SIGTERM
                kernel.send(os.kill, pid, kernel.SIGCONT)
            if not again:
                self.strongest[pid] = signal
                self._record("descendant", pid, signal, errno)

    def _record(self, target: str, pid: int, signal: int, errno: int) -> None:
        """Report a signal; deliveries to single descendants only up to a bound."""
        if target == "descendant" and errno in {0, kernel.ESRCH}:
            self._news += 1
            if self._news > MAX_SIGNAL_NEWS:
                return
        at = message.to_ns(kernel.monotonic())
        self._mailbox.post(
            message.SIGNAL, target=target, pid=pid, signal=signal, errno=errno, at=at
        )
