"""The commands `import` and `export`: servers from other clients, and entries for them."""

import json
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

import click

from supervisor.cli.configure.commands import take_own_json, warn
from supervisor.cli.ending import plain
from supervisor.cli.options import Given, examples, take_places
from supervisor.core import exits
from supervisor.core.errors import RequestError
from supervisor.core.ids import is_session_key

if TYPE_CHECKING:  # the configuration costs pydantic, which no other command should pay for
    from supervisor.cli.configure.plan import Step

_CLIENTS: Final = (
    "Clients: claude-code, claude-desktop, codex, cursor, gemini, openclaw, vscode. "
    "A file of that name is given as ./NAME."
)


def _take_writing(function: click.decorators.FC) -> click.decorators.FC:
    """Add the options of whatever shows a diff first and then writes."""
    for option, text in (
        ("--replace", "Also write over entries of the same name that say something else."),
        ("--yes", "Do not ask."),
        ("--dry-run", "Show what would be written, and write nothing."),
    ):
        function = click.option(option, is_flag=True, help=text)(function)
    return function


@click.command(
    "import",
    short_help="Take over the servers of another MCP client.",
    help=f"""Take over the servers of a client, or of a client's file, into the configuration.

    First shows what would be added or changed, with secrets hidden, then asks. The client's own
    file is only read; `mcpctl export` then makes the client use the daemon. Entries that run
    mcpctl already are skipped. Exit code 1 if an entry is refused.

    {_CLIENTS}
    """,
    epilog=examples(
        "mcpctl import claude-code",
        "mcpctl import .vscode/mcp.json --dry-run",
        "mcpctl import cursor --yes --replace",
    ),
)
@click.argument("source", metavar="FILE|CLIENT")
@_take_writing
@take_own_json
@take_places(hidden=True)
@click.pass_obj
def import_servers(
    given: Given, source: str, *, replace: bool, yes: bool, dry_run: bool, as_json: bool
) -> int:
    """Plan, show, ask, write."""
    from supervisor.cli.configure import importing  # noqa: PLC0415 - pydantic
    from supervisor.cli.configure.changing import Around, warnings_of  # noqa: PLC0415 - likewise
    from supervisor.client.where import home  # noqa: PLC0415 - likewise
    from supervisor.config.editing import Editing  # noqa: PLC0415 - likewise
    from supervisor.config.file_change import locked  # noqa: PLC0415 - likewise

    given.as_json = as_json
    places, own_home = given.places(), os.environ.get("HOME") or home()
    sources = importing.find_sources(source, own_home, os.environ, os.getcwd())  # noqa: PTH109 - a text
    around, editing = Around.of(places), Editing.begin(places.config_file)
    steps = importing.plan_import(
        sources, editing, around.surroundings(), home=own_home, replace=replace
    )
    names = importing.apply_import(editing, steps)
    title = sources[0].client.title
    _show(given, steps, title[0].upper() + title[1:], dry_run=dry_run or not names)
    refused = any(step.fate == "refused" for step in steps)
    if names and not dry_run:
        entries, heard = editing.judge(names, around.environ, home())
        _ask(given, f"Write {_count(names)} to {places.config_file}?", steps, yes=yes)
        with locked(places.config_file):
            editing.write()
        for warning in (*heard, *warnings_of(editing, entries)):
            warn(warning)
        hint = "; `mcpctl reload` takes them over" if around.reads else ""
        _say(given, steps, f"wrote {_count(names)}{hint}", wrote=True)
    return exits.FAILED if refused else exits.DONE


