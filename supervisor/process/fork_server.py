"""The daemon's side of the fork server: ask for a relay, know its pid before it is our child.

A fork server that is dead, stuck or refuses is not waited for: the caller starts the relay
directly, and the next spawn gets a new fork server.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from typing import Final

import anyio

from supervisor.core.errors import KernelError
from supervisor.core.ids import Pid
from supervisor.linux import reaping
from supervisor.linux.signals import signal_pidfd
from supervisor.linux.spawning import start_fork_server
from supervisor.relay import message

FORK_PATIENCE_S: Final = 2.0
"""How long a fork may take: it needs 1 ms, and a machine that thrashes some hundred."""

UNUSABLE: Final = {
    "requests": "the fork server does not take requests",
    "answer": "the fork server does not answer",
    "gone": "the fork server is gone",
}


class ForkServer:
    """One fork server; `pid` is a child of the daemon that it knows.

    Attributes:
        pid: the running fork server.
        usable: false once it has failed; then it is to be replaced.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.pid: Final = start_fork_server(theirs)
        ours.setblocking(False)
        self._link = ours
        self._pidfd = os.pidfd_open(self.pid)
        self.usable = True

    async def fork(self, fds: Sequence[int]) -> Pid | None:
        """Fork a relay that owns `fds`.

        Returns:
            The relay's pid, a child of this process by now; None when the relay was forked but
            its pid got lost with the process in the middle: its `hello` will tell.

        Raises:
            KernelError: there is no relay; the fork server should be replaced.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                try:
                    socket.send_fds(self._link, [message.SPAWN.encode()], [*fds, theirs.fileno()])
                except OSError as error:
                    raise self._unusable(UNUSABLE["requests"]) from error
            ours.setblocking(False)
            with anyio.move_on_after(FORK_PATIENCE_S):
                return await self._through_gate(ours)
        raise self._unusable(UNUSABLE["answer"])

    async def _through_gate(self, gate: socket.socket) -> Pid | None:
        await anyio.wait_readable(gate)
        packet = gate.recv(message.MAX_MESSAGE_BYTES)
        if not packet:
            if self.alive:
                return None
            raise self._unusable(UNUSABLE["gone"])
        verb, fields = message.decode(packet)
        if verb != message.FORKED:
            number = int(fields.get("errno", "0"))
            raise KernelError(os.strerror(number))
        await self._release(gate, int(fields["middle"]))
        return Pid(int(fields["pid"]))

    @staticmethod
    async def _release(gate: socket.socket, middle: int) -> None:
        """Let the process in the middle go; once it is a zombie, its child has become ours.

        The end of the gate would come too early: a dying process closes its descriptors before
        the kernel hands its children over.
        """
        try:
            pidfd = os.pidfd_open(middle)
        except ProcessLookupError:
            return
        try:
            with contextlib.suppress(OSError):  # killed after its word
                gate.send(message.ACK.encode())
            await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        try:
            return self.usable and reaping.peek_pidfd(self._pidfd)
        except ChildProcessError:
            return False

    def _unusable(self, why: str) -> KernelError:
        self.usable = False
        return KernelError(why)

    def close(self) -> None:
        """End and reap the fork server; it has nothing to finish. May be called twice."""
        self.usable = False
        if self._pidfd < 0:
            return
        self._link.close()
        signal_pidfd(self._pidfd, signal.SIGKILL)  # it may be stopped, and it holds nothing
        with contextlib.suppress(ChildProcessError):
            reaping.wait_pidfd(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
