"""Commands that use servers: sessions, tools, call, probe."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import click

from supervisor.cli.ending import plain
from supervisor.cli.options import Given, examples, take_json, take_places, take_session
from supervisor.cli.sentences import stop_lines
from supervisor.cli.tables import table
from supervisor.cli.waiting import Countdown
from supervisor.client.bodies import CallResult, Instance, Probe, Session
from supervisor.core import exits
from supervisor.core.ids import ServerName, SessionKey

SHOWN_CHARS: Final = 70
"""How much of a description a list shows: the first line, cut."""


@click.command(
    short_help="List the sessions, or end one (--end KEY).",
    help="""List the sessions: each is a key that clients chose, and what it holds.

    With --end, stop all servers of a session and forget it; exit code 3 if a cleanup is
    unconfirmed.
    """,
    epilog=examples("mcpctl sessions", "mcpctl sessions --end work"),
)
@click.option("--end", metavar="KEY", help="Stop what this session holds, and forget it.")
@take_json
@take_places(hidden=True)
@click.pass_obj
def sessions(given: Given, end: str | None) -> int:
    """List or end sessions."""
    client = given.client()
    if end is None:
        answer = client.sessions()
        found = answer.value["sessions"]
        lines = _session_table(found) if found else ["There is no session."]
        click.echo(answer.text if given.as_json else "\n".join(lines))
        return exits.DONE
    goes_on = f"Interrupted; the end of session {end!r} goes on in the daemon."
    with Countdown(client, "the session", lambda i: i["session"] == end, goes_on=goes_on) as tick:
        ended = client.delete_session(SessionKey(end), tick)
    text = "\n".join(stop_lines(ended.value["reports"])) or f"{end}: nothing was running"
    click.echo(ended.text if given.as_json else text)
    return exits.exit_of_outcome(ended.value["outcome"])


@click.command(
    short_help="List the tools of a session.",
    help="""List the tools of all servers of a session; starts the servers that do not run.

    A server that cannot be started or listed is told on stderr; the others are shown.
    """,
    epilog=examples("mcpctl tools", "mcpctl tools --session work --json"),
)
@take_session
@take_json
@take_places(hidden=True)
@click.pass_obj
def tools(given: Given, session: SessionKey) -> int:
    """List tools."""
    client = given.client()
    with Countdown(client, "the servers", _of(session), goes_on="Interrupted.") as tick:
        answer = client.tools(session, tick)
    if given.as_json:
        click.echo(answer.text)
        return exits.DONE
    found = answer.value["tools"]
    rows = [(str(tool["name"]), _first_line(tool.get("description"))) for tool in found]
    click.echo("\n".join(table(("TOOL", "DESCRIPTION"), rows) if rows else ["No tool is there."]))
    for diagnostic in answer.value["diagnostics"]:
        click.echo(f"mcpctl: {plain(diagnostic)}", err=True)
    return exits.DONE


@click.command(
    short_help="Call a tool.",
    help="""Call TOOL, as `mcpctl tools` names it, and print what it answers.

    Arguments are KEY=VALUE words: a value that is JSON is taken as such (42, true, [1,2]), anything
    else is text. Or give the whole object with --arguments. Exit code 1 if the tool says that it
    failed, or could not be called.
    """,
    epilog=examples(
        "mcpctl call git__git_status repo_path=/srv/project",
        'mcpctl call search__find --arguments \'{"query": "zebra", "limit": 3}\' --json',
    ),
)
@click.argument("tool")
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--arguments", metavar="JSON", help="The arguments as one JSON object.")
@take_session
@take_json
@take_places(hidden=True)
@click.pass_obj
def call(
    given: Given, tool: str, words: Sequence[str], arguments: str | None, session: SessionKey
) -> int:
    """Call one tool."""
    client = given.client()
    sent = read_arguments(words, arguments)
    goes_on = "Interrupted; the call was cancelled."
    with Countdown(client, f"the answer of {tool}", _of(session), goes_on=goes_on) as tick:
        answer = client.call(session, tool, sent, tick)
    click.echo(answer.text if given.as_json else "\n".join(_result_lines(answer.value)))
    return exits.FAILED if answer.value.get("isError") is True else exits.DONE


@click.command(
    short_help="Start a server, ask what it offers, stop it.",
    help="""Try server NAME out: start an instance of its own, make the handshake, list what it
    offers, and stop it. Nothing that runs is touched.
    """,
    epilog=examples("mcpctl probe git", "mcpctl probe git --json"),
)
@click.argument("name")
@take_json
@take_places(hidden=True)
@click.pass_obj
def probe(given: Given, name: str) -> int:
    """Probe one server."""
    client = given.client()
    goes_on = "Interrupted; the probe ends by itself."
    with Countdown(client, name, lambda i: i["server"] == name, goes_on=goes_on) as tick:
        answer = client.probe(ServerName(name), tick)
    click.echo(answer.text if given.as_json else "\n".join(_probe_lines(answer.value)))
    return exits.DONE if answer.value["ok"] else exits.FAILED


def read_arguments(words: Sequence[str], whole: str | None) -> str:
    """The arguments of a call as one JSON object.

    Raises:
        click.UsageError: they are none; the message says what would be right.
    """
    if whole is not None:
        if words:
            message = "Give the arguments as KEY=VALUE words or with --arguments, not both."
            raise click.UsageError(message)
        try:
            parsed = json.loads(whole)
        except ValueError as error:
            message = f"--arguments is no JSON: {error}."
            raise click.UsageError(message) from None
        if not isinstance(parsed, dict):
            message = '--arguments has to be a JSON object, such as {"path": "/tmp"}.'
            raise click.UsageError(message)
        return whole
    given: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            message = f"{word!r} is no argument; write KEY=VALUE."
            raise click.UsageError(message)
        given[key] = _value(value)
    return json.dumps(given)


def _value(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value


def _of(session: SessionKey) -> Callable[[Instance], bool]:
    return lambda instance: instance["session"] == session


def _session_table(found: Sequence[Session]) -> list[str]:
    rows = [
        (
            session["key"],
            len(session["instances"]),
            ", ".join(f"{server['name']} ({server['state']})" for server in session["servers"]),
        )
        for session in found
    ]
    return table(("SESSION", "INSTANCES", "SERVERS"), rows)


def _first_line(description: object) -> str:
    text = description if isinstance(description, str) else ""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1] + "…"


def _result_lines(result: CallResult) -> Iterator[str]:
    """What a tool answered, for people: text as it is, all else by its kind."""
    shown = False
    for block in result.get("content", []):
        shown = True
        yield from _block_lines(block)
    structured = result.get("structuredContent")
    if structured is not None and not shown:
        yield json.dumps(structured, ensure_ascii=False, indent=2)
        shown = True
    if not shown:
        yield "The tool failed and said nothing." if result.get("isError") else "Done; no content."


def _block_lines(block: Mapping[str, object]) -> Iterator[str]:
    match block:
        case {"type": "text", "text": str(text)}:
            yield from (plain(line) for line in text.split("\n"))
        case {"type": "image" | "audio" as kind, "data": str(data), "mimeType": str(mime)}:
            yield f"[{kind}, {plain(mime)}, {len(data) * 3 // 4} bytes; --json has it]"
        case {"type": "resource_link", "uri": str(uri)}:
            yield f"[resource {plain(uri)}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            yield from (plain(line) for line in text.split("\n"))
        case _:
            yield plain(json.dumps(block, ensure_ascii=False))


def _probe_lines(probe: Probe) -> Iterator[str]:
    name = plain(probe["server"])
    if not probe["ok"]:
        yield f"{name}: failed after {probe['took_s']:.1f} s"
        yield plain(probe["error"] or "")
        return
    info = probe["server_info"] or {}
    who = plain(f"{info.get('name', 'unnamed')} {info.get('version', '')}".strip())
    yield f"{name}: ready after {probe['took_s']:.1f} s"
    yield f"server: {who}"
    yield f"protocol: {probe['protocol_version']} ({probe['how']})"
    for what, count in (
        ("tools", probe["tools"]),
        ("prompts", probe["prompts"]),
        ("resources", probe["resources"]),
    ):
        if count is not None:
            yield f"{what}: {count}"
    yield from (plain(diagnostic) for diagnostic in probe["diagnostics"])
