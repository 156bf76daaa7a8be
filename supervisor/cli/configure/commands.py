"""The commands `list`, `show`, `add`, `set` and `unset`."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from supervisor.cli.ending import plain
from supervisor.cli.options import Given, examples, take_places
from supervisor.core import exits
from supervisor.core.errors import ConfigError, RequestError, UnknownServerError

if TYPE_CHECKING:  # the configuration costs pydantic, which no other command should pay for
    from supervisor.cli.configure.changing import Changed
    from supervisor.config.inventory import Entry

Function = TypeVar("Function", bound=Callable[..., object])

_RELOAD: Final = "the daemon runs with what it has read before; `mcpctl reload` takes this over"


def take_own_json(function: Function) -> Function:
    """Add `--json` for a document that is not the daemon's."""
    text = "Print one JSON document."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


def warn(sentence: str) -> None:
    """Say something beside the answer."""
    click.echo(f"mcpctl: warning: {plain(sentence)}", err=True)


@click.command(
    "list",
    short_help="The configured servers, and where each stands.",
    help="""List the servers of the configuration and its drop-ins; secrets are hidden.

    No daemon is needed; `mcpctl status` shows what runs. Exit code 100 if the daemon would refuse
    a file or a server.
    """,
    epilog=examples("mcpctl list", "mcpctl list --json"),
)
@take_own_json
@take_places(hidden=True)
@click.pass_obj
def list_servers(given: Given, *, as_json: bool) -> int:
    """Print a table, and what is wrong."""
    from supervisor.cli.configure import listing  # noqa: PLC0415 - pydantic
    from supervisor.cli.configure.changing import inventory_of  # noqa: PLC0415 - likewise

    given.as_json = as_json
    places = given.places()
    entries = inventory_of(places)
    if as_json:
        click.echo(listing.dump(listing.list_document(places.config_file, entries)))
    elif entries:
        click.echo("\n".join(listing.list_lines(entries)))
    else:
        click.echo(f"no servers are configured in {places.config_file}; `mcpctl add` adds one")
    return _judge(given, entries)


@click.command(
    short_help="The record of one server or of all.",
    help="""Show records as they stand in the files.

    References stay references. Secrets are hidden unless --reveal is given.
    """,
    epilog=examples("mcpctl show git", "mcpctl show --json", "mcpctl show git --reveal"),
)
@click.argument("name", required=False)
@click.option("--reveal", is_flag=True, help="Show secrets, and keys that nothing here reads.")
@take_own_json
@take_places(hidden=True)
@click.pass_obj
def show(given: Given, name: str | None, *, reveal: bool, as_json: bool) -> int:
    """Print records."""
    from supervisor.cli.configure import listing  # noqa: PLC0415 - pydantic
    from supervisor.cli.configure.changing import inventory_of  # noqa: PLC0415 - likewise

    given.as_json = as_json
    entries = inventory_of(given.places())
    chosen = [entry for entry in entries if name in (None, entry.name)]
    if name is not None and not chosen:
        raise UnknownServerError(name, tuple(entry.name for entry in entries))
    if as_json:
        shown = [listing.show_document(entry, reveal=reveal) for entry in chosen]
        one = name is not None and len(shown) == 1
        click.echo(listing.dump(shown[0] if one else {"servers": [*shown]}))
        return exits.DONE
    texts = ["\n".join(listing.show_lines(entry, reveal=reveal)) for entry in chosen]
    click.echo("\n\n".join(texts) or "no servers are configured")
    for entry in chosen:
        for problem in (*entry.lasting, *entry.passing):
            warn(problem)
    return exits.DONE


