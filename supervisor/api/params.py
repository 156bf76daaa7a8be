"""Names and ids out of a request, checked once and typed from here on."""

from typing import Annotated

from fastapi import Depends, Request

from supervisor.core.errors import RequestError
from supervisor.core.ids import (
    InstanceId,
    ServerName,
    SessionKey,
    is_instance_id,
    is_session_key,
)
from supervisor.linux.unix_socket import Peer


def session_key(text: str) -> SessionKey:
    """`text` as a session key.

    Raises:
        RequestError: it cannot name a session.
    """
    if not is_session_key(text):
        message = f"{text[:140]!r} cannot name a session: 1 to 128 of A-Z a-z 0-9 . _ : @ - only."
        raise RequestError(message)
    return SessionKey(text)


def _instance_id(instance_id: str) -> InstanceId:
    if not is_instance_id(instance_id):
        message = f"{instance_id[:40]!r} is no instance id: 16 hexadecimal digits, lower case."
        raise RequestError(message)
    return InstanceId(instance_id)


def _server_name(name: str) -> ServerName:
    return ServerName(name)  # unknown names are the manager's to refuse; it knows the known ones


def caller_of(request: Request) -> str:
    """Who asks, in words for the log."""
    peer = getattr(request.state, "peer", None)
    if not isinstance(peer, Peer):
        return "unknown"
    return f"pid {peer.pid}, uid {peer.uid}"


InstancePath = Annotated[InstanceId, Depends(_instance_id)]
ServerPath = Annotated[ServerName, Depends(_server_name)]
