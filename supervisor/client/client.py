"""The control API as methods: one request each, answers typed and unchanged.

Every method may raise `DaemonUnreachableError`, `KernelError`, `GarbledAnswerError` and
`ProblemError` (the daemon refused, with its code and fields).
"""

import json
from collections.abc import Iterator
from typing import Final, Generic, TypeVar, cast

from supervisor.client.bodies import (
    CallResult,
    Events,
    Instances,
    Probe,
    Reloaded,
    Report,
    Reports,
    Restarted,
    Sessions,
    Started,
    Status,
    Stopped,
    Stopping,
    Tools,
)
from supervisor.client.errors import GarbledAnswerError, ProblemError, refusal
from supervisor.client.wire import PATIENCE_S, Answer, OnWait, ask
from supervisor.core.ids import InstanceId, ServerName, SessionKey

Body = TypeVar("Body")

_OK_BELOW: Final = 300
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Answered(Generic[Body]):
    """One answer: the body's text as it came, and its value."""

    __slots__ = ("text", "value")

    def __init__(self, text: str, value: Body) -> None:
        self.text = text
        self.value = value


class StreamedEvent:
    """One message of an event stream: its id, its name, and its data (JSON, one line)."""

    __slots__ = ("data", "id", "name")

    def __init__(self, event_id: str, name: str, data: str) -> None:
        self.id = event_id
        self.name = name
        self.data = data


