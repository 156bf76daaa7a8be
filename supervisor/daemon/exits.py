"""What an error means for `mcp-supervisord`: its exit code, and one sentence for people.

Source: design section 13.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from supervisor.core.errors import (
    ConfigError,
    DaemonUnreachableError,
    InternalError,
    KernelError,
    RequestError,
    SupervisorError,
)
from supervisor.core.exits import (
    CONFIGURATION,
    FAILED,
    OUR_BUG,
    REFUSED_BY_OS,
    UNREACHABLE,
)

_CODES: Final[Mapping[type[SupervisorError], int]] = MappingProxyType(
    {
        ConfigError: CONFIGURATION,
        DaemonUnreachableError: UNREACHABLE,
        KernelError: REFUSED_BY_OS,
        InternalError: OUR_BUG,
    }
)
"""Every other error of ours is an operation that failed and was explained."""


class AlreadyRunningError(RequestError):
    """Another daemon holds the lock of this runtime directory; it was not disturbed."""

    code = "already_running"

    def __init__(self, runtime_dir: str, pid_hint: int | None) -> None:
        self.runtime_dir = runtime_dir
        self.pid_hint = pid_hint
        named = f" (pid {pid_hint}, says its lock file)" if pid_hint else ""
        super().__init__(
            f"A daemon already runs in {runtime_dir}{named}. Stop it with `mcp-supervisord stop "
            f"--runtime-dir {runtime_dir}`, or give this one another --runtime-dir."
        )


class NamesakeError(ConfigError):
    """The unrelated PyPI project `supervisor` is installed beside us and shares our import name."""

    code = "namesake_installed"

    def __init__(self) -> None:
        super().__init__(
            "The PyPI project `supervisor` is installed in this Python environment and uses the "
            "same import name as mcp-supervisord; install the two in separate environments."
        )


def explain(error: Exception) -> tuple[int, str]:
    """The exit code that belongs to `error`, and a sentence without a traceback."""
    if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        return explain(error.exceptions[0])  # a task group's wrapping
    if isinstance(error, SupervisorError):
        codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
        return next(codes, FAILED), str(error)
    return _explain_foreign(error)


def _explain_foreign(error: Exception) -> tuple[int, str]:
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else str(error)
        where = f" ({error.filename})" if error.filename else ""
        return REFUSED_BY_OS, f"The operating system refused: {reason}{where}."
    return OUR_BUG, f"This is a bug of mcp-supervisord: {type(error).__name__}: {error}."
