"""The fork server: one tiny interpreter that forks relays on request.

A relay forked from here is ready in about 3 ms, one that is exec'd in 11, and the daemon itself,
with its threads and its memory, is never forked. A fork server that dies harms nobody: no relay
depends on it, and the daemon starts another.

The double fork makes the daemon the relay's parent, since the daemon is the nearest subreaper.
The process in the middle says the relay's pid through the gate and waits for an answer, or for
the end of the gate, before it exits: so the daemon knows each new child before it becomes one.
"""

import _socket
import gc
import os

from supervisor.relay import kernel, owner
from supervisor.relay.launch_order import LaunchOrder, unpack
from supervisor.relay.message import FD_ORDER, FIRST_FD, FORKED, REFUSED, decode, encode

REQUEST_BYTES = 64

WARM_UP_ROUNDS = 16
"""CPython 3.11 adapts a function to what it does after 8 calls."""


def serve(link: int) -> None:
    """Fork relays until the daemon closes the link."""
    kernel.ignore_polite_signals()
    kernel.reap_automatically()
    if os.getsid(0) != os.getpid():
        os.setsid()
    _warm_up()
    gc.collect()
    gc.disable()  # a collection would touch, and so unshare, every page; helpers make no cycles
    gc.freeze()
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, link)
    space = _socket.CMSG_SPACE(len(FD_ORDER) * 4)
    while True:
        request, ancillary, _, _ = socket.recvmsg(REQUEST_BYTES, space, _socket.MSG_CMSG_CLOEXEC)
        if not request:
            os._exit(0)
        fds = _descriptors(ancillary)
        if len(fds) == len(FD_ORDER):
            _fork_relay(fds, link)
        for fd in fds:
            os.close(fd)


def _warm_up() -> None:
    """Run once here what each helper runs first, often enough for the interpreter to adapt to it.

    What it writes into code and caches is then shared by all of them instead of copied by each.
    """
    order = LaunchOrder(
        argv=[b"a"],
        env=[b"A=b"],
        cwd=b"/",
        groups=[],
        term_after_us=0,
        kill_after_us=0,
        deadline_us=0,
    ).pack()
    for _ in range(WARM_UP_ROUNDS):
        unpack(order)
        decode(encode(FORKED, pid=1, command="a"))
        kernel.stat(os.getpid())
        kernel.children()
        kernel.descendants(os.getpid(), 1)
        kernel.monotonic()


def _descriptors(ancillary: "list[tuple[int, int, bytes]]") -> "list[int]":
    fds: list[int] = []
    for level, kind, data in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            view = memoryview(data)
            fds += view[: len(view) // 4 * 4].cast("i").tolist()
    return fds


def _fork_relay(fds: "list[int]", link: int) -> None:
    *passed, gate = fds
    try:
        if os.fork() == 0:
            os.close(link)
            _go_between(passed, gate)
    except OSError as error:
        os.write(gate, encode(REFUSED, errno=error.errno or 0))


def _go_between(passed: "list[int]", gate: int) -> None:
    """Fork the relay, say its pid, stay until the daemon knows it. Never returns."""
    try:
        # a relay that dies while we wait must stay a zombie, for the daemon to reap
        kernel.default_child_signal()
        try:
            relay = os.fork()
        except OSError as error:
            os.write(gate, encode(REFUSED, errno=error.errno or 0))
            return
        if relay == 0:
            os.close(gate)
            owner.serve(passed)
        for fd in passed:
            os.close(fd)
        os.write(gate, encode(FORKED, pid=relay, middle=os.getpid()))
        os.read(gate, 1)
    finally:
        os._exit(0)


def main(link: int) -> None:
    """Entry of the program that the daemon starts: only the link stays open."""
    null = os.open("/dev/null", os.O_RDWR)
    # relays, anchors and servers must not hold the daemon's own stdio, nor anything else it had
    for fd in range(3):
        os.dup2(null, fd)
    os.set_inheritable(link, False)
    os.closerange(3, link)
    os.closerange(link + 1, os.sysconf("SC_OPEN_MAX"))
    serve(link)


def main_relay() -> None:
    """Entry of a relay that is exec'd without a fork server: descriptors from FIRST_FD on."""
    count = len(FD_ORDER) - 1
    fds = list(range(FIRST_FD, FIRST_FD + count))
    for fd in fds:
        os.set_inheritable(fd, False)
    os.closerange(3, FIRST_FD)
    os.closerange(FIRST_FD + count, os.sysconf("SC_OPEN_MAX"))
    owner.serve(fds)
