"""Commands that only look: status, instances, reports, events, logs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from supervisor.cli.ending import exit_text, plain
from supervisor.cli.options import Given, examples, take_json, take_places
from supervisor.cli.tables import NONE, span, table
from supervisor.client.bodies import Daemon as DaemonBody
from supervisor.client.bodies import Event, Instance, Report, Server, Status
from supervisor.core import exits
from supervisor.core.ids import ServerName

LOG_LINES: Final = 100
"""What fills a screen or two."""

MOST_LOG_LINES: Final = 10000
"""The API gives no more of them at a time."""


@click.command(
    short_help="Show the daemon, its servers and their instances.",
    help="""Show the daemon, its servers and their instances.

    Exit code 0 whenever the daemon answers, whatever it has to tell.
    """,
    epilog=examples("mcpctl status", "mcpctl status --json"),
)
@take_json
@take_places(hidden=True)
@click.pass_obj
def status(given: Given) -> int:
    """Show one snapshot."""
    answer = given.client().status()
    _print(given, answer.text, () if given.as_json else _status_lines(answer.value))
    return exits.DONE


@click.command(
    short_help="List what runs, stops or is quarantined.",
    help="""List the instances: each is one server with all the processes that it started.

    A quarantined instance is one whose cleanup could not be confirmed; it is kept and tried on.
    """,
    epilog=examples("mcpctl instances", "mcpctl instances --quarantined"),
)
@click.option("--quarantined", is_flag=True, help="Only those whose cleanup is unconfirmed.")
@take_json
@take_places(hidden=True)
@click.pass_obj
def instances(given: Given, *, quarantined: bool) -> int:
    """List instances."""
    answer = given.client().instances(quarantined=True if quarantined else None)
    found = answer.value["instances"]
    none = "No instance is quarantined." if quarantined else "No instance is there."
    _print(given, answer.text, _instance_lines(found) if found else [none])
    return exits.DONE


@click.command(
    short_help="List how stops ended and what was proven.",
    help="""List the cleanup reports that the daemon has kept, oldest first.

    A report says how an instance was stopped and what is proven about it.
    """,
    epilog=examples("mcpctl reports", "mcpctl reports --unconfirmed --json"),
)
@click.option("--unconfirmed", is_flag=True, help="Only those of unconfirmed cleanups.")
@take_json
@take_places(hidden=True)
@click.pass_obj
def reports(given: Given, *, unconfirmed: bool) -> int:
    """List reports."""
    answer = given.client().reports(outcome="unconfirmed" if unconfirmed else None)
    found = answer.value["reports"]
    none = "No cleanup is unconfirmed." if unconfirmed else "No report has been made yet."
    _print(given, answer.text, _report_table(found) if found else [none])
    return exits.DONE


@click.command(
    short_help="Show what has happened, or is happening (-f).",
    help="""Show what has happened: starts, stops, exits, with their facts.

    With -f it goes on until the daemon stops or you press Ctrl-C; with --json as well, one JSON
    object in each line.
    """,
    epilog=examples("mcpctl events", "mcpctl events -f", "mcpctl events -f --json"),
)
@click.option("-f", "--follow", is_flag=True, help="Go on and show events as they happen.")
@take_json
@take_places(hidden=True)
@click.pass_obj
def events(given: Given, *, follow: bool) -> int:
    """Show events."""
    client = given.client()
    if not follow:
        answer = client.events()
        found = answer.value["events"]
        lines = [_event_line(event) for event in found] or ["Nothing has happened yet."]
        _print(given, answer.text, lines)
        return exits.DONE
    for message in client.follow():
        click.echo(message.data if given.as_json else _event_line(json.loads(message.data)))
    click.echo("mcpctl: The daemon has ended the stream.", err=True)
    return exits.DONE


@click.command(
    short_help="Show what a server writes to stderr (-f: goes on).",
    help="""Show the last lines that server NAME has written to stderr, of all its instances.

    Each begins with its time and the id of its instance. With -f it goes on until the daemon stops
    or you press Ctrl-C.
    """,
    epilog=examples("mcpctl logs git", "mcpctl logs git -f --lines 10"),
)
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on and show lines as they come.")
@click.option(
    "--lines",
    metavar="N",
    type=click.IntRange(0, MOST_LOG_LINES),
    default=LOG_LINES,
    show_default=True,
    help="How many of the lines that are there.",
)
@take_places(hidden=True)
@click.pass_obj
def logs(given: Given, name: str, *, follow: bool, lines: int) -> int:
    """Show the log of one server."""
    shown = False
    try:
        # bytes, so that no locale of ours can refuse what a server has written
        for piece in given.client().logs(ServerName(name), lines, follow=follow):
            click.echo(piece, nl=False)
            shown = True
    except KeyboardInterrupt:
        return exits.INTERRUPTED  # the usual end of -f, and nothing to explain
    if follow:
        click.echo("mcpctl: The daemon has ended the stream.", err=True)
    elif not shown and lines:
        click.echo(f"mcpctl: {plain(name)} has written nothing to stderr yet.", err=True)
    return exits.DONE


def _print(given: Given, text: str, lines: Sequence[str]) -> None:
    click.echo(text if given.as_json else "\n".join(lines))


def _status_lines(status: Status) -> list[str]:
    daemon, limits, queue = status["daemon"], status["limits"], status["queue"]
    many = f"{limits['instances']} of {limits['max_instances']} instances"
    about = f"mcp-supervisord {daemon['version']}, pid {daemon['pid']}"
    lines = [
        f"{about}, up {span(daemon['uptime_s'])}; {many}",
        f"configuration: {_configuration(daemon)}",
    ]
    if queue["starting"] or queue["waiting"]:
        lines.append(f"starts: {queue['starting']} under way, {queue['waiting']} waiting")
    if daemon["stopping"]:
        lines.append("The daemon is shutting down.")
    lines.append("")
    if not status["servers"]:
        return [*lines, "No server is configured."]
    rows = [
        (server["name"], server["state"], len(server["instances"]), server["command"])
        for server in status["servers"]
    ]
    lines += table(("SERVER", "STATE", "INSTANCES", "COMMAND"), rows)
    told = [line for server in status["servers"] for line in _trouble(server)]
    if told:
        lines += ["", *told]
    if status["instances"]:
        lines += ["", *_instance_lines(status["instances"])]
    return lines


def _configuration(daemon: DaemonBody) -> str:
    """The files that were read; a daemon from before an upgrade names the main one only."""
    files = daemon.get("config_files") or [name for name in [daemon["config_file"]] if name]
    return plain(", ".join(files)) if files else "none"


def _trouble(server: Server) -> Iterator[str]:
    """Why a server does not run, and when it is tried again."""
    if server["error"]:
        yield f"{plain(server['name'])}: {plain(server['error'])}"
    left_s = server.get("next_start_in_s")  # a daemon from before an upgrade has no such key
    if left_s is not None:
        many = "once" if server["exits"] == 1 else f"{server['exits']} times"
        yield (
            f"{plain(server['name'])}: has ended by itself {many}, starts again in {left_s:.1f} s"
        )


def _instance_lines(found: Sequence[Instance]) -> list[str]:
    head = ("INSTANCE", "SERVER", "SESSION", "STATE", "PID", "UP", "CLIENTS", "CALLS", "STOP")
    rows = [
        (
            instance["id"],
            instance["server"],
            instance["session"],
            instance["state"],
            instance["pid"],
            span(instance["uptime_s"]),
            instance["clients"],
            instance["calls_in_flight"],
            _stop_text(instance),
        )
        for instance in found
    ]
    quarantined = [
        f"{instance['id']} ({plain(instance['server'])}) is quarantined; `mcpctl reports "
        f"--unconfirmed --json` says what is left, `mcpctl release {instance['id']}` gives it up."
        for instance in found
        if instance["quarantined"]
    ]
    notes = [*quarantined, *(line for instance in found for line in _stray_text(instance))]
    return [*table(head, rows), *([""] if notes else []), *notes]


def _stray_text(instance: Instance) -> Iterator[str]:
    """What a server writes on stdout that does not belong there."""
    count = instance.get("stray_lines", 0)  # a daemon from before an upgrade has no such key
    if count:
        many = "1 line" if count == 1 else f"{count} lines"
        first = plain(instance["first_stray_lines"][0])
        yield (
            f"{instance['id']} ({plain(instance['server'])}) wrote {many} to stdout that are no "
            f"JSON-RPC; the first: {first}"
        )


def _stop_text(instance: Instance) -> str:
    if instance["quarantined"]:
        return "quarantined"
    if instance["stop"] is None:
        return NONE
    return f"{instance['stop']['stage']}, deadline in {instance['stop']['deadline_in_s']:.1f} s"


def _report_table(found: Sequence[Report]) -> list[str]:
    head = ("REQUESTED", "INSTANCE", "SERVER", "REASON", "OUTCOME", "TOOK", "EXIT", "MISSING")
    rows = [
        (
            report["requested_at_utc"],
            report["instance"],
            report["server"],
            report["reason"],
            report["outcome"] + (" (released)" if report["released"] else ""),
            f"{report['elapsed_s']:.3f} s",
            # what was never started has no exit
            None if report["reason"] == "start_failed" else exit_text(report["exit"]),
            ", ".join(report["missing"]),
        )
        for report in found
    ]
    return table(head, rows)


def _event_line(event: Event) -> str:
    words = [event["at_utc"], event["name"]]
    for key, value in (
        ("server", event["server"]),
        ("session", event["session"]),
        ("instance", event["instance"]),
        *_facts(event["data"]),
    ):
        if value is not None:
            words.append(f"{key}={_value(value)}")
    return plain(" ".join(words))


def _facts(data: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The facts of an event; of a whole cleanup report only what fits on a line."""
    for name, value in data.items():
        if isinstance(value, dict) and name == "report":
            for part in ("reason", "outcome", "elapsed_s", "missing"):
                yield part, value.get(part) or None
        else:
            yield name, value


def _value(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and " " not in value:
        return value
    return json.dumps(value, ensure_ascii=False)
