"""Every server's record with the place where it stands, also of those that no daemon could use.

Where the daemon refuses a whole file for one wrong record, this says which one it is.

A problem is *lasting* if it is there whatever variables are set. What is wrong only because a
variable is missing may be right in the daemon's environment, and is no reason to refuse a record.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import JsonValue

from supervisor.config.check import validate
from supervisor.config.document import Document, KeyPath
from supervisor.config.models import Server
from supervisor.config.records import ServerRecord
from supervisor.config.references import expand
from supervisor.config.sections import misplaced, server_values
from supervisor.config.servers import STDIO, Surroundings, make_server
from supervisor.core.ids import ServerName

State = Literal["enabled", "disabled", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One server's record.

    Attributes:
        name: the key.
        file: where it stands.
        line: of its key, from 1.
        path: the keys that lead to it.
        record: as written.
        server: what would become of it; None where it is no record at all.
        lasting: sentences: what is wrong with it whatever variables are set.
        passing: sentences: what is wrong with it as variables are now.
    """

    name: ServerName
    file: str
    line: int
    path: KeyPath
    record: JsonValue = field(repr=False)
    server: Server | None
    lasting: tuple[str, ...]
    passing: tuple[str, ...]

    @property
    def state(self) -> State:
        """What an operator would call it."""
        if self.server is not None and not self.server.enabled:
            return "disabled"
        return "invalid" if self.broken else "enabled"

    @property
    def broken(self) -> tuple[str, ...]:
        """What keeps it from starting for good; not that its kind cannot be started yet."""
        known = self.server is None or self.server.transport in (STDIO, "unknown")
        return self.lasting if known else ()


def take_inventory(documents: Iterable[Document], around: Surroundings) -> tuple[Entry, ...]:
    """The servers of all documents, sorted by name; one that stands in two places comes twice."""
    found = [entry for document in documents for entry in _entries(document, around)]
    return tuple(sorted(found, key=lambda entry: entry.name))


def speaks_of(name: str, sentence: str) -> bool:
    """Whether a problem or warning is about the server of that name."""
    return any(f": server {name!r}{mark} " in sentence for mark in ":,")


def _entries(document: Document, around: Surroundings) -> Iterator[Entry]:
    wrong = [*document.problems, *misplaced(document)]
    for path, value in server_values(document):
        name = str(path[-1])
        record, problems = validate(document, path, value, ServerRecord)
        lasting = [p.sentence for p in (*wrong, *problems) if speaks_of(name, p.sentence)]
        server, passing = None, list[str]()
        if record is not None:
            server, _ = make_server(document, path, record, around)
            given = dict(around.environ) | dict.fromkeys(_missing(value, around.environ), "x")
            other, _ = make_server(document, path, record, replace(around, environ=given))
            lasting += [text for text in server.problems if text in other.problems]
            passing = [text for text in server.problems if text not in other.problems]
        yield Entry(
            name=ServerName(name),
            file=document.file,
            line=document.lines.get(path, 1),
            path=path,
            record=value,
            server=server,
            lasting=tuple(dict.fromkeys(lasting)),
            passing=tuple(passing),
        )


def _missing(value: JsonValue, environ: Mapping[str, str]) -> Iterator[str]:
    """The variables that texts of the record name and that are not set."""
    match value:
        case str():
            yield from expand(value, environ).missing
        case list():
            for item in value:
                yield from _missing(item, environ)
        case dict():
            for item in value.values():
                yield from _missing(item, environ)
        case _:
            pass