@click.command(
    short_help="Add a server.",
    help="""Add server NAME to the configuration; one that is there already is refused.

    What stands behind `--` is its command with its arguments. Write secrets as references to the
    daemon's environment, in single quotes: --env 'TOKEN=${GITHUB_TOKEN}'.
    """,
    epilog=examples(
        "mcpctl add files -- npx -y @modelcontextprotocol/server-filesystem ~/src",
        "mcpctl add git --command uvx --arg mcp-server-git --env 'TOKEN=${GIT_TOKEN}'",
        "mcpctl add docs --url https://mcp.example.com/mcp --header 'X-Team=eu'",
    ),
)
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[-- COMMAND ARG…]")
@click.option("--command", metavar="PROGRAM", help="The program.")
@click.option("--arg", "arguments", multiple=True, metavar="TEXT", help="An argument; repeatable.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable; repeatable.")
@click.option("--cwd", metavar="DIR", help="Its working directory.")
@click.option("--url", metavar="URL", help="The address of a remote server.")
@click.option(
    "--transport",
    type=click.Choice(["stdio", "streamable-http", "http", "sse"]),
    help="How to speak to a remote server; else it is tried out.",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--include", multiple=True, metavar="TOOL", help="Offer these tools only; `*` fits.")
@click.option("--exclude", multiple=True, metavar="TOOL", help="Do not offer these tools.")
@click.option("--timeout-ms", type=float, metavar="MS", help="For each call.")
@click.option("--connect-timeout-ms", type=float, metavar="MS", help="For start and handshake.")
@click.option("--disabled", is_flag=True, help="Add it switched off.")
@click.option("--scope", type=click.Choice(["session", "shared"]), help="Who shares an instance.")
@take_own_json
@take_places(hidden=True)
@click.pass_obj
def add(given: Given, /, name: str, *, as_json: bool, **options: object) -> int:
    """Make a record of the options, and write it."""
    from supervisor.cli.configure.changing import change  # noqa: PLC0415 - pydantic
    from supervisor.cli.configure.given_record import Options, record_of  # noqa: PLC0415 - likewise

    given.as_json = as_json
    cwd = options["cwd"]
    if isinstance(cwd, str) and not cwd.startswith(("~", "$")):
        options["cwd"] = os.path.abspath(cwd)  # noqa: PTH100 - links stay as they were typed
    record = record_of(Options(**options))  # type: ignore[arg-type] # click made them by these names
    name = _checked(name)
    changed = change(given.places(), name, lambda editing: editing.add(name, record))
    return _answer(given, name, "added to", changed)


@click.command(
    "set",
    short_help="Replace a server's record, or add it.",
    help="""Write JSON, an object, as the record of server NAME in place of the one that is there.

    With `-` the object is read from standard input, which keeps it out of the shell's history.
    Spellings of other programs are put right: `type` becomes `transport`, `workingDirectory`
    becomes `cwd`, snake_case becomes camelCase.
    """,
    epilog=examples(
        'mcpctl set git \'{"command": "uvx", "args": ["mcp-server-git"]}\'',
        "mcpctl set git - < git.json",
    ),
)
@click.argument("name")
@click.argument("record", metavar="JSON")
@take_own_json
@take_places(hidden=True)
@click.pass_obj
def set_server(given: Given, name: str, record: str, *, as_json: bool) -> int:
    """Write a whole record."""
    from supervisor.cli.configure.changing import change  # noqa: PLC0415 - pydantic
    from supervisor.config.canonical import canonical  # noqa: PLC0415 - likewise
    from supervisor.config.document import parse  # noqa: PLC0415 - likewise

    given.as_json = as_json
    text = sys.stdin.read() if record == "-" else record
    if not text.strip():
        message = "The given JSON is empty; `mcpctl unset` takes a server out."
        raise RequestError(message)
    try:
        document = parse(text, "the given JSON")
    except ConfigError as error:
        raise RequestError(str(error)) from None
    if document.problems:
        raise RequestError("\n".join(problem.sentence for problem in document.problems))
    if not isinstance(document.value, dict):
        message = 'The given JSON is no object; write one, such as \'{"command": "uvx"}\'.'
        raise RequestError(message)
    value, name = canonical(document.value), _checked(name)
    changed = change(given.places(), name, lambda editing: editing.set(name, value))
    return _answer(given, name, "set in", changed)


@click.command(
    short_help="Take a server out of the configuration.",
    help="Take server NAME out of the file in which it stands. What runs goes on until a reload.",
    epilog=examples("mcpctl unset git"),
)
@click.argument("name")
@take_own_json
@take_places(hidden=True)
@click.pass_obj
def unset(given: Given, name: str, *, as_json: bool) -> int:
    """Remove a record."""
    from supervisor.cli.configure.changing import change  # noqa: PLC0415 - pydantic

    given.as_json = as_json
    changed = change(given.places(), name, lambda editing: editing.unset(name))
    return _answer(given, name, "taken out of", changed)


def _checked(name: str) -> str:
    if not name.strip():
        message = "A server needs a name that is not empty."
        raise RequestError(message)
    return name.strip()


def _answer(given: Given, name: str, what: str, changed: "Changed") -> int:
    for warning in changed.warnings:
        warn(warning)
    if given.as_json:
        import json  # noqa: PLC0415 - loaded by now

        document = {
            "name": name,
            "file": changed.file,
            "warnings": changed.warnings,
            "reload_needed": changed.reload,
        }
        click.echo(json.dumps(document))
        return exits.DONE
    click.echo(plain(f"{name}: {what} {changed.file}"))
    if changed.reload:
        click.echo(_RELOAD)
    return exits.DONE


def _judge(given: Given, entries: "tuple[Entry, ...]") -> int:
    """Say what is wrong with the files and their servers, as `check` would."""
    from supervisor.client.where import home  # noqa: PLC0415 - as its callers
    from supervisor.config.load import load_configuration  # noqa: PLC0415 - likewise

    problems = [p for e in entries if e.state == "invalid" for p in e.broken]
    try:
        load_configuration(given.places().config_file, os.environ, home=home())
    except ConfigError as error:
        problems += error.problems
    for problem in dict.fromkeys(problems):
        click.echo(f"mcpctl: {plain(problem)}", err=True)
    return exits.CONFIGURATION if problems else exits.DONE
