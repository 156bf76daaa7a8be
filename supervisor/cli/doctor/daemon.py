"""Whether the daemon answers, what it says about its servers, and who may reach its files."""

import grp
import os
import stat
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Final

from supervisor.cli.doctor.finding import Finding
from supervisor.client.bodies import Instance, Status
from supervisor.client.client import Client
from supervisor.core.errors import DaemonUnreachableError, SupervisorError
from supervisor.core.places import Places

FOLDER_MODE: Final = 0o700
SOCKET_MODE: Final = 0o600
GROUP_SOCKET_MODE: Final = 0o660
GROUP_FOLDER_MODES: Final = frozenset({0o700, 0o710, 0o750})
"""A group that may use the sockets has to get into their folder, and may not change it."""


def ask_daemon(places: Places) -> tuple[Status | None, Finding]:
    """The daemon's status if it answers, and what there is to say about that."""
    try:
        status = Client(places.control_socket).status().value
    except DaemonUnreachableError as error:
        hint = "Start it with `mcp-supervisord start`, or its systemd unit."
        if Path(places.control_socket).exists():
            hint += " A socket that a dead daemon has left behind is replaced by the next start."
        finding = Finding(
            level="warning", check="daemon", server=None, message=_first(error), hint=hint
        )
        return None, finding
    except SupervisorError as error:
        return None, Finding(level="error", check="daemon", server=None, message=str(error))
    daemon = status["daemon"]
    message = f"mcp-supervisord {daemon['version']} answers, pid {daemon['pid']}"
    return status, Finding(level="ok", check="daemon", server=None, message=message)


def environment_of(status: Status | None) -> Mapping[str, str]:
    """The running daemon's environment, since that decides what it finds; else our own.

    Source: proc(5): the environment at the daemon's start, readable for its own user only.
    """
    if status is not None:
        try:
            raw = Path(f"/proc/{status['daemon']['pid']}/environ").read_bytes()
        except OSError:
            raw = b""
        pairs = [os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if entry]
        if pairs:
            return {name: value for name, _, value in pairs}
    return os.environ


def check_status(
    status: Status, places: Places, name: str | None, found: Container[str | None]
) -> Iterator[Finding]:
    """What the daemon itself has to say that an operator should hear.

    Args:
        status: what it answered.
        places: where this looks.
        name: the one server of interest, or None for all.
        found: servers whose error is found already; the daemon's own sentence would repeat it.
    """
    file = status["daemon"]["config_file"]
    if file is not None and not _same(file, places.config_file):
        message = f"the daemon runs with {file}, and this looks at {places.config_file}"
        hint = f"`mcpctl --config {file} doctor` looks at the daemon's."
        yield Finding(
            level="warning", check="configuration", server=None, message=message, hint=hint
        )
    for server in status["servers"]:
        if server["error"] and name in {None, server["name"]} and server["name"] not in found:
            message = f"the daemon says: {server['error']}"
            hint = f"`mcpctl start {server['name']}` tries again once the cause is mended."
            yield Finding(
                level="error", check="server", server=server["name"], message=message, hint=hint
            )
    for instance in status["instances"]:
        if instance.get("stray_lines") and name in {None, instance["server"]}:
            yield _stray_output(instance)
        if instance["quarantined"] and name in {None, instance["server"]}:
            message = f"the cleanup of instance {instance['id']} is unconfirmed"
            hint = (
                "`mcpctl reports --unconfirmed --json` names what is left; end that, or "
                f"`mcpctl release {instance['id']}`."
            )
            yield Finding(
                level="error",
                check="cleanup",
                server=instance["server"],
                message=message,
                hint=hint,
            )


def _stray_output(instance: Instance) -> Finding:
    """A server that logs to stdout: this daemon copes, and most clients do not."""
    first = instance["first_stray_lines"][0]
    return Finding(
        level="warning",
        check="stdout",
        server=instance["server"],
        message=(
            f"it writes to stdout what is no JSON-RPC ({instance['stray_lines']} lines so far), "
            f"first: {first}"
        ),
        hint="Let it log to stderr; stdout belongs to the protocol.",
    )


def check_folders(places: Places, group: str | None) -> Iterator[Finding]:
    """Modes and owners of the two folders and the two sockets, as far as they are there."""
    allowed = GROUP_FOLDER_MODES if group else frozenset({FOLDER_MODE})
    yield from _check_mode(places.runtime_dir, "folder", allowed, None)
    yield from _check_mode(places.state_dir, "folder", frozenset({FOLDER_MODE}), None)
    mode = GROUP_SOCKET_MODE if group else SOCKET_MODE
    for path in (places.control_socket, places.mcp_socket):
        yield from _check_mode(path, "socket", frozenset({mode}), group)


def _check_mode(
    path: str, kind: str, allowed: frozenset[int], group: str | None
) -> Iterator[Finding]:
    try:
        seen = os.lstat(path)
    except FileNotFoundError:
        return  # made by the daemon's start
    except OSError as error:
        message = f"the {kind} {path} cannot be looked at: {error.strerror}"
        yield _finding("error", kind, message, "Run doctor as the daemon's user.")
        return
    mode = stat.S_IMODE(seen.st_mode)
    is_kind = stat.S_ISDIR(seen.st_mode) if kind == "folder" else stat.S_ISSOCK(seen.st_mode)
    if not is_kind:
        yield _finding("error", kind, f"{path} is no {kind}", "Move it away.")
    elif mode not in allowed:
        wanted = max(allowed) if kind == "socket" else FOLDER_MODE
        message = f"the {kind} {path} has mode {mode:04o} instead of {wanted:04o}"
        yield _finding("error", kind, message, f"`chmod {wanted:o} {path}`")
    elif seen.st_uid != os.geteuid() and os.geteuid() != 0:
        message = f"the {kind} {path} belongs to user {seen.st_uid}, not to you"
        yield _finding("warning", kind, message, "Run doctor as the daemon's user.")
    elif group is not None and _group_name(seen.st_gid) != group:
        message = f"the {kind} {path} belongs to group {_group_name(seen.st_gid)}, not to {group}"
        yield _finding(
            "error", kind, message, "Restart the daemon, or mend supervisor.socketGroup."
        )
    else:
        yield _finding("ok", kind, f"the {kind} {path} has mode {mode:04o}", None)


def _finding(level: str, kind: str, message: str, hint: str | None) -> Finding:
    return Finding(
        level="ok" if level == "ok" else "warning" if level == "warning" else "error",
        check="folders" if kind == "folder" else "sockets",
        server=None,
        message=message,
        hint=hint,
    )


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _first(error: SupervisorError) -> str:
    """The first sentence: the way out is in the hint."""
    return str(error).split(". ")[0].rstrip(".")
