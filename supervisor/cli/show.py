"""Commands that only look: status, instances, reports, events."""

import json
from collections.abc import Iterator, Mapping, Sequence

import click

from supervisor.cli.ending import exit_text, plain
from supervisor.cli.options import Given, examples, take_json, take_places
from supervisor.cli.tables import NONE, span, table
from supervisor.client.bodies import Event, Instance, Report, Status
from supervisor.core import exits


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


def _print(given: Given, text: str, lines: Sequence[str]) -> None:
    click.echo(text if given.as_json else "\n".join(lines))


def _status_lines(status: Status) -> list[str]:
    daemon, limits, queue = status["daemon"], status["limits"], status["queue"]
    many = f"{limits['instances']} of {limits['max_instances']} instances"
    about = f"mcp-supervisord {daemon['version']}, pid {daemon['pid']}"
    lines = [
        f"{about}, up {span(daemon['uptime_s'])}; {many}",
        f"configuration: {plain(daemon['config_file'] or 'none')}",
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
    failed = [server for server in status["servers"] if server["error"]]
    if failed:
        lines += ["", *(f"{plain(s['name'])}: {plain(s['error'] or '')}" for s in failed)]
    if status["instances"]:
        lines += ["", *_instance_lines(status["instances"])]
    return lines


def _instance_lines(found: Sequence[Instance]) -> list[str]:
    head = ("INSTANCE", "SERVER", "SESSION", "STATE", "PID", "UP", "STOP")
    rows = [
        (
            instance["id"],
            instance["server"],
            instance["session"],
            instance["state"],
            instance["pid"],
            span(instance["uptime_s"]),
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
    return [*table(head, rows), *([""] if quarantined else []), *quarantined]


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
