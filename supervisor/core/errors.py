"""Every error that crosses a layer, by whose turn it is to act.

Callers read `code` and the typed fields, never the text; the text is for people and names server,
field and the way out. Secrets never become fields here.
"""

from typing import ClassVar, Literal


class SupervisorError(Exception):
    """The root; `code` is stable and part of the API."""

    code: ClassVar[str] = "error"


class ConfigError(SupervisorError):
    """The operator's turn: the configuration is wrong.

    Attributes:
        problems: one sentence each, with file, line, server and field.
    """

    code = "config_invalid"

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class RequestError(SupervisorError):
    """The caller's turn: the request cannot be met as it stands."""

    code = "request_invalid"


class UnknownServerError(RequestError):
    """No server of that name is configured."""

    code = "unknown_server"

    def __init__(self, server: str, known: tuple[str, ...]) -> None:
        self.server = server
        self.known = known
        names = ", ".join(known) if known else "none"
        super().__init__(f"No server is called {server!r}; configured: {names}.")


class UnknownInstanceError(RequestError):
    """No instance has that id, nor has its report been kept."""

    code = "unknown_instance"

    def __init__(self, instance: str) -> None:
        self.instance = instance
        super().__init__(
            f"No instance has the id {instance!r}; `mcpctl instances` lists those that live, "
            "`mcpctl reports` those that ended."
        )


class NotQuarantinedError(RequestError):
    """Only a quarantined instance can be released."""

    code = "not_quarantined"

    def __init__(self, instance: str) -> None:
        self.instance = instance
        super().__init__(
            f"Instance {instance} is not quarantined, so there is nothing to release; "
            f"`mcpctl stop` ends it."
        )


class CleanupUnconfirmedError(RequestError):
    """A quarantined instance blocks a new start of the same server in the same session."""

    code = "cleanup_unconfirmed"

    def __init__(self, server: str, instance: str, survivors: tuple[str, ...]) -> None:
        self.server = server
        self.instance = instance
        self.survivors = survivors
        alive = "; ".join(survivors) if survivors else "none that could be named"
        super().__init__(
            f"Server {server!r} is not started: the cleanup of its instance {instance} is "
            f"unconfirmed. Still alive: {alive}. End that, or give it up with "
            f"`mcpctl release {instance}`."
        )


class TooManyInstancesError(RequestError):
    """Every slot is taken; slots are freed by confirmed cleanup only."""

    code = "too_many_instances"

    def __init__(self, server: str, limit: int) -> None:
        self.server = server
        self.limit = limit
        super().__init__(
            f"Server {server!r} is not started: all {limit} instance slots are taken. Stop one, "
            "or raise supervisor.maxInstances."
        )


class ShuttingDownError(RequestError):
    """The daemon is on its way out and starts nothing any more."""

    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("The daemon is shutting down and starts nothing any more.")


class ServerFault(SupervisorError):  # noqa: N818 - the name is the convention's
    """The MCP server's turn: it is at fault."""

    code = "server_fault"


LaunchStep = Literal["lookup", "exec", "chdir", "user", "limits", "relay"]


class LaunchFailedError(ServerFault):
    """The server could not be started; nothing of the attempt is left behind.

    Attributes:
        step: where the launch stopped.
        errno: the kernel's reason, 0 where there is none.
        path: the path concerned, as the kernel saw it.
    """

    code = "launch_failed"

    def __init__(
        self, server: str, step: LaunchStep, errno: int, path: str, *, sentence: str
    ) -> None:
        self.server = server
        self.step = step
        self.errno = errno
        self.path = path
        super().__init__(f"Server {server!r} cannot be started: {sentence}")


class ServerRecordError(ConfigError):
    """This one server's record cannot be used; the others are not affected."""

    code = "server_record_invalid"

    def __init__(self, server: str, *problems: str) -> None:
        self.server = server
        super().__init__(*problems)


class ServerDisabledError(RequestError):
    """The record says `enabled: false`."""

    code = "server_disabled"

    def __init__(self, server: str) -> None:
        self.server = server
        super().__init__(
            f"Server {server!r} is disabled by its record; set enabled to true and type "
            "`mcpctl reload` to use it."
        )


class KernelError(SupervisorError):
    """The operating system refused; nothing that the caller or the server did."""

    code = "kernel_refused"


class DaemonUnreachableError(SupervisorError):
    """No daemon answers on the control socket."""

    code = "daemon_unreachable"


class InternalError(SupervisorError):
    """Ours: something that cannot happen did."""

    code = "internal"


class RefusedIdError(RequestError):
    """A JSON-RPC request whose id cannot be used, so that no answer could be told from others.

    Attributes:
        id_token: the id as its sender spelled it.
        reason: no string or integer; taken by a request in flight; more than one id in the
            message; or the message is broken where an id could hide.
    """

    code = "refused_id"

    def __init__(
        self, id_token: bytes, reason: Literal["not_an_id", "in_flight", "repeated", "broken"]
    ) -> None:
        self.id_token = id_token
        self.reason = reason
        shown = id_token[:60].decode(errors="replace")
        super().__init__(f"The request with id {shown} is refused: {_REFUSED_ID[reason]}.")


_REFUSED_ID = {
    "not_an_id": "an id has to be a string or an integer",
    "in_flight": "a request with this id is still in flight; use another one",
    "repeated": "it has more than one id; send one",
    "broken": "it is no valid JSON",
}


class ServerBackingOffError(ServerFault):
    """The server ended by itself a moment ago, again and again; it is not started until later."""

    code = "server_backing_off"

    def __init__(self, server: str, next_start_in_s: float, why: str) -> None:
        self.server = server
        self.next_start_in_s = next_start_in_s
        super().__init__(
            f"Server {server!r} is not started before {next_start_in_s:.1f} s have passed, since "
            f"it could not stay up: {why} `mcpctl start {server}` tries at once."
        )
