"""Commands that act: start, stop, restart, release, shutdown."""

import click

from supervisor.cli.options import Function, Given, examples, take_json, take_places
from supervisor.cli.sentences import released_lines, started_line, stop_lines
from supervisor.cli.waiting import Countdown
from supervisor.client.bodies import Instance, Stopped
from supervisor.client.client import Answered
from supervisor.core import exits
from supervisor.core.ids import InstanceId, ServerName, SessionKey, is_instance_id, is_session_key


def _session(_: click.Context, __: click.Parameter, value: str | None) -> SessionKey | None:
    if value is None or is_session_key(value):
        return None if value is None else SessionKey(value)
    message = f"{value!r} is no session key: letters, digits and . _ : @ - only, at most 128."
    raise click.BadParameter(message)


def _instance(_: click.Context, __: click.Parameter, value: str | None) -> InstanceId | None:
    if value is None or is_instance_id(value):
        return None if value is None else InstanceId(value)
    message = f"{value!r} is no instance id; `mcpctl instances` shows them, 16 digits each."
    raise click.BadParameter(message)


def _take_stop_options(function: Function) -> Function:
    for option, text in (
        ("--verify", "Also scan all processes of the machine for what may be left (10 ms more)."),
        ("--force", "Do not wait for a polite exit: terminate and kill early, same deadline."),
    ):
        function = click.option(option, is_flag=True, help=text)(function)
    return click.option(
        "--session", metavar="KEY", callback=_session, help="Only the instance of this session."
    )(function)


@click.command(
    short_help="Start a server.",
    help="""Start server NAME, unless it is there already.

    It belongs to session "default" unless --session says otherwise.
    """,
    epilog=examples("mcpctl start git", "mcpctl start git --session work"),
)
@click.argument("name")
@click.option("--session", metavar="KEY", callback=_session, help="The session that it is for.")
@take_json
@take_places(hidden=True)
@click.pass_obj
def start(given: Given, name: str, session: SessionKey | None) -> int:
    """Start one server."""
    client = given.client()
    goes_on = f"Interrupted; the start of {name!r} goes on in the daemon (`mcpctl status`)."
    with Countdown(client, f"{name} to start", _of(name, session), goes_on=goes_on) as tick:
        answer = client.start(ServerName(name), session, tick)
    value = answer.value
    _print(given, answer.text, started_line(value["instance"], started=value["started"]))
    return exits.DONE


@click.command(
    short_help="Stop a server, and prove that it is gone.",
    help="""Stop all instances of server NAME, or the one instance with the given id.

    Answers when it is known whether everything that the server had started is gone: exit code 0
    if that is confirmed (or nothing was running), 3 if something is missing.
    """,
    epilog=examples(
        "mcpctl stop git",
        "mcpctl stop git --session work --force",
        "mcpctl stop --instance 0123456789abcdef",
    ),
)
@click.argument("name", required=False)
@click.option("--instance", metavar="ID", callback=_instance, help="Stop only this instance.")
@_take_stop_options
@take_json
@take_places(hidden=True)
@click.pass_obj
def stop(
    given: Given,
    name: str | None,
    instance: InstanceId | None,
    session: SessionKey | None,
    *,
    force: bool,
    verify: bool,
) -> int:
    """Stop one server, or one instance."""
    if (name is None) == (instance is None):
        message = "Give either the NAME of a server or --instance ID."
        raise click.UsageError(message)
    if instance is not None:
        if session is not None:
            message = "--instance names one instance already; leave --session out."
            raise click.UsageError(message)
        answer = _stop_instance(given, instance, force=force, verify=verify)
    else:
        answer = _stop_server(given, name or "", session, force=force, verify=verify)
    if answer.value["outcome"] == "nothing_running":
        text = f"{name or instance}: nothing was running"
    else:
        text = "\n".join(stop_lines(answer.value["reports"]))
    _print(given, answer.text, text)
    return exits.exit_of_outcome(answer.value["outcome"])