class Client:
    """Asks the daemon behind one control socket; holds no connection between two requests.

    Args:
        control_socket: its path.
        patience_s: how long a snapshot may take; stops and starts have no limit of their own.
    """

    def __init__(self, control_socket: str, *, patience_s: float = PATIENCE_S) -> None:
        self.path = control_socket
        self._patience_s = patience_s

    def status(self) -> Answered[Status]:
        """Daemon, servers, sessions, instances, queue and limits in one snapshot."""
        return self._typed(Status, "GET", "/v1/status")

    def instances(self, *, quarantined: bool | None = None) -> Answered[Instances]:
        """The instances, or only those that are (or are not) quarantined."""
        query = "" if quarantined is None else f"?quarantined={str(quarantined).lower()}"
        return self._typed(Instances, "GET", f"/v1/instances{query}")

    def reports(self, *, outcome: str | None = None) -> Answered[Reports]:
        """The kept cleanup reports, oldest first; `outcome` is confirmed or unconfirmed."""
        query = "" if outcome is None else f"?outcome={outcome}"
        return self._typed(Reports, "GET", f"/v1/reports{query}")

    def events(self) -> Answered[Events]:
        """The last few thousand events, oldest first."""
        return self._typed(Events, "GET", "/v1/events")

    def start(
        self, name: ServerName, session: SessionKey | None, on_wait: OnWait
    ) -> Answered[Started]:
        """Ensure one instance; without a session, in the daemon's default one."""
        target = f"/v1/servers/{quote(name)}/start"
        return self._typed(Started, "POST", target, _body(session=session), on_wait)

    def stop(
        self,
        name: ServerName,
        session: SessionKey | None,
        on_wait: OnWait,
        *,
        force: bool = False,
        verify: bool = False,
    ) -> Answered[Stopped]:
        """Stop all instances of a server that match; answers when all are judged."""
        body = _body(session=session, force=force, verify=verify)
        return self._typed(Stopped, "POST", f"/v1/servers/{quote(name)}/stop", body, on_wait)

    def stop_instance(
        self, instance: InstanceId, on_wait: OnWait, *, force: bool = False, verify: bool = False
    ) -> Answered[Stopped]:
        """Stop one instance; answers when it is judged."""
        body = _body(force=force, verify=verify)
        target = f"/v1/instances/{quote(instance)}/stop"
        return self._typed(Stopped, "POST", target, body, on_wait)

    def restart(
        self,
        name: ServerName,
        session: SessionKey | None,
        on_wait: OnWait,
        *,
        force: bool = False,
        verify: bool = False,
    ) -> Answered[Restarted]:
        """Stop, and start again once the old family is confirmed gone."""
        body = _body(session=session, force=force, verify=verify)
        return self._typed(Restarted, "POST", f"/v1/servers/{quote(name)}/restart", body, on_wait)

    def release(self, instance: InstanceId) -> Answered[Report]:
        """Give a quarantined instance up; answers its amended report."""
        return self._typed(Report, "POST", f"/v1/instances/{quote(instance)}/release")

    def reload(self, on_wait: OnWait) -> Answered[Reloaded]:
        """Read the configuration again; answers when all that it moves has been judged."""
        return self._typed(Reloaded, "POST", "/v1/reload", on_wait=on_wait)

    def sessions(self) -> Answered[Sessions]:
        """All sessions, sorted by key."""
        return self._typed(Sessions, "GET", "/v1/sessions")

    def delete_session(self, session: SessionKey, on_wait: OnWait) -> Answered[Stopped]:
        """Stop all that a session holds, and forget it; answers when all is judged."""
        return self._typed(Stopped, "DELETE", f"/v1/sessions/{quote(session)}", on_wait=on_wait)

    def tools(self, session: SessionKey, on_wait: OnWait) -> Answered[Tools]:
        """The tools of all servers of a session; starts those that do not run."""
        target = f"/v1/sessions/{quote(session)}/tools"
        return self._typed(Tools, "GET", target, on_wait=on_wait)

    def call(
        self, session: SessionKey, tool: str, arguments: str, on_wait: OnWait
    ) -> Answered[CallResult]:
        """Call one tool by its full name.

        Args:
            session: the key.
            tool: as `tools` names it.
            arguments: a JSON object, sent as it is.
            on_wait: called now and then while the answer is waited for.
        """
        target = f"/v1/sessions/{quote(session)}/tools/{quote(tool)}"
        body = f'{{"arguments": {arguments}}}'
        return self._typed(CallResult, "POST", target, body, on_wait)

    def probe(self, name: ServerName, on_wait: OnWait) -> Answered[Probe]:
        """Start a server for itself, ask what it offers, and stop it."""
        return self._typed(Probe, "POST", f"/v1/servers/{quote(name)}/probe", on_wait=on_wait)

    def shutdown(self, *, force: bool = False) -> Answered[Stopping]:
        """Ask the daemon to stop; it answers at once and then goes."""
        return self._typed(Stopping, "POST", "/v1/shutdown", _body(force=force))

    def follow(self, after: str | None = None) -> Iterator[StreamedEvent]:
        """Events as they happen, until the daemon ends the stream.

        Args:
            after: the id of the last event seen; the stream goes on behind it.
        """
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        with ask(self.path, "GET", "/v1/events?follow=true", headers=headers) as answer:
            if answer.status >= _OK_BELOW:
                raise _refusal(self.path, answer)
            answer.wait_without_limit()
            yield from _messages(answer)

    def logs(self, name: ServerName, lines: int, *, follow: bool = False) -> Iterator[bytes]:
        """What a server wrote to stderr: text in UTF-8, in pieces as they come.

        Args:
            name: the server.
            lines: how many of its last lines come first.
            follow: whether it goes on with what is written from then on.
        """
        target = f"/v1/servers/{quote(name)}/logs?lines={lines}"
        if follow:
            target += "&follow=true"
        with ask(self.path, "GET", target, patience_s=self._patience_s) as answer:
            if answer.status >= _OK_BELOW:
                raise _refusal(self.path, answer)
            if follow:
                answer.wait_without_limit()
            yield from answer.pieces()

    def _typed(
        self,
        _: type[Body],
        method: str,
        target: str,
        body: str | None = None,
        on_wait: OnWait | None = None,
    ) -> Answered[Body]:
        # who gives an `on_wait` decides there how long to wait; all else is a snapshot
        patience_s = self._patience_s if on_wait is None else None
        with ask(
            self.path, method, target, body=body, patience_s=patience_s, on_wait=on_wait
        ) as answer:
            if answer.status >= _OK_BELOW:
                raise _refusal(self.path, answer)
            text = answer.read().decode(errors="replace")
        try:
            value = json.loads(text)
        except ValueError:
            raise GarbledAnswerError(self.path, "it is not JSON") from None
        # the daemon made it from the dataclasses that `bodies` mirrors
        return Answered(text, cast("Body", value))


def quote(text: str) -> str:
    """`text` as one segment of a path: RFC 3986's unreserved characters, the rest as %XX."""
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)


def _body(**given: str | bool | None) -> str:
    return json.dumps({key: value for key, value in given.items() if value})


def _refusal(path: str, answer: Answer) -> ProblemError | GarbledAnswerError:
    return refusal(path, answer.status, answer.read().decode(errors="replace"))


def _messages(answer: Answer) -> Iterator[StreamedEvent]:
    """Source: HTML Living Standard, section 9.2.6 (interpreting an event stream)."""
    event_id, name, data = "", "message", list[str]()
    for line in _lines(answer.pieces()):
        if not line:
            if data:
                yield StreamedEvent(event_id, name, "\n".join(data))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            event_id = value


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode(errors="replace")
