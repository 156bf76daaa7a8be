"""Plans an import: finds the entries of clients, says them in our words, compares, and writes."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from supervisor.cli.configure.clients import CLIENTS, Client, client_of, places, project_of
from supervisor.cli.configure.plan import WRITTEN, Step
from supervisor.cli.configure.reading import ForeignEntry, entries_of, parse_foreign
from supervisor.cli.configure.translating import (
    RefusedEntry,
    goes_through_us,
    translate,
    without_empty,
)
from supervisor.config.canonical import canonical
from supervisor.config.document import parse
from supervisor.config.editing import Editing
from supervisor.config.file_change import EditRefusedError, look
from supervisor.config.inventory import take_inventory
from supervisor.config.load import judge_documents
from supervisor.config.servers import Surroundings
from supervisor.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A client's file that exists."""

    client: Client
    file: str
    toml: bool


def find_sources(wanted: str, home: str, environ: Mapping[str, str], cwd: str) -> list[Found]:
    """The files that `wanted` means.

    Args:
        wanted: the name of a client, else the path of a file.
        home: the user's home directory.
        environ: the environment, where clients have variables for their places.
        cwd: the working directory, which may be a project.

    Raises:
        EditRefusedError: there is none; the sentence names the places.
    """
    client = CLIENTS.get(wanted)
    if client is not None:
        where = list(dict.fromkeys(places(client, home, environ, cwd)))
        found = [_found(client, file) for file in where if os.path.lexists(file)]
        if not found:
            message = (
                f"{client.title} has no file here; looked for {', '.join(where)}. Name the file "
                "itself: `mcpctl import FILE`."
            )
            raise EditRefusedError(message)
        return found
    file = str(os.path.abspath(wanted))  # noqa: PTH100 - links stay: the name says whose file it is
    if not os.path.lexists(file):
        known = ", ".join(CLIENTS)
        message = f"{wanted!r} is no file, and no client; clients are {known}."
        raise EditRefusedError(message)
    return [_found(client_of(file), file)]


def plan_import(
    sources: list[Found], editing: Editing, around: Surroundings, *, home: str, replace: bool
) -> list[Step]:
    """Decide about each entry; nothing is changed.

    Args:
        sources: the files.
        editing: our configuration.
        around: what a daemon would give its servers.
        home: the user's home directory.
        replace: whether an entry takes the place of one of ours with its name.

    Raises:
        ConfigError: a file cannot be read.
    """
    ours = editing.records()
    taken = dict[str, Step]()
    steps = list[Step]()
    for source in sources:
        entries = list(_entries(source, home))
        for entry in entries:
            step = _decide(entry, source, ours, _Judge(editing.main, around, home), replace=replace)
            step = _unless_taken(step, taken)
            if step.fate not in ("refused", "skipped"):
                taken.setdefault(step.name, step)
            steps.append(step)
        if not entries:
            reason = "no servers in it"
            steps.append(Step(name="-", fate="skipped", source=source.file, reasons=(reason,)))
    return steps


def apply_import(editing: Editing, steps: list[Step]) -> list[str]:
    """Change the configuration in memory; answer the names of what changed."""
    names = [step.name for step in steps if step.fate in WRITTEN]
    for step in steps:
        if step.fate in WRITTEN:
            editing.set(step.name, dict(step.record))
    return names


def _found(client: Client, file: str) -> Found:
    return Found(client=client, file=file, toml=client.name == "codex" or file.endswith(".toml"))


def _entries(source: Found, home: str) -> Iterator[ForeignEntry]:
    value = parse_foreign(look(source.file), source.file, toml=source.toml)
    yield from entries_of(value, source.client, source.file, project_of(source.file, home))


@dataclass(frozen=True, slots=True)
class _Judge:
    """Sees a single record with a daemon's eyes."""

    main: str
    around: Surroundings
    home: str

    def problems(self, name: str, record: dict[str, JsonValue]) -> tuple[list[str], str]:
        """What a daemon would refuse the record for, and its command for people."""
        text = json.dumps({"mcpServers": {name: record}})
        try:
            document = parse(text, self.main)  # relative paths mean what they will mean there
            judge_documents([document], self.main, self.around)
        except ConfigError as error:
            return [self._end(problem, name) for problem in error.problems], ""
        (entry,) = take_inventory([document], self.around)
        command = "" if entry.server is None else entry.server.command
        broken = () if entry.state == "disabled" else entry.broken
        return [self._end(problem, name) for problem in broken], command

    def _end(self, problem: str, name: str) -> str:
        """The sentence without file, line and server, which are said already."""
        head = rf"^{re.escape(self.main)}, line [0-9]+: (?:server {re.escape(repr(name))}[,:] )?"
        return re.sub(head, "", problem)


def _decide(
    entry: ForeignEntry,
    source: Found,
    ours: Mapping[str, JsonValue],
    judge: _Judge,
    *,
    replace: bool,
) -> Step:
    name, file = entry.name, source.file
    if goes_through_us(entry.record):
        reason = "it runs mcpctl already"
        return Step(name=name, fate="skipped", source=file, reasons=(reason,))
    try:
        translated = translate(entry, source.client, judge.home)
    except RefusedEntry as refused:
        return Step(name=name, fate="refused", source=file, reasons=(f"{refused}",))
    record, notes = translated.record, tuple(translated.notes)
    problems, summary = judge.problems(name, record)
    if problems:
        return Step(name=name, fate="refused", source=file, reasons=(*problems, *notes))
    old = ours.get(name)
    same = isinstance(old, dict) and _comparable(old) == _comparable(record)
    kept = name in ours and not replace
    reason = "another server has this name here; --replace takes the client's"
    return Step(
        name=name,
        fate="same" if same else "kept" if kept else "changed" if name in ours else "added",
        source=file,
        record=record,
        old=old,
        summary=summary,
        reasons=() if same else (reason, *notes) if kept else notes,
    )


def _unless_taken(step: Step, taken: Mapping[str, Step]) -> Step:
    """Of two entries with one name, the first counts; the other is named."""
    first = taken.get(step.name)
    if first is None or step.fate not in ("added", "changed", "kept"):
        return step
    if _comparable(dict(first.record)) == _comparable(dict(step.record)):
        reason = f"the same entry stands in {first.source}"
        return Step(name=step.name, fate="same", source=step.source, reasons=(reason,))
    reason = f"another entry of this name comes first, from {first.source}; rename one of them"
    return Step(name=step.name, fate="refused", source=step.source, reasons=(reason,))


def _comparable(record: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What it says, whatever its spelling: null, `enabled: true` and empty lists say nothing."""
    said: dict[str, JsonValue] = {
        key: value for key, value in canonical(record).items() if value is not None
    }
    if said.get("enabled") is True:
        del said["enabled"]
    return without_empty(said)
