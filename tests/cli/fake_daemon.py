"""A daemon that answers what a test has recorded: HTTP on control.sock, and a bare mcp.sock.

Bodies are made from the real dataclasses, so that a renamed field breaks the tests here too.
"""

import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

from typing_extensions import override

from supervisor.core.report import CleanupReport, ExitStatus
from supervisor.core.views import (
    DaemonView,
    InstanceView,
    LimitsView,
    QueueView,
    ServerView,
    SessionView,
    StatusView,
)

INSTANCE: Final = "0123456789abcdef"
WITHIN_S: Final = 10.0
"""What a fake waits for; a loaded machine needs some of it, a right program none."""

REPORT: Final = CleanupReport(
    instance=INSTANCE,
    server="git",
    session="default",
    reason="stop",
    outcome="confirmed",
    deadline_s=5.0,
    deadline_shortened_by=None,
    elapsed_s=0.0123,
    requested_at_utc="2026-02-03T04:05:06.789Z",
    facts=(),
    missing=(),
    signals=(),
    failed_signals=(),
    survivors=(),
    unattributed=(),
    leftovers_ended=(),
    exit=ExitStatus(code=0, signal=None),
    last_stderr=(),
    amended_at_utc=None,
    released=False,
)

INSTANCE_VIEW: Final = InstanceView(
    id=INSTANCE,
    server="git",
    session="default",
    state="alive",
    pid=4712,
    pgid=4711,
    relay_pid=4710,
    anchor_pid=4711,
    started_at_utc="2026-02-03T04:05:06.789Z",
    uptime_s=182.4,
    protocol_version=None,
    clients=1,
    calls_in_flight=0,
    stop=None,
    quarantined=False,
    stderr_tail=(),
)

STATUS: Final = StatusView(
    daemon=DaemonView(
        pid=4700,
        version="0.1.0",
        run="deadbeef",
        started_at_utc="2026-02-03T02:00:00.000Z",
        uptime_s=7506.0,
        stopping=False,
        config_file="/home/ada/.config/mcp-supervisor/config.json",
        runtime_dir="/run/user/1000/mcp-supervisor",
        state_dir="/home/ada/.local/state/mcp-supervisor",
        fork_server_pid=4701,
    ),
    servers=(
        ServerView(
            name="docs",
            state="idle",
            transport="stdio",
            command="npx docs-server",
            instances=(),
            error=None,
            exits=0,
            last_exit=None,
            next_start_in_s=None,
        ),
        ServerView(
            name="git",
            state="alive",
            transport="stdio",
            command="uvx mcp-server-git",
            instances=(INSTANCE,),
            error=None,
            exits=0,
            last_exit=None,
            next_start_in_s=None,
        ),
    ),
    sessions=(SessionView(key="default", instances=(INSTANCE,)),),
    instances=(INSTANCE_VIEW,),
    queue=QueueView(starting=0, waiting=0),
    limits=LimitsView(
        max_instances=256,
        instances=1,
        start_concurrency=2,
        descriptors=20000,
        descriptors_open=31,
    ),
)


@dataclass
class Recorded:
    """What the fake answers to one request.

    A `hold` is waited for first, a `hold_end` before the last chunk.
    """

    status: int = 200
    body: str = "{}"
    content_type: str = "application/json"
    hold: threading.Event | None = None
    chunks: tuple[bytes, ...] | None = None
    cut_off: bool = False
    hold_end: threading.Event | None = None


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    target: str
    body: str
    headers: dict[str, str]


@dataclass
class FakeDaemon:
    """What a test sets and reads; see `running`."""

    runtime_dir: Path
    listening_fd: int = -1
    on_answer: Callable[[], None] = lambda: None
    answers: dict[tuple[str, str], Recorded] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def answer(self, method: str, target: str, value: object, *, status: int = 200) -> Recorded:
        """Record the answer to `method target`; a dataclass becomes its JSON."""
        body = value if isinstance(value, str) else json.dumps(as_json(value))
        self.answers[method, target] = Recorded(status=status, body=body)
        return self.answers[method, target]

    def problem(self, method: str, target: str, status: int, code: str, **facts: object) -> str:
        """Record a problem document as the API makes it."""
        document = {
            "type": f"urn:mcp-supervisord:problem:{code}",
            "title": "No",
            "status": status,
            "code": code,
            **facts,
        }
        body = json.dumps(document)
        kind = "application/problem+json"
        self.answers[method, target] = Recorded(status=status, body=body, content_type=kind)
        return body

    def wait_asked(self, method: str, target: str) -> Asked:
        """Wait until such a request has come."""

        def found() -> Asked | None:
            return next((a for a in self.asked if (a.method, a.target) == (method, target)), None)

        with self.arrived:
            assert self.arrived.wait_for(lambda: found() is not None, WITHIN_S)
            asked = found()
            assert asked is not None
            return asked

    def wait_answered(self, target: str) -> None:
        """Wait until all of the answer to `target` is on its way."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: target in self.answered, WITHIN_S)


def as_json(value: object) -> object:
    """Plain JSON values of dataclasses, alone or in lists and objects."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value  # type: ignore[call-overload] # a dataclass, as just seen


@contextmanager
def running(runtime_dir: Path) -> Iterator[FakeDaemon]:
    """A fake daemon on `runtime_dir`/control.sock, in threads that end with the block."""
    fake = FakeDaemon(runtime_dir)
    with through_folder(runtime_dir, "control.sock") as path:
        server = _Server(path, fake)
    fake.listening_fd = server.fileno()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        for recorded in fake.answers.values():
            for hold in (recorded.hold, recorded.hold_end):
                if hold is not None:
                    hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def through_folder(folder: Path, name: str) -> Iterator[str]:
    """A path to `folder`/`name` that is short enough for a socket, however deep the folder."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


@contextmanager
def listening(runtime_dir: Path) -> Iterator[socket.socket]:
    """A bare listening socket on `runtime_dir`/mcp.sock; the test is the daemon."""
    with socket.socket(socket.AF_UNIX) as listener:
        with through_folder(runtime_dir, "mcp.sock") as path:
            listener.bind(path)
        listener.listen()
        listener.settimeout(WITHIN_S)
        yield listener


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    def __init__(self, path: str, fake: FakeDaemon) -> None:
        self.fake = fake
        super().__init__(path, _Handler)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is part of some tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    @override
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _handle(self) -> None:
        assert isinstance(self.server, _Server)
        fake = self.server.fake
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        with fake.arrived:
            fake.asked.append(Asked(self.command, self.path, body, dict(self.headers)))
            fake.arrived.notify_all()
        missing = Recorded(404, json.dumps({"code": "not_found", "detail": f"no {self.path}"}))
        recorded = fake.answers.get((self.command, self.path), missing)
        if recorded.hold is not None:
            recorded.hold.wait(WITHIN_S)
        if recorded.cut_off:
            return
        self.send_response(recorded.status)
        self.send_header("Content-Type", recorded.content_type)
        if recorded.chunks is None:
            content = recorded.body.encode()
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in recorded.chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if recorded.hold_end is not None:
                recorded.hold_end.wait(WITHIN_S)
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_WR)
        with fake.arrived:
            fake.answered.append(self.path)
            fake.on_answer()
            fake.arrived.notify_all()
