"""The relay: owns one family, stands outside its group, runs its stop and proves its end.

It commands the anchor through `down`, hears it through `up`, and talks to the daemon over the
control socket. Orphans of a dead anchor climb to it.

It executes stages, with or without a daemon: a stop comes as absolute instants; when the daemon
is gone, or the anchor dies, it makes the schedule itself from the span it was given at the start.
The deadline ends the daemon's patience, not the relay's custody: what could not be ended is still
tried, and the relay leaves only when its family is gone.

The receipt: when all but the anchor is gone the anchor is retired and reaped; then `waitid` must
say ECHILD and the group ESRCH. Only that is sent as `closed`, and the relay leaves when the
daemon has read it.
"""

import os
import select

from supervisor.core import stages
from supervisor.relay import anchor, kernel, message
from supervisor.relay.launch_order import LaunchOrder, unpack
from supervisor.relay.mailbox import Mailbox
from supervisor.relay.signalling import Signalling

MAX_NAMED = 512
"""Processes that are named before a SIGTERM or a verdict; more would be no better to read."""

ACK_PATIENCE_S = 1.0
"""How long an unread receipt keeps the relay, beyond the deadline: all is reaped by then."""


class Relay:
    """One relay's state; `run` never returns.

    Attributes:
        anchor: pid of the anchor, our child, not reaped before all else is gone.
        schedule: the stop under way, or None.
        server_status: wait status of the server, or None.
    """

    def __init__(self, order: LaunchOrder, mailbox: Mailbox, receipt: int) -> None:
        self.order = order
        self.mailbox = mailbox
        self.receipt = receipt
        self.anchor = 0
        self.down = -1
        self.up = -1
        self.up_buffer = b""
        self.server = 0
        self.server_status: int | None = None
        self.schedule: stages.Schedule | None = None
        self.anchor_dead = False
        self.anchor_empty = False
        self.retiring = False
        self.closed_at: float | None = None
        self.termed = False
        self.killed = False
        self.last_word_said = False
        self.adopted: set[int] = set()
        self.signals = Signalling(mailbox)

    # The family

    def start(self, stdio: "tuple[int, int, int]", lineage: int) -> int:
        """Fork the anchor, wait for its first word, say hello.

        Returns:
            The file descriptor that becomes readable when a child changes.
        """
        wake, wake_write = kernel.own_session()
        down_read, self.down = os.pipe()
        self.up, up_write = os.pipe()
        kernel.shrink_pipe(self.down)
        kernel.shrink_pipe(up_write)
        self.anchor = os.fork()
        if self.anchor == 0:
            try:
                kernel.forget_wake_up()
                inherited = (self.down, self.up, wake, wake_write, self.receipt, self.mailbox.fd)
                for fd in inherited:
                    os.close(fd)
                anchor.serve(self.order, stdio, lineage, down_read, up_write)
            finally:
                os._exit(1)
        for fd in (down_read, up_write, *stdio, lineage):
            os.close(fd)
        self.order.env.clear()  # secrets live in the server only
        self.order.argv.clear()
        first = b""
        while b"\n" not in first:
            chunk = os.read(self.up, 4096)
            if not chunk:
                break
            first += chunk
        os.set_blocking(self.up, False)
        self.on_up(first)
        return wake

    def hello(self, pid: int, start: int) -> None:
        """Say who we are; the daemon opens pidfds and answers `pinned`."""
        self.server = pid
        me, head = kernel.stat(os.getpid()), kernel.stat(self.anchor)
        self.mailbox.post(
            message.HELLO,
            relay=f"{os.getpid()}/{me.start if me else 0}",
            anchor=f"{self.anchor}/{head.start if head else 0}",
            server=f"{pid}/{start}",
        )

    def others(self) -> "list[int]":
        """Our children besides the anchor: orphans of a family whose anchor is dead."""
        return [pid for pid in kernel.children() if pid != self.anchor]

    def reap(self) -> None:
        """Collect everything but the anchor: even dead it pins the group id."""
        for pid in kernel.children():
            if pid == self.anchor:
                self.look_at_anchor()
                continue
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                self.adopted.discard(pid)
                self.signals.strongest.pop(pid, None)
                if pid == self.server and self.server_status is None:
                    self.on_exit(status)
            elif pid not in self.adopted:
                self.adopted.add(pid)
                found = kernel.stat(pid)
                if found:
                    self.mailbox.news(
                        message.ORPHAN,
                        pid=pid,
                        start=found.start,
                        pgid=found.pgid,
                        sid=found.sid,
                    )

    def look_at_anchor(self) -> None:
        """Notice a dead anchor without reaping it; unless we retired it, the family must end."""
        if self.anchor_dead:
            return
        peek = os.waitid(os.P_PID, self.anchor, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if peek is None:
            return
        self.anchor_dead = True
        self.read_up()
        if not self.retiring:
            self.mailbox.post(message.ANCHOR_LOST, status=peek.si_status)
            if self.schedule is None:
                self.begin_alone(term_after_s=0.0)

    # What the anchor says

    def read_up(self) -> None:
        """Read all that the anchor has said."""
        while True:
            try:
                chunk = os.read(self.up, 4096)
            except OSError:
                return
            if not chunk:
                return
            self.on_up(chunk)

    def on_up(self, data: bytes) -> None:
        """Act on the anchor's lines."""
        *lines, self.up_buffer = (self.up_buffer + data).split(b"\n")
        for line in lines:
            verb, fields = message.decode(line)
            if verb == anchor.SPAWNED:
                self.hello(int(fields["pid"]), int(fields["start"]))
            elif verb == message.EXITED:
                self.on_exit(int(fields["status"]))
            elif verb == anchor.EMPTY:
                self.anchor_empty = True
            elif verb == message.FAILED:
                self.mailbox.post_raw(line)
                self.begin_alone(term_after_s=0.0)
            elif verb == message.ORPHAN:
                self.mailbox.news_raw(line)

    def on_exit(self, status: int) -> None:
        """The server has left: name what it leaves behind, and do not wait for the grace."""
        self.server_status = status
        self.mailbox.post(message.EXITED, status=status)
        self.name_descendants(message.LEFTOVER)
        if self.schedule is not None:
            self.advance(stages.TERM)
        elif not self.mailbox.daemon:
            self.begin_alone(term_after_s=0.0)

    def name_descendants(self, verb: str) -> None:
        """Post one message for every living descendant but the anchor."""
        for found in kernel.descendants(os.getpid(), MAX_NAMED):
            if found.pid == self.anchor:
                continue
            self.mailbox.post(
                verb,
                pid=found.pid,
                start=found.start,
                pgid=found.pgid,
                sid=found.sid,
                command=kernel.command_line(found.pid, found.command),
            )

    # The stop

    def begin_alone(self, *, term_after_s: "float | None" = None) -> None:
        """Stop without being told to, in the span that was given at the start, from now on."""
        order = self.order
        term_s, kill_s = order.term_after_us / 1e6, order.kill_after_us / 1e6
        if term_after_s is not None:
            kill_s = max(0.0, kill_s - term_s + term_after_s)
            term_s = term_after_s
        self.schedule = stages.plan(kernel.monotonic(), term_s, kill_s, order.deadline_us / 1e6)
        if self.server_status is not None:
            self.advance(stages.TERM)

    def stop(self, asked: stages.Schedule) -> None:
        """Take the daemon's schedule; stages that we had pulled forward stay where they are."""
        if self.schedule is not None:
            asked.term_at = min(asked.term_at, self.schedule.term_at)
            asked.kill_at = min(asked.kill_at, self.schedule.kill_at)
        self.schedule = asked
        if self.server_status is not None:
            self.advance(stages.TERM)

    def advance(self, stage: int) -> None:
        """Let a stage be due now."""
        if self.schedule is not None:
            self.schedule = stages.pull_forward(self.schedule, kernel.monotonic(), stage)

    def step(self) -> "float | None":
        """Do what is due; return the seconds until something else may be, None for never."""
        self.reap()
        if self.closed_at is None:
            self.finish()
        if self.closed_at is not None:
            return self.leave_when_read(self.closed_at)
        if self.schedule is None:
            return None
        now = kernel.monotonic()
        stage = stages.stage_at(self.schedule, now)
        if self.retiring and not self.anchor_dead:
            return stages.pause_s(self.schedule, now)  # its death is all that is missing
        if stage == stages.TERM:
            self.term()
        elif stage >= stages.KILL:
            self.kill()
        if now >= stages.last_word_at(self.schedule) and not self.last_word_said:
            self.last_word_said = True
            self.name_descendants(message.REMAINING)
        return stages.pause_s(self.schedule, now)

    def term(self) -> None:
        """SIGTERM and SIGCONT to the group, then to what escaped from it."""
        if not self.termed:
            self.termed = True
            self.signals.to_group(self.anchor, kernel.SIGTERM)
            self.signals.to_group(self.anchor, kernel.SIGCONT)
            try:
                os.write(
                    self.down, anchor.TERMED
                )  # the escapees below the anchor are its to signal
            except OSError:
                pass
        self.signals.to_each(self.others(), kernel.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the group, anchor included: its heirs become ours, and are next."""
        if not self.killed:
            self.killed = True
            self.signals.to_group(self.anchor, kernel.SIGKILL)
        self.signals.to_each(self.others(), kernel.SIGKILL)

    def retire(self) -> None:
        """End an anchor that is stopped or stuck although it has nothing left to hold."""
        if not self.anchor_dead and not kernel.descendants(self.anchor, 1):
            self.kill_anchor()

    def kill_anchor(self) -> None:
        """End the anchor; it is our child, so the number is its own."""
        if not self.retiring:
            self.retiring = True
            kernel.send(os.kill, self.anchor, kernel.SIGKILL)

    # The end

    def finish(self) -> None:
        """When all but the anchor is gone: retire it, reap it, prove the end, say so."""
        if self.schedule is None or self.others():
            return
        if not self.anchor_dead:
            if self.anchor_empty:
                self.kill_anchor()
            return
        _, status = os.waitpid(self.anchor, 0)
        no_child = int(not kernel.has_children())
        group_gone = int(kernel.send(os.killpg, self.anchor, 0) == kernel.ESRCH)
        server = message.NONE if self.server_status is None else self.server_status
        self.closed_at = kernel.monotonic()
        closed = message.encode(
            message.CLOSED,
            status=server,
            anchor=status,
            echild=no_child,
            group_gone=group_gone,
        )
        try:
            os.write(self.receipt, closed + b"\n")  # for a daemon that comes after this one
        except OSError:
            pass
        self.mailbox.post_raw(closed)

    def leave_when_read(self, closed_at: float) -> float:
        """Wait for the acknowledgement, but not for ever: nothing is left to hold."""
        if not self.mailbox.daemon:
            os._exit(0)
        patience_until = closed_at + ACK_PATIENCE_S
        if self.schedule is not None:
            patience_until = max(patience_until, self.schedule.deadline_at)
        left_s = patience_until - kernel.monotonic()
        if left_s <= 0:
            os._exit(0)
        return left_s

    # The daemon

    def on_message(self, packet: bytes) -> None:
        """Obey the daemon."""
        verb, fields = message.decode(packet)
        if verb == message.PINNED:
            self.tell_pinned()
        elif verb == message.STOP:
            instants = [
                message.from_ns(fields[k]) for k in ("requested", "term", "kill", "deadline")
            ]
            self.stop(stages.Schedule(*instants))
        elif verb == message.ADVANCE:
            self.advance(int(fields["stage"]))
        elif verb == message.PING:
            self.mailbox.post(message.PONG)
        elif verb == message.RETIRE:
            self.retire()
        elif verb == message.ACK and self.closed_at is not None:
            os._exit(0)

    def on_daemon_gone(self) -> None:
        """The control socket is at its end: run the same stop without a daemon."""
        self.mailbox.daemon = False
        self.tell_pinned()
        if self.schedule is None:
            self.begin_alone()

    def tell_pinned(self) -> None:
        """Let the anchor reap the server whenever it exits."""
        try:
            os.write(self.down, anchor.PIN)
        except OSError:
            pass

    def run(self, wake: int) -> None:
        """Wait for the daemon, the anchor or a child, and do what is due."""
        poll = select.poll()
        for fd in (self.mailbox.fd, wake, self.up):
            poll.register(fd, select.POLLIN)
        while True:
            wait_s = self.mailbox.retry(self.step())
            for fd, event in poll.poll(None if wait_s is None else wait_s * 1000):
                if fd == wake:
                    kernel.drain_wake_up(wake)
                elif fd == self.up:
                    self.read_up()
                    if event & select.POLLHUP:
                        poll.unregister(self.up)
                elif not self.mailbox.receive(self.on_message):
                    poll.unregister(self.mailbox.fd)
                    self.on_daemon_gone()


def serve(fds: "list[int]") -> None:
    """Be the relay of one server: `fds` as in `message.FD_ORDER`, no gate. Never returns."""
    control, stdin, stdout, stderr, lineage, spec, receipt = fds
    order = read_order(spec)
    relay = Relay(order, Mailbox(control), receipt)
    relay.run(relay.start((stdin, stdout, stderr), lineage))


def read_order(spec: int) -> LaunchOrder:
    """Read and close the memfd."""
    content = os.pread(spec, os.fstat(spec).st_size, 0)
    os.close(spec)
    return unpack(content)
