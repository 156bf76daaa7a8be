"""What can go wrong between a caller and the daemon, beside what the daemon itself explains."""

import errno as errors_of_kernel
from collections.abc import Mapping
from typing import Final

from supervisor.core.errors import DaemonUnreachableError, KernelError, SupervisorError

_ABSENT: Final = frozenset({errors_of_kernel.ENOENT, errors_of_kernel.ECONNREFUSED})


class ProblemError(SupervisorError):
    """The daemon refused or failed, and said why in a problem document (RFC 9457).

    Attributes:
        status: the HTTP status.
        problem: the stable code of what went wrong, such as `unknown_server`.
        fields: the typed facts beside title and detail, such as `survivors`.
        document: the answer's body, unchanged, for `--json`.
    """

    code = "problem"

    def __init__(
        self, status: int, problem: str, detail: str, fields: Mapping[str, object], document: str
    ) -> None:
        self.status = status
        self.problem = problem
        self.fields = fields
        self.document = document
        super().__init__(detail)


class SocketRefusedError(KernelError):
    """The control socket is there, and the kernel does not let us use it."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(
            f"The socket {path} may not be used: {reason}. Run this as the user of the daemon, or "
            "name one of your groups in supervisor.socketGroup."
        )


class GarbledAnswerError(SupervisorError):
    """What came back over the socket is not what this version of the daemon speaks."""

    code = "internal"

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        super().__init__(
            f"The answer on {path} cannot be understood ({what}). Is another program, or another "
            "version of the daemon, listening there? `mcpctl doctor` tells."
        )


def unreachable(path: str, error: OSError) -> SupervisorError:
    """The error that explains why nobody was reached at `path`."""
    if error.errno in _ABSENT:
        return DaemonUnreachableError(
            f"No daemon answers on {path}. Start it with `mcp-supervisord start`."
        )
    if error.errno == errors_of_kernel.EAGAIN:
        return silent(path)
    return SocketRefusedError(path, error.strerror or str(error))


def silent(path: str) -> DaemonUnreachableError:
    """The error for a daemon that listens on `path` and does not answer."""
    return DaemonUnreachableError(
        f"The daemon on {path} does not answer. It may be stopped (SIGSTOP) or starved; its log "
        "may say more, and `mcpctl doctor` shows what is known here."
    )


def hung_up(path: str) -> DaemonUnreachableError:
    """The error for a daemon that went away in the middle of an answer."""
    return DaemonUnreachableError(
        f"The daemon on {path} ended the connection before it had answered. `mcpctl status` shows "
        "whether it is still there."
    )
