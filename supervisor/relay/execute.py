"""From a fork to the server: everything between them, in the child, with exact errors.

Runs in the anchor's child, which is already in the anchor's session and group. It either becomes
the server or writes one `failed` message to the status pipe, which is close-on-exec: the end of
that pipe without a message means that the exec worked.
"""

import os
import resource

from supervisor.relay import kernel
from supervisor.relay.launch_order import LaunchOrder
from supervisor.relay.message import FAILED, encode

LINEAGE_FD = 3
"""Where the server and its descendants hold the lineage pipe: right behind stdio."""

ENOENT, EACCES, ENOTDIR, EISDIR = 2, 13, 20, 21
S_IFMT, S_IFDIR = 0o170000, 0o040000
RLIMIT_NOFILE = 7


class LaunchStepError(Exception):
    """A step of the launch failed: `step`, `errno` and the path concerned."""

    def __init__(self, errno: int, step: str, path: bytes = b"") -> None:
        self.step = step
        self.errno = errno
        self.path = path
        super().__init__(step)


def become_server(
    order: LaunchOrder, stdio: "tuple[int, int, int]", lineage: int, status: int
) -> None:
    """Turn this process into the server; on failure say why on `status` and exit 127."""
    try:
        if status <= LINEAGE_FD:
            status = _above(status)
        kernel.default_signals()
        _place(stdio, lineage)
        _limit(order)
        _change_user(order)
        try:
            os.chdir(order.cwd)
        except OSError as error:
            raise LaunchStepError(error.errno or 0, "chdir", order.cwd) from None
        _exec(order)
    except LaunchStepError as error:
        path = error.path.decode("utf-8", "surrogateescape")
        os.write(status, encode(FAILED, step=error.step, errno=error.errno, path=path))
    except OSError as error:
        os.write(status, encode(FAILED, step="exec", errno=error.errno or 0, path=""))
    finally:
        os._exit(127)


def _above(fd: int) -> int:
    """A duplicate beyond the numbers that the server gets; the low ones are about to be reused."""
    spare = []
    while fd <= LINEAGE_FD:
        spare.append(fd)
        fd = os.dup(fd)
    for low in spare[1:]:
        os.close(low)
    return fd


def _place(stdio: "tuple[int, int, int]", lineage: int) -> None:
    """Put stdio at 0 to 2 and lineage behind it; all other descriptors are close-on-exec."""
    for target, source in enumerate(stdio):
        os.dup2(source, target, inheritable=True)
    if lineage == LINEAGE_FD:
        os.set_inheritable(lineage, True)
    else:
        os.dup2(lineage, LINEAGE_FD, inheritable=True)


def _limit(order: LaunchOrder) -> None:
    """Limits, umask and the place in the queue of the out-of-memory killer."""
    try:
        if order.umask >= 0:
            os.umask(order.umask)
        if order.nofile_soft >= 0:
            resource.setrlimit(RLIMIT_NOFILE, (order.nofile_soft, order.nofile_hard))
        if order.no_new_privileges:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    except (OSError, ValueError) as error:
        raise LaunchStepError(getattr(error, "errno", 0) or 0, "limits") from None
    if order.oom_score_adj >= -1000:  # noqa: PLR2004 - the kernel's lowest value
        try:
            fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"%d" % order.oom_score_adj)
            finally:
                os.close(fd)
        except OSError:
            pass  # a preference; a container may mount /proc read-only


def _change_user(order: LaunchOrder) -> None:
    try:
        if order.uid >= 0 or order.gid >= 0:
            os.setgroups(order.groups)
        if order.gid >= 0:
            os.setresgid(order.gid, order.gid, order.gid)
        if order.uid >= 0:
            os.setresuid(order.uid, order.uid, order.uid)
    except OSError as error:
        who = b"%d:%d" % (order.uid, order.gid)
        raise LaunchStepError(error.errno or 0, "user", who) from None


def _exec(order: LaunchOrder) -> None:
    program = order.argv[0]
    env = dict(entry.split(b"=", 1) for entry in order.env)
    if b"/" in program:
        _try(program, order.argv, env)
        raise LaunchStepError(ENOENT, "lookup", program)
    refused = b""
    for directory in env.get(b"PATH", b"").split(b":"):
        candidate = (directory or b".") + b"/" + program
        try:
            _try(candidate, order.argv, env)
        except LaunchStepError as error:
            if error.errno != EACCES:
                raise
            # as execvp(3): a later directory may hold one that may be run
            refused = refused or candidate
    if refused:
        raise LaunchStepError(EACCES, "exec", refused)
    raise LaunchStepError(ENOENT, "lookup", program)


def _try(path: bytes, argv: "list[bytes]", env: "dict[bytes, bytes]") -> None:
    """Exec `path`; return if there is no such file, raise for any other reason.

    ENOENT of a file that exists is about its interpreter, and EACCES of a directory about its
    being one: execve(2) uses one errno for several mistakes.
    """
    try:
        os.execve(path, argv, env)  # noqa: S606 - this is the program that the operator named
    except OSError as error:
        errno = error.errno or 0
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno in {ENOENT, ENOTDIR}:
            return
        raise LaunchStepError(error.errno or 0, "exec", path) from None
    if mode & S_IFMT == S_IFDIR:
        raise LaunchStepError(EISDIR, "exec", path)
    raise LaunchStepError(errno, "exec", path)
