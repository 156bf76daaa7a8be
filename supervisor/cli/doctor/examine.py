"""All checks in their order: configuration, servers, daemon, folders, machine."""

import os
from collections.abc import Iterable

from supervisor.cli.doctor.advising import check_container, check_secrets
from supervisor.cli.doctor.daemon import ask_daemon, check_folders, check_status, environment_of
from supervisor.cli.doctor.deadline import check_deadline
from supervisor.cli.doctor.finding import Finding
from supervisor.cli.doctor.launch import check_launch
from supervisor.cli.doctor.machine import check_machine
from supervisor.client.where import home
from supervisor.config.document import Document
from supervisor.config.load import load_configuration, read_documents
from supervisor.config.models import Configuration, Server, Settings
from supervisor.core.errors import ConfigError, UnknownServerError
from supervisor.core.ids import ServerName
from supervisor.core.places import Places


def examine(places: Places, name: str | None) -> tuple[list[Finding], bool]:
    """Look at everything, or at one server and what it needs.

    Args:
        places: where the daemon is, or would be.
        name: the one server to look at, or None for all.

    Returns:
        The findings, and whether the configuration could be read.

    Raises:
        UnknownServerError: the configuration has no server of that name.
    """
    status, answered = ask_daemon(places)
    environ = environment_of(status)
    try:
        configuration = load_configuration(places.config_file, environ, home=home())
        documents = read_documents(places.config_file)
    except ConfigError as error:
        readable, settings = False, Settings()
        findings = [
            Finding(level="error", check="configuration", server=None, message=problem)
            for problem in error.problems
        ]
    else:
        readable, settings = True, configuration.settings
        findings = _check_servers(configuration, documents, name)
        if status is not None:
            findings += check_deadline(configuration, status["daemon"]["pid"], environ)
    findings.append(answered)
    if status is not None:
        found = {finding.server for finding in findings if finding.level == "error"}
        findings += check_status(status, places, name, found)
    findings += check_folders(places, settings.socket_group)
    findings += check_machine(settings.max_instances)
    return findings, readable


def _check_servers(
    configuration: Configuration, documents: Iterable[Document], name: str | None
) -> list[Finding]:
    servers = configuration.servers
    if name is not None and name not in servers:
        raise UnknownServerError(name, tuple(servers))
    findings = [
        Finding(level="warning", check="configuration", server=None, message=warning)
        for warning in configuration.warnings
    ]
    if configuration.files and not findings:
        are = "is" if len(configuration.files) == 1 else "are"
        message = f"{', '.join(configuration.files)} {are} right; servers: {len(servers)}"
        findings.append(Finding(level="ok", check="configuration", server=None, message=message))
    chosen = servers.values() if name is None else [servers[ServerName(name)]]
    for server in chosen:
        findings += _check_server(server)
    findings += check_secrets(documents, name)
    return findings


def _check_server(server: Server) -> list[Finding]:
    if not server.enabled:
        message = "is disabled by its record"
        return [Finding(level="ok", check="server", server=server.name, message=message)]
    if server.launch is None:
        return [
            Finding(level="error", check="server", server=server.name, message=problem)
            for problem in server.problems
        ]
    return [
        *check_launch(server.name, server.launch, os.environ.get("PATH", "")),
        *check_container(server.name, server.launch),
    ]
