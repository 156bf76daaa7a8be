"""What can go wrong between a caller and the daemon, beside what the daemon itself explains."""

import errno as errors_of_kernel
import json
from collections.abc import Mapping
from typing import Final

from supervisor.core.errors import DaemonUnreachableError, KernelError, SupervisorError

_ABSENT: Final = frozenset({errors_of_kernel.ENOENT, errors_of_kernel.ECONNREFUSED})
_PROBLEM_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "code"})
"""Without `instance`: here that is an instance id, not the URI of RFC 9457."""


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


class GivenUpError(SupervisorError, TimeoutError):
    """The caller's own time for a call was over; the daemon cancels the call at the server.

    Attributes:
        what: what was called.
        limit_s: seconds that the caller had allowed.
    """

    code = "call_timed_out"

    def __init__(self, what: str, limit_s: float) -> None:
        self.what = what
        self.limit_s = limit_s
        super().__init__(
            f"{what!r} did not answer within the {limit_s:g} s of its caller and was cancelled; "
            "allow more, or leave the limit to requestTimeoutMs of the server."
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


def refusal(path: str, status: int, text: str) -> ProblemError | GarbledAnswerError:
    """The error that an answer explains.

    Args:
        path: the control socket.
        status: the HTTP status, 300 or more.
        text: the body; a problem document, unless something else listens there.
    """
    try:
        document = json.loads(text)
        code, detail = document["code"], document.get("detail") or document.get("title")
    except (ValueError, TypeError, KeyError, AttributeError):
        return GarbledAnswerError(path, f"HTTP status {status} without a problem document")
    fields = {key: value for key, value in document.items() if key not in _PROBLEM_MEMBERS}
    return ProblemError(status, str(code), str(detail or code), fields, text)
