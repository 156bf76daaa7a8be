"""The kernel calls of the helpers, on the cheapest modules there are.

`import signal` pulls in enum (5 ms of an exec'd relay's 10), the ctypes package costs 2 ms more
than its C half: hence `_signal` and `_ctypes`. Everything that touches them is in this file.

Source: prctl(2), proc(5), wait(2), kill(2), on Linux 6.18; costs measured with `-X importtime`.
"""

import _ctypes
import _signal  # type: ignore[import-not-found] # typeshed has only the public module
import fcntl
import os
import time

SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM, SIGCHLD, SIGCONT, SIGSTOP = 1, 2, 3, 9, 15, 17, 18, 19
ESRCH = 3

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

LAST_SIGNAL = 64
COMMAND_BYTES = 240
"""How much of a command line is worth carrying in a report."""

monotonic = time.monotonic


class Stat:
    """What /proc/PID/stat says of one process; `start` is in clock ticks since boot."""

    __slots__ = ("command", "pgid", "pid", "ppid", "sid", "start", "state")

    def __init__(self, pid: int, raw: bytes) -> None:
        # the name may hold anything, brackets included: the last one ends it
        opening, closing = raw.find(b"("), raw.rfind(b")")
        fields = raw[closing + 2 :].split()
        self.pid = pid
        self.command = raw[opening + 1 : closing].decode("utf-8", "replace")
        self.state = fields[0].decode()
        self.ppid = int(fields[1])
        self.pgid = int(fields[2])
        self.sid = int(fields[3])
        self.start = int(fields[19])

    @property
    def alive(self) -> bool:
        """Whether it can still run: neither a zombie nor dead."""
        return self.state not in {"Z", "X"}


def prctl(option: int, argument: int) -> None:
    """Set one process attribute; the standard library has no binding for it.

    Raises:
        OSError: the kernel refused.
    """
    address = _ctypes.dlsym(_ctypes.dlopen(None, 2), "prctl")  # type: ignore[arg-type] # dlopen(3) takes NULL
    if _ctypes.call_function(address, (option, argument, 0, 0, 0)) != 0:
        message = f"prctl({option}) failed"
        raise OSError(0, message)


READ_BYTES = 4096
"""A page: a larger buffer would dirty more of a helper's memory than all it usually holds."""


def read_file(path: str, limit: int = 1 << 20) -> bytes:
    """The content of a small file, or nothing when it is gone or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        content = b""
        while len(content) < limit:
            chunk = os.read(fd, READ_BYTES)
            if not chunk:
                break
            content += chunk
    except OSError:
        return b""
    else:
        return content
    finally:
        os.close(fd)


def stat(pid: int) -> "Stat | None":
    """The process as it is now, or None when it is gone."""
    raw = read_file(f"/proc/{pid}/stat", 4096)
    return Stat(pid, raw) if raw else None


def children() -> "list[int]":
    """Direct children of this single-threaded process, zombies included."""
    me = os.getpid()
    return [int(pid) for pid in read_file(f"/proc/self/task/{me}/children").split()]


def has_children() -> bool:
    """Whether this process has any child, zombies included: the kernel's own word, by ECHILD.

    The list in /proc can fail to open when the machine is out of files; an empty one proves less.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants(pid: int, limit: int) -> "list[Stat]":
    """Living descendants of `pid`, nearest first, at most `limit`."""
    found: list[Stat] = []
    queue = [pid]
    while queue and len(found) < limit:
        parent = queue.pop(0)
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for task in tasks:
            for child in read_file(f"/proc/{parent}/task/{task}/children").split():
                seen = stat(int(child))
                if seen is None:
                    continue
                queue.append(seen.pid)
                if seen.alive:
                    found.append(seen)
    return found[:limit]


def command_line(pid: int, fallback: str) -> str:
    """The command line, arguments separated by blanks, shortened; `fallback` when unreadable."""
    raw = read_file(f"/proc/{pid}/cmdline", 4096).rstrip(b"\0").replace(b"\0", b" ")
    return raw[:COMMAND_BYTES].decode("utf-8", "replace") or f"[{fallback}]"


def send(call: "object", target: int, signal: int) -> int:
    """Send by `os.kill` or `os.killpg`; 0, or the errno as data: a failed signal is no exception.

    The caller owns the wait for `target` (a child, or a group whose leader is a child), so that
    the number cannot have been given to a stranger.
    """
    try:
        call(target, signal)  # type: ignore[operator] # os.kill or os.killpg
    except OSError as error:
        return error.errno or 0
    return 0


def own_session() -> "tuple[int, int]":
    """Make this process an owner: its own session, deaf to polite signals, heir of orphans.

    Returns:
        Read and write end of a pipe that becomes readable whenever a child changes.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    for signal in (SIGHUP, SIGINT, SIGQUIT, SIGTERM):
        _signal.signal(signal, _signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    shrink_pipe(wake_write)
    _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    _signal.signal(SIGCHLD, _on_child)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    return wake_read, wake_write


def _on_child(_signal_number: int, _frame: object) -> None:
    """Do nothing: that there is a handler makes the wake-up pipe readable."""


def forget_wake_up() -> None:
    """Detach a forked child from its parent's wake-up pipe."""
    _signal.set_wakeup_fd(-1)


def drain_wake_up(fd: int) -> None:
    """Empty the wake-up pipe; what it announced is looked up afterwards."""
    try:
        while len(os.read(fd, 4096)) == 4096:  # noqa: PLR2004 - a full read may not be the last
            pass
    except BlockingIOError:
        pass


def shrink_pipe(fd: int) -> None:
    """One page is enough for a signal pipe, and an unprivileged user has 16384 in all.

    Source: pipe(7), pipe-user-pages-soft.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 4096)
    except OSError:
        pass  # a small pipe is a saving, not a need


def default_signals() -> None:
    """Undo every inherited disposition and mask: ignored signals survive an exec.

    CPython ignores SIGPIPE and SIGXFSZ, python-daemon SIGTSTP, SIGTTIN and SIGTTOU, a shell
    whatever it was told to.
    """
    _signal.set_wakeup_fd(-1)
    for signal in range(1, LAST_SIGNAL + 1):
        if signal in {SIGKILL, SIGSTOP, 32, 33}:  # the last two belong to the C library's threads
            continue
        # the interpreter noted at its start what it inherited; asking it costs no system call
        if _signal.getsignal(signal) is not _signal.SIG_DFL:
            _signal.signal(signal, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def default_child_signal() -> None:
    """Let exited children become zombies again, to be waited for."""
    _signal.signal(SIGCHLD, _signal.SIG_DFL)


def reap_automatically() -> None:
    """Let exited children vanish: for the fork server, whose children are only go-betweens."""
    _signal.signal(SIGCHLD, _signal.SIG_IGN)


def ignore_polite_signals() -> None:
    """A service manager may signal the whole cgroup; only pipes command a helper."""
    for signal in (SIGHUP, SIGINT, SIGQUIT, SIGTERM):
        _signal.signal(signal, _signal.SIG_IGN)
