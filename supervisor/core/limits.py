"""How a server is restarted and how long its calls may last: values that are already right.

`config` makes them from a file; whoever restarts and calls takes them and checks nothing again.
All of them apply to a running server: none is seen by its process.
Source: design sections 8, 9 and 10.
"""

from dataclasses import dataclass
from typing import Final, Literal

RestartKind = Literal["permanent", "transient", "temporary"]
"""Restart always; after an abnormal exit; never."""

DEFAULT_BACKOFF_S: Final = 0.5
DEFAULT_BACKOFF_MAX_S: Final = 60.0
DEFAULT_REQUEST_TIMEOUT_S: Final = 60.0

DEFAULT_LINE_BYTES: Final = 16 * 1024 * 1024
"""A page image or a database dump in one answer; above that, an answer is a mistake."""

DEFAULT_CLIENT_QUEUE_BYTES: Final = 8 * 1024 * 1024
"""What a client of a shared instance may leave unread before it is disconnected."""

DEFAULT_SESSION_IDLE_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """When a server that ended is started again.

    Attributes:
        kind: after which exits.
        intensity: how many restarts within `period_s` are borne before the server has failed.
        period_s: seconds that `intensity` counts over.
        backoff_s: seconds before the first restart; doubled for each further one.
        backoff_max_s: where the doubling ends, in seconds; never below `backoff_s`.
    """

    kind: RestartKind = "transient"
    intensity: int = 5
    period_s: float = 60.0
    backoff_s: float = DEFAULT_BACKOFF_S
    backoff_max_s: float = DEFAULT_BACKOFF_MAX_S


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """What bounds the calls to one server.

    Attributes:
        connection_timeout_s: seconds for the start, the handshake and the first listing.
        request_timeout_s: seconds for each call, from its beginning.
        max_total_timeout_s: seconds that progress may extend a call to, never below
            `request_timeout_s`; None: without end.
        reset_on_progress: whether progress extends a call at all.
        max_line_bytes: the longest line that is taken from the server, without its newline.
    """

    connection_timeout_s: float = 30.0
    request_timeout_s: float = DEFAULT_REQUEST_TIMEOUT_S
    max_total_timeout_s: float | None = None
    reset_on_progress: bool = False
    max_line_bytes: int = DEFAULT_LINE_BYTES
