"""What every command takes: the three places, before or after the command, and `--json`."""

from collections.abc import Callable
from typing import Final, TypeVar

import click

from supervisor.client.client import Client
from supervisor.client.where import locate
from supervisor.core.ids import DEFAULT_SESSION, SessionKey, is_session_key
from supervisor.core.places import Places

Function = TypeVar("Function", bound=Callable[..., object])

_PLACES: Final = (
    ("config", "FILE", "The configuration file; else $MCP_SUPERVISOR_CONFIG or the default."),
    ("state_dir", "DIR", "The daemon's state folder; else $MCP_SUPERVISOR_STATE_DIR."),
    ("runtime_dir", "DIR", "The folder of its sockets; else $MCP_SUPERVISOR_RUNTIME_DIR."),
)


class Given:
    """What the command line said beside the command itself; click hands it on as `ctx.obj`."""

    __slots__ = ("as_json", "config", "runtime_dir", "state_dir")

    def __init__(self) -> None:
        self.config: str | None = None
        self.state_dir: str | None = None
        self.runtime_dir: str | None = None
        self.as_json = False

    def places(self) -> Places:
        """Where the daemon is, by flags, environment and user."""
        return locate(self.config, self.state_dir, self.runtime_dir)

    def client(self) -> Client:
        """A client of that daemon; nothing is connected yet."""
        return Client(self.places().control_socket)

    def options(self) -> dict[str, str]:
        """The places that were given, as options for another program."""
        pairs = (
            ("--config", self.config),
            ("--state-dir", self.state_dir),
            ("--runtime-dir", self.runtime_dir),
        )
        return {option: value for option, value in pairs if value is not None}


def _keep(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    # after the command beats before it: the later word wins, as in any command line
    if value is not None and value is not False and parameter.name is not None:
        setattr(ctx.ensure_object(Given), parameter.name, value)


def take_places(*, hidden: bool) -> Callable[[Function], Function]:
    """Add the three options; hidden where they would only repeat what the group's help says."""

    def add(function: Function) -> Function:
        for name, metavar, text in reversed(_PLACES):
            option = f"--{name.replace('_', '-')}"
            function = click.option(
                option,
                name,
                metavar=metavar,
                help=text,
                hidden=hidden,
                expose_value=False,
                callback=_keep,
            )(function)
        return function

    return add


def take_json(function: Function) -> Function:
    """Add `--json`."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        expose_value=False,
        callback=_keep,
        help="Print the daemon's answer as one JSON document, unchanged.",
    )(function)


def _session_of(_: click.Context, __: click.Parameter, value: str) -> SessionKey:
    if is_session_key(value):
        return SessionKey(value)
    message = f"{value!r} is no session key: letters, digits and . _ : @ - only, at most 128."
    raise click.BadParameter(message)


def take_session(function: Function) -> Function:
    """Add `--session`, which is the default session where it is not given."""
    return click.option(
        "--session",
        metavar="KEY",
        default=DEFAULT_SESSION,
        show_default=True,
        callback=_session_of,
        help="Whose servers.",
    )(function)


def examples(*lines: str) -> str:
    """The epilog of a help text: what to type, one line each."""
    return "\n".join(
        ["\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {x}" for x in lines)]
    )
