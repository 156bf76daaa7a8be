"""Plans an export: our servers as a client's entries, compared with the client's own file."""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from supervisor.cli.configure.clients import Client
from supervisor.cli.configure.plan import WRITTEN, Step
from supervisor.cli.configure.projecting import SERVE_NAME, project
from supervisor.cli.configure.reading import entries_of, parse_foreign
from supervisor.cli.configure.toml_text import merge, table
from supervisor.cli.configure.translating import OURSELVES, goes_through_us
from supervisor.client.where import home
from supervisor.config.canonical import canonical
from supervisor.config.file_change import EditRefusedError, Seen, replace
from supervisor.config.inventory import Entry
from supervisor.config.json_text import pretty, put
from supervisor.core.places import Places, find_places
from supervisor.core.tool_names import name_servers
from supervisor.linux.runtime_home import with_runtime_home

_SHARED_FILE_MODE = 0o644
"""Of a client's file that does not exist yet: what is written into it is no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What goes to a client.

    Attributes:
        entries: by the name that the client is to use.
        notes: what was left out or renamed, and why.
    """

    entries: Mapping[str, dict[str, JsonValue]]
    notes: tuple[str, ...]


def our_words(places: Places) -> list[str]:
    """What a client has to run before the command itself, and options for behind it.

    A client may hand on little of its environment: the folder of the sockets is named wherever it
    would not be found without.
    """
    uid = os.geteuid()
    bare = find_places(with_runtime_home({}, uid), uid, "" if uid == 0 else home())
    folder = os.path.abspath(places.runtime_dir)  # noqa: PTH100 - links stay as they were given
    return [] if bare.runtime_dir == folder else ["--runtime-dir", folder]


def our_program() -> str:
    """The full path of `mcpctl`, since a client's PATH may not hold it."""
    beside = Path(sys.executable).with_name(OURSELVES)
    for candidate in (Path(sys.argv[0]), beside):
        if candidate.name == OURSELVES and os.access(candidate, os.X_OK):
            return str(candidate.absolute())
    return shutil.which(OURSELVES) or OURSELVES


def entries_to_connect(
    client: Client, servers: Iterable[Entry], session: str | None, options: list[str]
) -> Export:
    """An entry for each server that can be started.

    Raises:
        ConfigError: a server's filter cannot be said in the client's file.
    """
    entries = dict[str, dict[str, JsonValue]]()
    chosen, notes = _choose(servers)
    # Codex refuses a name with other characters
    names = name_servers(s.name for s in chosen) if client.name == "codex" else {}
    for server in chosen:
        record = canonical(server.record) if isinstance(server.record, dict) else {}
        name = names.get(server.name, server.name)
        if name != server.name:
            notes.append(f"{server.name}: is called {name} there")
        dashes = ["--"] if server.name.startswith("-") else []
        after = [] if session is None else ["--session", session]
        words = [our_program(), "connect", *after, *options, *dashes, server.name]
        if not dashes:
            words = [our_program(), "connect", server.name, *after, *options]
        entries[name] = project(client.name, server.name, record, words)
    return Export(entries=entries, notes=tuple(notes))


def _choose(servers: Iterable[Entry]) -> tuple[list[Entry], list[str]]:
    """The servers that can be started, and why the others are left out."""
    chosen, left_out = list[Entry](), dict[str, list[str]]()
    for server in servers:
        if server.state == "disabled":
            left_out.setdefault("disabled", []).append(server.name)
        elif server.broken:
            left_out.setdefault("broken, see `mcpctl list`", []).append(server.name)
        elif server.lasting:  # all that is left is a kind of server that cannot be started yet
            left_out.setdefault("remote servers come with a later release", []).append(server.name)
        else:
            chosen.append(server)
    return chosen, [f"left out ({why}): {', '.join(names)}" for why, names in left_out.items()]


def entry_to_serve(client: Client, session: str | None, options: list[str]) -> Export:
    """The one entry for all servers of a session."""
    after = [] if session is None else ["--session", session]
    words = [our_program(), "serve", *after, *options]
    return Export(entries={SERVE_NAME: project(client.name, SERVE_NAME, {}, words)}, notes=())


def text_of(client: Client, export: Export) -> str:
    """The entries alone, as the client's file would hold them."""
    if client.name == "codex":
        return "\n".join(table(("mcp_servers", k), v) for k, v in export.entries.items())
    value: JsonValue = dict(export.entries)
    for key in reversed(client.maps[0]):
        value = {key: value}
    return pretty(value) + "\n"


def plan_export(client: Client, export: Export, seen: Seen, file: str, *, over: bool) -> list[Step]:
    """Compare with the client's file.

    Args:
        client: whose file it is.
        export: what is to stand in it.
        seen: the file as it was read.
        file: its path, for messages.
        over: whether an entry that does not run `mcpctl` yet is replaced.

    Raises:
        ConfigError: the file cannot be read.
    """
    there = dict[str, JsonValue]()
    if (seen.text or "").strip():
        value = parse_foreign(seen, file, toml=client.name == "codex")
        there = {e.name: e.record for e in entries_of(value, client, file, "") if e.folder == ""}
    steps = list[Step]()
    for name, record in export.entries.items():
        old = there.get(name)
        free = name not in there or over or goes_through_us(old)
        reason = "its own entry has this name; --replace takes its place"
        steps.append(
            Step(
                name=name,
                fate="same"
                if old == record
                else "kept"
                if not free
                else "changed"
                if name in there
                else "added",
                source=file,
                record=record,
                old=old,
                summary=" ".join(map(str, [record["command"], *_list(record["args"])])),
                reasons=() if free or old == record else (reason,),
            )
        )
    return steps


def write_export(client: Client, steps: list[Step], seen: Seen, file: str) -> None:
    """Merge what is to be written into the client's file, in one step.

    Raises:
        EditRefusedError: it has changed since, or is written in a way that cannot be changed.
        KernelError: the operating system refused.
    """
    entries = {step.name: dict(step.record) for step in steps if step.fate in WRITTEN}
    text = seen.text or ""
    if client.name == "codex":
        merged = merge(text, "mcp_servers", entries)
        if merged is None:
            message = (
                f"{file} holds its servers in a way that is not changed here (inline tables or "
                f"dotted keys); `mcpctl export {client.name}` prints what to put in by hand."
            )
            raise EditRefusedError(message)
        text = merged
    else:
        path = _map_in(client, seen, file)
        text = text if text.strip() else "{}\n"
        for name, entry in entries.items():
            text = put(text, (*path, name), entry)
    replace(seen, text, new_mode=_SHARED_FILE_MODE)


def _map_in(client: Client, seen: Seen, file: str) -> tuple[str, ...]:
    """Where the file keeps its servers; where it keeps none, the client's usual place."""
    if not (seen.text or "").strip():
        return client.maps[0]
    value = parse_foreign(seen, file, toml=False)
    for path in client.maps:
        inner = value
        for key in path:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if inner is not None:
            return path
    return client.maps[0]


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
