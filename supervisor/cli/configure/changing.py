"""Carries out one change of the configuration, and says what a person should know afterwards."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from supervisor.cli.doctor.daemon import ask_daemon, environment_of
from supervisor.client.where import home
from supervisor.config.advice import literal_secrets
from supervisor.config.editing import Editing
from supervisor.config.file_change import locked
from supervisor.config.inventory import Entry, take_inventory
from supervisor.config.load import our_surroundings, read_documents
from supervisor.config.servers import Surroundings
from supervisor.core.places import Places


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The daemon that would use the configuration, or one that would start here.

    Attributes:
        environ: its environment, which decides about references.
        reads: whether it runs, with this configuration.
    """

    environ: Mapping[str, str]
    reads: bool

    @classmethod
    def of(cls, places: Places) -> "Around":
        """Ask; a daemon that does not answer is none."""
        status, _ = ask_daemon(places)
        file = None if status is None else status["daemon"]["config_file"]
        other = file is not None and not _same(file, places.config_file)
        return cls(environ=environment_of(status), reads=status is not None and not other)

    def surroundings(self) -> Surroundings:
        """What it would give its servers."""
        return our_surroundings(self.environ, home())


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a change has done: the file, and sentences that warn."""

    file: str
    warnings: tuple[str, ...]
    reload: bool


def change(
    places: Places, name: str, act: Callable[[Editing], str], around: Around | None = None
) -> Changed:
    """Change one server.

    Args:
        places: whose configuration.
        name: the server.
        act: makes the change in memory and answers the file.
        around: the daemon, if it has been asked already.

    Raises:
        ConfigError: the configuration cannot be read, or would be refused.
        EditRefusedError: the change cannot be made.
        KernelError: the operating system refused.
    """
    around = Around.of(places) if around is None else around
    with locked(places.config_file):
        editing = Editing.begin(places.config_file)
        file = act(editing)
        entries, heard = editing.judge([name], around.environ, home())
        warnings = (*heard, *warnings_of(editing, entries))
        editing.write()
    return Changed(file=file, warnings=warnings, reload=around.reads)


def warnings_of(editing: Editing, entries: tuple[Entry, ...]) -> Iterator[str]:
    """What is no reason to refuse servers, and should be known all the same."""
    names = {entry.name for entry in entries}
    for entry in entries:
        if entry.state == "enabled":
            yield from (*entry.lasting, *entry.passing)
    for document in editing.documents():
        for server, field in literal_secrets(document):
            if server in names:
                yield (
                    f"{document.file}: server {server!r}, field {field}: this looks like a secret; "
                    "a reference such as ${NAME} to the daemon's environment keeps it out of the "
                    "file."
                )


def _same(first: str, second: str) -> bool:
    return Path(first).resolve() == Path(second).resolve()


def inventory_of(places: Places) -> tuple[Entry, ...]:
    """Every server that stands in the files.

    Raises:
        ConfigError: a file cannot be read or is no JSON.
    """
    documents = read_documents(places.config_file)
    return take_inventory(documents, Around.of(places).surroundings())
