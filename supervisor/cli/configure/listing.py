"""What `list` and `show` print, of all that stands in the files; nothing secret unless asked."""

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from supervisor.cli.ending import plain
from supervisor.cli.tables import table
from supervisor.config.inventory import Entry
from supervisor.config.json_text import pretty
from supervisor.config.records import SERVER_KEYS
from supervisor.config.shown import shown_record

_INVALID_TRANSPORT = "unknown"


def list_lines(entries: tuple[Entry, ...]) -> list[str]:
    """A table, one server a line."""
    rows = [
        (e.name, e.state, _transport(e), _command(e) or None, f"{e.file}:{e.line}") for e in entries
    ]
    return table(("SERVER", "STATE", "TRANSPORT", "COMMAND OR URL", "FILE"), rows)


def list_document(main: str, entries: tuple[Entry, ...]) -> dict[str, JsonValue]:
    """The same for `--json`."""
    return {
        "file": main,
        "servers": [
            {
                "name": e.name,
                "state": e.state,
                "transport": _transport(e),
                "command": _command(e),
                "file": e.file,
                "line": e.line,
                "problems": [*e.lasting, *e.passing],
            }
            for e in entries
        ],
    }


def show_lines(entry: Entry, *, reveal: bool) -> Iterator[str]:
    """A server's head line, its record as JSON, and what is wrong with it."""
    where = f"{entry.file}, line {entry.line}"
    yield plain(f"{entry.name}: {entry.state}, {_transport(entry)}, in {where}")
    yield from map(plain, pretty(_record(entry, reveal=reveal)).split("\n"))
    hidden = _hidden(entry)
    if hidden and not reveal:
        yield plain(f"not shown, since nothing here reads them: {', '.join(hidden)} (--reveal)")


def show_document(entry: Entry, *, reveal: bool) -> dict[str, JsonValue]:
    """The same for `--json`."""
    return {
        "name": entry.name,
        "state": entry.state,
        "file": entry.file,
        "line": entry.line,
        "record": _record(entry, reveal=reveal),
        "problems": [*entry.lasting, *entry.passing],
    }


def dump(document: Mapping[str, JsonValue]) -> str:
    """One JSON document on one line, safe on a terminal."""
    return json.dumps(document)


def _record(entry: Entry, *, reveal: bool) -> JsonValue:
    if reveal:
        return entry.record
    return dict(shown_record(entry.record)) if isinstance(entry.record, dict) else None


def _hidden(entry: Entry) -> list[str]:
    record = entry.record
    return [k for k in record if k not in SERVER_KEYS] if isinstance(record, dict) else []


def _transport(entry: Entry) -> str:
    return _INVALID_TRANSPORT if entry.server is None else entry.server.transport


def _command(entry: Entry) -> str:
    return "" if entry.server is None else entry.server.command
