"""The command line of `mcp-supervisord`. Each command loads only what it needs."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import click

from supervisor.core.exits import INTERRUPTED
from supervisor.daemon.exits import explain
from supervisor.daemon.options import Options

P = ParamSpec("P")

_FLAGS = (
    click.option("--config", metavar="FILE", help="The configuration file."),
    click.option("--state-dir", metavar="DIR", help="What outlives a reboot: database and logs."),
    click.option("--runtime-dir", metavar="DIR", help="Sockets and lock; find the daemon by it."),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
    ),
    click.option(
        "--log-format",
        type=click.Choice(["auto", "json", "console"]),
        default="auto",
        show_default=True,
        help="auto: readable on a terminal, else JSON lines.",
    ),
)


def _with_flags(command: Callable[P, int]) -> Callable[P, None]:
    """Give `command` the shared flags, and turn its result or error into the exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        sys.exit(_code_of(lambda: command(*args, **kwargs)))

    decorated: Callable[P, None] = run
    for flag in reversed(_FLAGS):
        decorated = flag(decorated)
    return decorated


def _code_of(work: Callable[[], int]) -> int:
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the border to people: a sentence for any of them
        code, sentence = explain(error)
        click.echo(sentence, err=True)
        return code


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mcp-supervisord")
def main() -> None:
    """Own stdio MCP servers: start them, stop them for certain, and prove it.

    Everything else is asked of the running daemon with `mcpctl`.
    """


@main.command()
@_with_flags
def run(**flags: Any) -> int:  # noqa: ANN401 - click's values, typed by Options
    """Run in the foreground (systemd, containers, terminals)."""
    from supervisor.daemon.run import run_in_foreground  # noqa: PLC0415 - slow to load

    return run_in_foreground(Options(**flags))


@main.command()
@_with_flags
def start(**flags: Any) -> int:  # noqa: ANN401 - as above
    """Start in the background, and wait until it is ready."""
    from supervisor.daemon.detach import start_detached  # noqa: PLC0415 - as above

    return start_detached(Options(**flags))


@main.command()
@click.option("--force", is_flag=True, help="Do not wait for servers to leave by themselves.")
@_with_flags
def stop(*, force: bool, **flags: Any) -> int:  # noqa: ANN401 - as above
    """Stop the daemon and all its servers, and wait until it is gone."""
    from supervisor.daemon.stop import stop_daemon  # noqa: PLC0415 - as above

    return stop_daemon(Options(**flags), force=force)


@main.command()
@_with_flags
def check(**flags: Any) -> int:  # noqa: ANN401 - as above
    """Check the configuration, and start nothing."""
    from supervisor.daemon.check import check_configuration  # noqa: PLC0415 - as above

    return check_configuration(Options(**flags))