@click.command(
    "export",
    short_help="Entries for an MCP client that go through the daemon.",
    help=f"""Print entries for CLIENT that run `mcpctl connect NAME`, one for each server.

    With --session they share that session's instances; with --serve there is one entry, for all
    servers of the session at once. With --write they are merged into the client's file, after a
    diff and a question; all else in it stays.

    {_CLIENTS.partition(". ")[0]}.
    """,
    epilog=examples(
        "mcpctl export cursor",
        "mcpctl export codex --write ~/.codex/config.toml",
        "mcpctl export claude-code --serve --session work --write .mcp.json --yes",
    ),
)
@click.argument("client", metavar="CLIENT")
@click.option("--session", metavar="KEY", help="Use the instances of this session.")
@click.option("--serve", is_flag=True, help="One entry for all servers of the session.")
@click.option("--write", "file", metavar="FILE", help="Merge into this file instead of printing.")
@_take_writing
@take_own_json
@take_places(hidden=True)
@click.pass_obj
def export_servers(  # noqa: PLR0913 - one for each option
    given: Given,
    client: str,
    session: str | None,
    file: str | None,
    *,
    serve: bool,
    replace: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Print the entries, or merge them into a file."""
    from supervisor.cli.configure import exporting  # noqa: PLC0415 - pydantic
    from supervisor.cli.configure.changing import inventory_of  # noqa: PLC0415 - likewise
    from supervisor.cli.configure.clients import CLIENTS  # noqa: PLC0415 - likewise
    from supervisor.config.file_change import look  # noqa: PLC0415 - likewise

    given.as_json = as_json
    known = CLIENTS.get(client)
    if known is None:
        message = f"No client is called {client!r}; known are {', '.join(CLIENTS)}."
        raise RequestError(message)
    if session is not None and not is_session_key(session):
        message = f"{session!r} is no session key: 1 to 128 of the characters A-Z a-z 0-9 . _ : @ -"
        raise RequestError(message)
    places = given.places()
    options = exporting.our_words(places)
    export = (
        exporting.entry_to_serve(known, session, options)
        if serve
        else exporting.entries_to_connect(known, inventory_of(places), session, options)
    )
    for note in export.notes:
        warn(note)
    if not export.entries:
        click.echo("mcpctl: there is no server to export; `mcpctl list` shows why", err=True)
        return exits.FAILED
    if file is None and as_json:
        click.echo(json.dumps({"entries": export.entries, "notes": export.notes}))
        return exits.DONE
    if file is None:
        click.echo(exporting.text_of(known, export), nl=False)
        return exits.DONE
    seen = look(file)
    steps = exporting.plan_export(known, export, seen, file, over=replace)
    names = [step.name for step in steps if step.fate in ("added", "changed")]
    _show(given, steps, known.title, dry_run=dry_run or not names)
    if names and not dry_run:
        _ask(given, f"Write {_count(names, 'entry', 'entries')} to {file}?", steps, yes=yes)
        exporting.write_export(known, steps, seen, file)
        what = _count(names, "entry", "entries")
        _say(given, steps, f"wrote {what}; restart {known.title} to use it", wrote=True)
    return exits.DONE


def _show(given: Given, steps: "list[Step]", title: str, *, dry_run: bool) -> None:
    """The diff; with `--json` only where nothing follows that would say it again."""
    from supervisor.cli.configure.plan import lines_of  # noqa: PLC0415 - as its callers

    if given.as_json:
        if dry_run:
            _say(given, steps, "", wrote=False)
        return
    click.echo("\n".join(lines_of(steps, title)))
    if dry_run:
        counts = Counter(step.fate for step in steps if step.fate in ("added", "changed"))
        would = ", ".join(f"{count} {fate}" for fate, count in sorted(counts.items()))
        click.echo(f"nothing was written{f' (would be: {would})' if would else ''}")


def _say(given: Given, steps: "list[Step]", sentence: str, *, wrote: bool) -> None:
    if given.as_json:
        click.echo(json.dumps({"written": wrote, "servers": [step.as_json() for step in steps]}))
    else:
        click.echo(sentence)


def _ask(given: Given, question: str, steps: "list[Step]", *, yes: bool) -> None:
    """Raises: RequestError where nobody can be asked; click.Abort where the answer is no."""
    if yes:
        return
    if given.as_json or not sys.stdin.isatty():
        message = "Nothing was written, since nobody can be asked here; say --yes or --dry-run."
        raise RequestError(message)
    if not click.confirm(plain(question), err=True):
        click.echo("nothing was written")
        raise click.exceptions.Exit(exits.FAILED)


def _count(names: list[str], one: str = "server", many: str = "servers") -> str:
    return f"{len(names)} {one if len(names) == 1 else many}"
