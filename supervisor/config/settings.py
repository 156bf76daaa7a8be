"""The `supervisor` block: checked file by file, then made into one value of all of them."""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from pydantic import JsonValue

from supervisor.config.check import validate
from supervisor.config.document import Document, KeyPath, Problem
from supervisor.config.models import Settings, count_processors
from supervisor.config.records import SettingsRecord
from supervisor.config.references import expand
from supervisor.config.servers import Surroundings

BLOCK: Final[KeyPath] = ("supervisor",)

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):([0-9]{1,5})")
_TEXTS: Final[tuple[KeyPath, ...]] = (("path",), ("socketGroup",), ("metrics", "listen"))
"""The settings that may hold references."""

_WRITE: Final = 'write one, such as "127.0.0.1:9464" or "[::1]:9464".'
_LAST_PORT: Final = 65535


def check_settings(
    document: Document, around: Surroundings
) -> tuple[dict[str, JsonValue], list[Problem]]:
    """Check the block of one file.

    Returns:
        What it sets, with its references resolved, and what is wrong with it.
    """
    block = document.at(BLOCK)
    if not isinstance(block, dict):
        return {}, []  # what is no object is told where all objects are checked
    record, problems = validate(document, BLOCK, block, SettingsRecord)
    values: dict[str, JsonValue] = {key: value for key, value in block.items() if value is not None}
    # from the file and not from the record: a wrong number elsewhere hides nothing here
    for path in _TEXTS:
        text = document.at(BLOCK + path)
        if isinstance(text, str):
            expanded = expand(text, around.environ)
            if expanded.missing or expanded.nested:
                names = ", ".join((*expanded.missing, *expanded.nested))
                reason = f"the variable {names} is not set, or its default holds a reference."
            else:
                reason = _refused(path, expanded.text, around)
            problems += [document.problem(BLOCK + path, reason)] if reason else []
            _put(values, path, expanded.text)
    return ({} if record is None else values), problems


def make_settings(values: Mapping[str, JsonValue]) -> Settings:
    """The settings of all files together; each of their blocks was found right."""
    record, default = SettingsRecord.model_validate(dict(values)), Settings()
    timeout_ms, idle_ms = record.shutdown_timeout_ms, record.session_idle_ttl_ms
    listen = None if record.metrics is None else record.metrics.listen
    metrics = None if listen is None else parse_listen(listen)
    return Settings(
        max_instances=record.max_instances or default.max_instances,
        start_concurrency=record.start_concurrency or count_processors(),
        shutdown_timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        socket_group=record.socket_group,
        path=record.path,
        session_idle_s=default.session_idle_s if idle_ms is None else idle_ms / 1000,
        max_line_bytes=record.max_line_bytes or default.max_line_bytes,
        max_client_queue_bytes=record.max_client_queue_bytes or default.max_client_queue_bytes,
        metrics_listen=metrics if isinstance(metrics, tuple) else None,
    )


def parse_listen(text: str) -> tuple[str, int] | str:
    """Read an address to listen on.

    Args:
        text: a literal loopback address, one of IPv6 in brackets, a colon and a port.

    Returns:
        Host and port, or a clause that says what is wrong.
    """
    found = _ADDRESS.fullmatch(text)
    address = None if found is None else _literal(found[1] or found[2])
    if found is None or address is None:
        return (
            "this is no literal address with a port (a name will not do, since others decide what "
            f"it stands for); {_WRITE}"
        )
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped is not None
    if mapped or not address.is_loopback:
        return f"{address} is no loopback address, and this listener asks for no password; {_WRITE}"
    port = int(found[3])
    if not 1 <= port <= _LAST_PORT:
        return f"{port} is no port; ports go from 1 to {_LAST_PORT}."
    return str(address), port


def _literal(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _refused(path: KeyPath, text: str, around: Surroundings) -> str:
    """Why one setting cannot be what it is; empty where it can."""
    if path == ("socketGroup",) and around.accounts.group(text) is None:
        return "no group of this machine has this name; name one, or take it out."
    if path == ("metrics", "listen") and isinstance(problem := parse_listen(text), str):
        return problem
    return ""


def _put(values: dict[str, JsonValue], path: KeyPath, text: str) -> None:
    """Replace one text; the file's own value stays as it was."""
    key, *inner = map(str, path)
    values[key] = {inner[0]: text} if inner else text
