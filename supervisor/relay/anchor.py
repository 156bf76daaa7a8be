"""The anchor: leads and pins the process group, is the server's parent, adopts what it orphans.

While the anchor lives, or is dead but not reaped, its group id cannot be handed to strangers. It
talks to the relay only, through two pipes:

- `up`, lines to the relay: spawned, failed, exited, orphan, empty;
- `down`, single bytes from the relay: `P` the server is pinned and may be reaped, `T` SIGTERM
  went to the group, so orphans outside of it get theirs. EOF means that the relay is gone.

Without a relay it cleans up alone: SIGTERM to the group at once, SIGKILL to its own children one
by one after the span that lies between those two stages, and it leaves last. It never sends
SIGKILL to the group: it is a member.
"""

import os
import select

from supervisor.core import stages
from supervisor.relay import kernel
from supervisor.relay.execute import become_server
from supervisor.relay.launch_order import LaunchOrder
from supervisor.relay.message import EXITED, ORPHAN, encode

SPAWNED = "spawned"
EMPTY = "empty"
PIN = b"P"
TERMED = b"T"

MAX_NEWS = 512
"""Orphans that are worth a line each; a fork bomb shall not drown what matters."""

ALONE_RETRY_S = 0.02
"""Alone, before SIGKILL: how soon orphans are looked for that nothing announced."""

SAY_AGAIN_S = 0.02
"""How soon a full pipe to the relay is tried again."""

PATIENCE_S = 2.0
"""Alone, after SIGKILL: when to go from trying often to trying at leisure."""


class Anchor:
    """One anchor's state; `run` never returns."""

    def __init__(self, down: int, up: int, span_s: float) -> None:
        self.down = down
        self.up = up
        self.span_s = span_s
        self.me = os.getpid()
        self.server = 0
        self.pinned = False
        self.termed = False
        self.told_empty = False
        self.kill_at: float | None = None
        """Set when the relay is gone: then this process cleans up alone."""
        self.seen: set[int] = set()
        self.signalled: dict[int, int] = {}
        self.news = 0
        self.unsaid = b""

    def tell(self, line: bytes) -> None:
        """Have something said to the relay at the next `flush`."""
        self.unsaid += line + b"\n"

    def flush(self) -> None:
        """Say all at once: "exited" and "empty" together tell a relay that SIGTERM is pointless.

        A relay that is gone is noticed on `down`; one that is stopped is tried again.
        """
        try:
            while self.unsaid:
                self.unsaid = self.unsaid[os.write(self.up, self.unsaid) :]
        except BlockingIOError:
            return
        except OSError:
            self.unsaid = b""

    def spawn(self, order: LaunchOrder, stdio: "tuple[int, int, int]", lineage: int) -> None:
        """Fork the server and say how the exec went."""
        # made after this process was forked, or the relay would hold a write end for ever
        status_read, status_write = os.pipe()
        self.server = os.fork()
        if self.server == 0:
            become_server(order, stdio, lineage, status_write)
        os.close(status_write)
        self.seen.add(self.server)
        failure = b""
        while chunk := os.read(status_read, 4096):
            failure += chunk
        os.close(status_read)
        if failure:
            self.server = 0
            self.tell(failure)
            return
        born = kernel.stat(self.server)
        self.tell(encode(SPAWNED, pid=self.server, start=born.start if born else 0))

    def run(self, wake: int) -> None:
        """Reap, adopt and report until the relay ends this process, or alone until all is gone."""
        poll = select.poll()
        poll.register(self.down, select.POLLIN)
        poll.register(wake, select.POLLIN)
        while True:
            self.look()
            self.flush()
            for fd, _ in poll.poll(self.pause_ms()):
                if fd == wake:
                    kernel.drain_wake_up(wake)
                    continue
                order = os.read(self.down, 64)
                if not order:
                    poll.unregister(self.down)
                    self.go_alone()
                if PIN in order:
                    self.pinned = True
                if TERMED in order:
                    self.termed = True

    def pause_ms(self) -> "float | None":
        """How long nothing needs doing; for ever on the healthy path."""
        if self.kill_at is None:
            return SAY_AGAIN_S * 1000 if self.unsaid else None
        now = kernel.monotonic()
        if now < self.kill_at:
            return ALONE_RETRY_S * 1000
        patient = now > self.kill_at + PATIENCE_S
        return (stages.CUSTODY_RETRY_S if patient else stages.RETRY_S) * 1000

    def go_alone(self) -> None:
        """The relay is gone: nobody else is left to stop this family in time."""
        self.pinned = True
        self.termed = True
        self.kill_at = kernel.monotonic() + self.span_s
        # group 0 is "my own": no number that could have been recycled
        kernel.send(os.kill, 0, kernel.SIGTERM)
        kernel.send(os.kill, 0, kernel.SIGCONT)

    def look(self) -> None:
        """Reap what is dead, report what is new, signal what is due."""
        living = self.reap()
        if not living and not kernel.has_children():
            if self.kill_at is not None:
                os._exit(0)
            if not self.told_empty:
                self.told_empty = True
                self.tell(EMPTY.encode())
        elif self.kill_at is not None and kernel.monotonic() >= self.kill_at:
            self.signal_each(living, kernel.SIGKILL)
        elif self.termed:
            self.signal_each(living, kernel.SIGTERM)

    def reap(self) -> "list[int]":
        """Collect exit statuses; the server's only once the daemon has pinned it."""
        living = []
        for pid in kernel.children():
            if pid == self.server and not self.pinned:
                living.append(pid)
                continue
            gone, status = os.waitpid(pid, os.WNOHANG)
            if not gone:
                living.append(pid)
                if pid not in self.seen:
                    self.adopt(pid)
                continue
            self.seen.discard(pid)
            self.signalled.pop(pid, None)
            if pid == self.server:
                self.tell(encode(EXITED, status=status))
        return living

    def adopt(self, pid: int) -> None:
        """An orphan climbed to us; its name is news for the daemon, nothing depends on it."""
        self.seen.add(pid)
        self.news += 1
        found = kernel.stat(pid)
        if found and self.news <= MAX_NEWS:
            self.tell(encode(ORPHAN, pid=pid, start=found.start, pgid=found.pgid, sid=found.sid))

    def signal_each(self, living: "list[int]", signal: int) -> None:
        """Signal own children one by one, each once per signal; SIGTERM spares the group.

        The group got its SIGTERM as one. They are children, so their numbers are pinned.
        """
        for pid in living:
            if self.signalled.get(pid, 0) >= signal and signal == kernel.SIGTERM:
                continue
            found = kernel.stat(pid)
            if found is None or not found.alive:
                continue
            if signal == kernel.SIGTERM:
                if found.pgid == self.me:
                    continue
                self.signalled[pid] = signal
                kernel.send(os.kill, pid, kernel.SIGTERM)
                # a stopped process cannot act on SIGTERM
                kernel.send(os.kill, pid, kernel.SIGCONT)
            else:
                kernel.send(os.kill, pid, kernel.SIGKILL)


def serve(
    order: LaunchOrder, stdio: "tuple[int, int, int]", lineage: int, down: int, up: int
) -> None:
    """Be the anchor of one server; never returns."""
    wake, _ = kernel.own_session()
    span_s = (order.kill_after_us - order.term_after_us) / 1_000_000
    os.set_blocking(up, False)
    anchor = Anchor(down, up, span_s)
    anchor.spawn(order, stdio, lineage)
    # from here on only the server and its descendants hold the data pipes
    for fd in (*stdio, lineage):
        os.close(fd)
    order.env.clear()
    order.argv.clear()
    anchor.run(wake)
