"""A configuration on its way to a new content: read, changed in memory, judged, then written.

A server is changed where it stands, in the main file or in a drop-in; a new one goes into the
main file. Nothing is written that a daemon would refuse, and nothing over an edit that was not
read. Hold `file_change.locked` around `write`, or around all of it where no person is waited for.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from supervisor.config.document import Document, KeyPath, parse
from supervisor.config.file_change import EditRefusedError, Seen, changed_meanwhile, look, replace
from supervisor.config.inventory import Entry, speaks_of, take_inventory
from supervisor.config.json_text import put, take_out
from supervisor.config.load import judge_documents, our_surroundings, read_documents
from supervisor.config.sections import server_values
from supervisor.core.errors import ConfigError, UnknownServerError

_EMPTY = "{}\n"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server stands."""

    file: str
    path: KeyPath
    line: int

    @property
    def text(self) -> str:
        """For a sentence."""
        return f"{self.file}, line {self.line}"


@dataclass(slots=True)
class Editing:
    """The files of a configuration as they were read, and as they are to become.

    Attributes:
        main: path of the main file, which need not exist.
        seen: each file as it was read.
        texts: each file as it is to become; those that change only.
    """

    main: str
    seen: Mapping[str, Seen]
    texts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, main: str) -> "Editing":
        """Read the main file and its drop-ins.

        Raises:
            ConfigError: one of them cannot be read, or is no JSON and so cannot be changed.
        """
        files = [document.file for document in read_documents(main)]
        return cls(main, {file: look(file) for file in dict.fromkeys((main, *files))})

    def documents(self) -> list[Document]:
        """The files as they are to become."""
        texts = {file: self._text(file) for file in self.seen}
        return [parse(text, file) for file, text in texts.items() if text is not None]

    def records(self) -> dict[str, JsonValue]:
        """Each server's record as it is to become, by name."""
        return {
            str(path[-1]): value
            for document in self.documents()
            for path, value in server_values(document)
        }

    def place(self, name: str) -> Place | None:
        """Where the server stands, or None.

        Raises:
            EditRefusedError: in more than one place, so that nobody knows which one is meant.
        """
        places = [
            Place(document.file, path, document.lines.get(path, 1))
            for document in self.documents()
            for path, _ in server_values(document)
            if path[-1] == name
        ]
        if len(places) > 1:
            message = (
                f"Server {name!r} stands in {places[0].text} and in {places[1].text}; take one of "
                "the two out by hand first."
            )
            raise EditRefusedError(message)
        return places[0] if places else None

    def add(self, name: str, record: JsonValue) -> str:
        """Add a server that is not there yet; answer the file that it goes into.

        Raises:
            EditRefusedError: it is there.
        """
        place = self.place(name)
        if place is not None:
            message = (
                f"Server {name!r} is there already, in {place.text}. `mcpctl set {name} JSON` "
                f"replaces it, `mcpctl unset {name}` takes it out."
            )
            raise EditRefusedError(message)
        return self.set(name, record)

    def set(self, name: str, record: JsonValue) -> str:
        """Replace a server's record where it stands, or add it; answer the file."""
        place = self.place(name)
        file = self.main if place is None else place.file
        path = (*self._section(), name) if place is None else tuple(map(str, place.path))
        text = self._text(file)
        self.texts[file] = put(_EMPTY if text is None else text, path, record)
        return file

    def unset(self, name: str) -> str:
        """Take a server out; answer the file in which it stood.

        Raises:
            UnknownServerError: it is not there.
        """
        place = self.place(name)
        if place is None:
            raise UnknownServerError(name, tuple(sorted(self.records())))
        text = self._text(place.file)
        self.texts[place.file] = take_out(text or _EMPTY, tuple(map(str, place.path)))
        return place.file

    def judge(
        self, names: Iterable[str], environ: Mapping[str, str], home: str
    ) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """See what a daemon would make of the result.

        Args:
            names: the servers that were changed; only these may be refused for themselves.
            environ: the daemon's environment.
            home: its home directory.

        Returns:
            Their entries, and the daemon's warnings about them.

        Raises:
            ConfigError: it would refuse the files, or could never start one of the servers.
        """
        around, documents = our_surroundings(environ, home), self.documents()
        changed = frozenset(names)
        try:
            configuration = judge_documents(documents, self.main, around)
        except ConfigError as error:
            problems = [self._without_new_line(problem) for problem in error.problems]
            raise ConfigError(*problems, "Nothing was written.") from None
        entries = tuple(e for e in take_inventory(documents, around) if e.name in changed)
        broken = [p for e in entries if e.state != "disabled" for p in e.broken]
        if broken:
            problems = [self._without_new_line(problem) for problem in broken]
            raise ConfigError(*problems, "Nothing was written.")
        warnings = (w for w in configuration.warnings if any(speaks_of(n, w) for n in changed))
        return entries, tuple(warnings)

    def write(self) -> None:
        """Write what has changed; the lock is the caller's.

        Raises:
            EditRefusedError: a file is not as it was read.
            KernelError: the operating system refused.
        """
        for file in self.texts:
            if look(file).digest != self.seen[file].digest:
                raise changed_meanwhile(file)
        for file, text in self.texts.items():
            replace(self.seen[file], text)

    def _text(self, file: str) -> str | None:
        return self.texts.get(file, self.seen[file].text)

    def _section(self) -> tuple[str, ...]:
        """Where the main file keeps its servers: OpenClaw's place if it has that one only."""
        text = self._text(self.main)
        if text is None:
            return ("mcpServers",)
        document = parse(text, self.main)
        theirs = document.at(("mcp", "servers"))
        ours = document.at(("mcpServers",))
        return ("mcp", "servers") if isinstance(theirs, dict) and ours is None else ("mcpServers",)

    def _without_new_line(self, problem: str) -> str:
        """A problem without the line that it would have had in a file that is not written."""
        for file in self.texts:
            problem = re.sub(rf"^{re.escape(file)}, line [0-9]+: ", lambda _: f"{file}: ", problem)  # noqa: B023 - called at once
        return problem
