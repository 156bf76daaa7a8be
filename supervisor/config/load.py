"""Reads a configuration: all of it is right, or every problem of every file is told at once."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from supervisor.config.accounts import SystemAccounts, account_of
from supervisor.config.check import validate
from supervisor.config.document import Document, KeyPath, Problem, parse
from supervisor.config.files import read_texts
from supervisor.config.models import Configuration, Server, Settings
from supervisor.config.records import ServerRecord
from supervisor.config.sections import misplaced, said_twice, server_values, unknown
from supervisor.config.servers import Surroundings, make_server
from supervisor.config.settings import check_settings, make_settings
from supervisor.core.errors import ConfigError
from supervisor.core.ids import ServerName


def load_configuration(
    file: str, environ: Mapping[str, str], *, home: str, required: bool = False
) -> Configuration:
    """Read `file` and the drop-ins in `config.d` beside it.

    Where there are none of them, the answer is an empty configuration with a warning.

    Args:
        file: path of a JSON file in UTF-8, at most `files.MAX_FILE_BYTES`, as each drop-in.
        environ: the daemon's environment; references are resolved from it.
        home: the daemon's home directory from its passwd entry, for `~`.
        required: whether a missing `file` is an error, also beside drop-ins.

    Raises:
        ConfigError: a file cannot be read, is no JSON, or is wrong somewhere.
    """
    documents, problems = _parse_all(file, required=required)
    if not documents and not problems:
        sentence = _missing(file)
        return Configuration(file=None, servers={}, settings=Settings(), warnings=(sentence,))
    return _combine(documents, our_surroundings(environ, home), main=file, problems=problems)


def judge_documents(
    documents: Iterable[Document], main: str, around: Surroundings
) -> Configuration:
    """What a daemon would make of documents, whether or not they have been written.

    Raises:
        ConfigError: it would refuse them, with the same sentences.
    """
    return _combine(documents, around, main=main, problems=[])


def our_surroundings(environ: Mapping[str, str], home: str) -> Surroundings:
    """What a daemon of our own user would give its servers.

    Args:
        environ: its environment.
        home: its home directory from its passwd entry.
    """
    accounts = SystemAccounts()
    daemon = replace(account_of(accounts, os.geteuid()), gid=os.getegid(), home=home)
    return Surroundings(environ=environ, daemon=daemon, accounts=accounts)


def read_configuration(text: str, file: str, around: Surroundings) -> Configuration:
    """Read the text of a single configuration file; the caller says what the daemon is.

    Raises:
        ConfigError: the text is no JSON or is wrong somewhere.
    """
    return _combine([parse(text, file)], around, main=file, problems=[])


def read_documents(file: str) -> tuple[Document, ...]:
    """The main file, where there is one, and its drop-ins as they are written, for advice.

    Raises:
        ConfigError: one of them cannot be read or is no JSON.
    """
    documents, problems = _parse_all(file, required=False)
    if problems:
        raise ConfigError(*problems)
    return tuple(documents)


def _parse_all(file: str, *, required: bool) -> tuple[list[Document], list[str]]:
    """What is JSON, and a sentence for each file that is not."""
    texts = read_texts(file)
    documents, problems = list[Document](), list(texts.problems)
    if required and texts.missing:
        problems.insert(0, _missing(file))
    for path, text in texts.of.items():
        try:
            documents.append(parse(text, path))
        except ConfigError as error:
            problems += error.problems
    return documents, problems


def _missing(file: str) -> str:
    return f"{file} does not exist, so no servers are configured; create it to add some."


@dataclass(slots=True)
class _Source:
    """One file on its way into a configuration."""

    document: Document
    records: dict[KeyPath, ServerRecord] = field(default_factory=dict)
    settings: dict[str, JsonValue] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def _combine(
    documents: Iterable[Document], around: Surroundings, *, main: str, problems: list[str]
) -> Configuration:
    sources = [_check(document, around) for document in documents]
    clashes = list(said_twice(source.document for source in sources))
    values = dict[str, JsonValue]()
    for source in sources:
        own = [problem for document, problem in clashes if document is source.document]
        problems += _sentences([*source.problems, *own])
        values |= source.settings
    if problems:
        raise ConfigError(*problems)
    settings = make_settings(values)
    around = replace(around, path=settings.path, max_line_bytes=settings.max_line_bytes)
    servers, warnings = dict[ServerName, Server](), list[str]()
    for source in sources:
        made, notable = _make_servers(source, around)
        servers |= made
        warnings += [*_sentences(notable), *_root_warning(source.document.file, made, around)]
    files = tuple(source.document.file for source in sources)
    return Configuration(
        file=main if main in files else None,
        files=files,
        servers=dict(sorted(servers.items())),
        settings=settings,
        warnings=tuple(warnings),
    )


def _check(document: Document, around: Surroundings) -> _Source:
    source = _Source(document, problems=[*document.problems, *misplaced(document)])
    for path, value in server_values(document):
        record, wrong = validate(document, path, value, ServerRecord)
        source.problems += wrong
        if record is not None:
            source.records[path] = record
    source.settings, wrong = check_settings(document, around)
    source.problems += wrong
    return source


def _make_servers(
    source: _Source, around: Surroundings
) -> tuple[dict[ServerName, Server], list[Problem]]:
    servers, warnings = dict[ServerName, Server](), list(unknown(source.document))
    for path, record in source.records.items():
        server, more = make_server(source.document, path, record, around)
        servers[server.name] = server
        warnings += more
    return dict(sorted(servers.items())), warnings


def _sentences(problems: list[Problem]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(problem.sentence for problem in sorted(problems)))


def _root_warning(
    file: str, servers: Mapping[ServerName, Server], around: Surroundings
) -> Iterator[str]:
    as_root = [
        repr(server.name)
        for server in servers.values()
        if server.enabled and server.launch is not None and server.launch.uid is None
    ]
    if around.daemon.uid == 0 and as_root:
        yield (
            f"{file}: the daemon runs as root, and so would {', '.join(as_root)}; write a uid "
            "into each record."
        )