@click.command(
    short_help="Stop a server and start it again.",
    help="""Stop server NAME and start it again.

    The new one is started only when the old one is confirmed gone; otherwise exit code 3.
    """,
    epilog=examples("mcpctl restart git", "mcpctl restart git --force"),
)
@click.argument("name")
@_take_stop_options
@take_json
@take_places(hidden=True)
@click.pass_obj
def restart(
    given: Given, name: str, session: SessionKey | None, *, force: bool, verify: bool
) -> int:
    """Restart one server."""
    client = given.client()
    goes_on = f"Interrupted; the restart of {name!r} goes on in the daemon (`mcpctl status`)."
    with Countdown(client, f"{name} to restart", _of(name, session), goes_on=goes_on) as tick:
        answer = client.restart(ServerName(name), session, tick, force=force, verify=verify)
    value = answer.value
    lines = stop_lines(value["reports"]) or [f"{name}: nothing was running"]
    if value["instance"] is None:
        lines.append(f"{name}: not started again, because its cleanup is unconfirmed")
    else:
        lines.append(started_line(value["instance"], started=True))
    _print(given, answer.text, "\n".join(lines))
    return exits.exit_of_outcome(value["outcome"])


@click.command(
    short_help="Give up an instance whose cleanup is unconfirmed.",
    help="""Give up the quarantined instance ID, so that its server can be started again.

    Only for an instance whose cleanup is unconfirmed, and on your word: whatever is left of it is
    yours to end. The report keeps saying that the cleanup was not confirmed.
    """,
    epilog=examples("mcpctl release 0123456789abcdef"),
)
@click.argument("instance", metavar="ID", callback=_instance)
@take_json
@take_places(hidden=True)
@click.pass_obj
def release(given: Given, instance: InstanceId) -> int:
    """Release one instance."""
    answer = given.client().release(instance)
    _print(given, answer.text, "\n".join(released_lines(answer.value)))
    return exits.DONE


@click.command(
    short_help="Stop the daemon and with it all servers.",
    help="""Stop the daemon and with it all servers.

    Waits until the daemon has gone, unless --no-wait is given; --json prints its first answer.
    """,
    epilog=examples("mcpctl shutdown", "mcpctl shutdown --force --no-wait"),
)
@click.option("--force", is_flag=True, help="Do not wait for polite exits; same deadline.")
@click.option("--no-wait", is_flag=True, help="Return as soon as the daemon has agreed.")
@take_json
@take_places(hidden=True)
@click.pass_obj
def shutdown(given: Given, *, force: bool, no_wait: bool) -> int:
    """Stop the daemon."""
    from supervisor.cli.departure import watch  # noqa: PLC0415 - needed here only

    return watch(given, force=force, wait=not no_wait)


def _of(name: str, session: SessionKey | None) -> "_Matching":
    return _Matching(name, session)


class _Matching:
    """Whether an instance is one that a command waits for."""

    def __init__(self, server: str, session: SessionKey | None) -> None:
        self._server = server
        self._session = session

    def __call__(self, instance: Instance) -> bool:
        return instance["server"] == self._server and self._session in {
            None,
            instance["session"],
        }


def _stop_server(
    given: Given, name: str, session: SessionKey | None, *, force: bool, verify: bool
) -> Answered[Stopped]:
    client = given.client()
    goes_on = f"Interrupted; the stop of {name!r} goes on in the daemon (`mcpctl status`)."
    with Countdown(client, f"{name} to stop", _of(name, session), goes_on=goes_on) as tick:
        return client.stop(ServerName(name), session, tick, force=force, verify=verify)


def _stop_instance(
    given: Given, instance: InstanceId, *, force: bool, verify: bool
) -> Answered[Stopped]:
    client = given.client()
    goes_on = f"Interrupted; the stop of {instance} goes on in the daemon (`mcpctl status`)."
    what = f"{instance} to stop"
    with Countdown(client, what, lambda i: i["id"] == instance, goes_on=goes_on) as tick:
        return client.stop_instance(instance, tick, force=force, verify=verify)


def _print(given: Given, document: str, text: str) -> None:
    click.echo(document if given.as_json else text)
