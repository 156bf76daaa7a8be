"""The control API over a real socket: what each path answers, and to whom."""

import io
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import structlog
from anyio.abc import TaskStatus
from typing_extensions import override

from supervisor.api.app import create_app
from supervisor.api.control import Control
from supervisor.api.errors import MEDIA_TYPE
from supervisor.api.server import ApiServer
from supervisor.core.errors import (
    CleanupUnconfirmedError,
    LaunchFailedError,
    SupervisorError,
    UnknownInstanceError,
    UnknownServerError,
)
from supervisor.core.ids import InstanceId, ServerName, SessionKey
from supervisor.core.report import CleanupReport, ExitStatus, Fact, Outcome
from supervisor.core.views import (
    DaemonView,
    InstanceView,
    LimitsView,
    QueueView,
    ReloadAnswer,
    RestartAnswer,
    ServerView,
    StartAnswer,
    StatusView,
    StopAnswer,
)
from supervisor.linux.unix_socket import bind_private, connect
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.logs import configure_logs

pytestmark = pytest.mark.anyio

LIVING = "0123456789abcdef"
STOPPED = "fedcba9876543210"


def instance_view(instance: str = LIVING) -> InstanceView:
    """A living instance of `git`."""
    return InstanceView(
        id=instance,
        server="git",
        session="default",
        state="alive",
        pid=11,
        pgid=10,
        relay_pid=9,
        anchor_pid=10,
        started_at_utc="2026-01-01T00:00:00Z",
        uptime_s=1.5,
        protocol_version=None,
        clients=0,
        calls_in_flight=0,
        stop=None,
        quarantined=False,
        stderr_tail=("ready",),
    )


def report_of(instance: str = STOPPED, outcome: Outcome = "confirmed") -> CleanupReport:
    """A report with one fact."""
    fact = Fact(name="server_exited", state="confirmed", at_s=0.009, evidence="exit code 0")
    return CleanupReport(
        instance=instance,
        server="git",
        session=None,
        reason="stop",
        outcome=outcome,
        deadline_s=5.0,
        deadline_shortened_by=None,
        elapsed_s=0.012,
        requested_at_utc="2026-01-01T00:00:00Z",
        facts=(fact,),
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


@dataclass
class FakeControl(Control):
    """A daemon with one server, `git`, that notes what it is asked.

    Attributes:
        error: raised by whatever is asked next.
        decided: stops and settled reports wait for it.
    """

    calls: list[tuple[object, ...]] = field(default_factory=list)
    error: Exception | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    @override
    def status(self) -> StatusView:
        self._note("status")
        return StatusView(
            daemon=DaemonView(
                pid=os.getpid(),
                version="0.1.0",
                run="00c0ffee",
                started_at_utc="2026-01-01T00:00:00Z",
                uptime_s=1.0,
                stopping=False,
                config_file=None,
                runtime_dir="/run/x",
                state_dir="/var/lib/x",
                fork_server_pid=None,
            ),
            servers=self.servers(),
            sessions=(),
            instances=self.instances(),
            queue=QueueView(starting=0, waiting=0),
            limits=LimitsView(
                max_instances=256,
                instances=1,
                start_concurrency=2,
                descriptors=1024,
                descriptors_open=20,
            ),
        )

    @override
    def servers(self) -> tuple[ServerView, ...]:
        return (self.server(ServerName("git")),)

    @override
    def server(self, name: ServerName) -> ServerView:
        self._note("server", name)
        if name != "git":
            raise UnknownServerError(name, ("git",))
        return ServerView(
            name="git",
            state="alive",
            transport="stdio",
            command="uvx mcp-server-git",
            instances=(LIVING,),
            error=None,
            exits=0,
            last_exit=None,
            next_start_in_s=None,
        )

    @override
    def instances(self, *, quarantined: bool | None = None) -> tuple[InstanceView, ...]:
        self._note("instances", quarantined)
        return () if quarantined else (instance_view(),)

    @override
    def instance(self, instance: InstanceId) -> InstanceView:
        self._note("instance", instance)
        if instance != LIVING:
            raise UnknownInstanceError(instance)
        return instance_view()

    @override
    def reports(self, *, outcome: Outcome | None = None) -> tuple[CleanupReport, ...]:
        self._note("reports", outcome)
        return (report_of(outcome=outcome or "confirmed"),)

    @override
    def report(self, instance: InstanceId) -> CleanupReport:
        self._note("report", instance)
        return report_of(instance)

    @override
    async def settled_report(self, instance: InstanceId) -> CleanupReport:
        self._note("settled_report", instance)
        await self.decided.wait()
        return report_of(instance)

    @override
    async def start(self, name: ServerName, session: SessionKey) -> StartAnswer:
        self._note("start", name, session)
        return StartAnswer(instance=instance_view(), started=True)

    @override
    async def stop(
        self, name: ServerName, session: SessionKey | None, *, force: bool, verify: bool
    ) -> StopAnswer:
        self._note("stop", name, session, force, verify)
        await self.decided.wait()
        self.calls.append(("stop ended",))
        return StopAnswer(outcome="confirmed", reports=(report_of(),))

    @override
    async def stop_instance(self, instance: InstanceId, *, force: bool, verify: bool) -> StopAnswer:
        self._note("stop_instance", instance, force, verify)
        return StopAnswer(outcome="nothing_running", reports=())

    @override
    async def restart(
        self, name: ServerName, session: SessionKey, *, force: bool, verify: bool
    ) -> RestartAnswer:
        self._note("restart", name, session, force, verify)
        return RestartAnswer(outcome="confirmed", reports=(), instance=instance_view())

    @override
    async def reload(self) -> ReloadAnswer:
        self._note("reload")
        return ReloadAnswer(
            unchanged=("git",),
            changed=(),
            retuned=(),
            added=(),
            removed=(),
            warnings=(),
            reports=(),
        )

    @override
    async def release(self, instance: InstanceId) -> CleanupReport:
        self._note("release", instance)
        return report_of(instance, "unconfirmed")

    def request_shutdown(self, *, force: bool, caller: str) -> None:
        """The daemon's own part."""
        self._note("request_shutdown", force, caller)


@dataclass
class Api:
    """A served API, and what is behind it."""

    control: FakeControl
    events: EventLog
    client: httpx2.AsyncClient
    server: ApiServer
    path: str
    ready: bool = True

    async def get(self, path: str, status: int = 200) -> Any:  # noqa: ANN401 - JSON
        """The body of a GET."""
        response = await self.client.get(path)
        assert response.status_code == status, response.text
        return response.json()

    async def post(self, path: str, body: object = None, status: int = 200) -> Any:  # noqa: ANN401
        """The body of a POST, which is sent without one when it is None."""
        content = None if body is None else json.dumps(body)
        headers = {} if body is None else {"content-type": "application/json"}
        response = await self.client.post(path, content=content, headers=headers)
        assert response.status_code == status, response.text
        return response.json()


@asynccontextmanager
async def serving(path: str) -> AsyncIterator[Api]:
    """A served API; at the end it stops as the daemon stops it."""
    control, events = FakeControl(), EventLog(run="00c0ffee")
    api: Api | None = None

    async def run(*, task_status: TaskStatus[None]) -> None:
        await server.run_until_stopped(bound.socket, on_serving=task_status.started)

    bound = bind_private(path)
    app = create_app(
        control,
        events,
        lambda: api is not None and api.ready,
        request_shutdown=control.request_shutdown,
        shutdown_budget_s=lambda: 7.5,
    )
    server = ApiServer(app)
    transport = httpx2.AsyncHTTPTransport(uds=path)
    try:
        async with (
            anyio.create_task_group() as tasks,
            httpx2.AsyncClient(transport=transport, base_url="http://daemon", timeout=5) as client,
        ):
            await tasks.start(run)
            api = Api(control, events, client, server, path)
            yield api
            events.close()
            server.stop()
    finally:
        bound.remove()


@pytest.fixture
async def api(tmp_runtime: Path) -> AsyncIterator[Api]:
    """The API for one test."""
    with anyio.fail_after(20):
        async with serving(str(tmp_runtime / "control.sock")) as served:
            yield served


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What the log writes, as JSON lines; logging is as before afterwards."""
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs(stream="json", level="debug")
    yield stream
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = before


def as_json(value: Any) -> Any:  # noqa: ANN401 - any of our dataclasses
    """What a dataclass is in JSON."""
    return json.loads(json.dumps(asdict(value)))


async def test_snapshots_are_the_views_unchanged(api: Api) -> None:
    """Field names are JSON keys; lists stand under their noun (design section 12)."""
    assert await api.get("/v1/status") == as_json(api.control.status())
    assert await api.get("/v1/servers") == {"servers": [as_json(api.control.servers()[0])]}
    assert await api.get("/v1/servers/git") == as_json(api.control.servers()[0])
    assert await api.get("/v1/instances") == {"instances": [as_json(instance_view())]}
    assert await api.get("/v1/instances?quarantined=true") == {"instances": []}
    assert await api.get(f"/v1/instances/{LIVING}") == as_json(instance_view())
    assert await api.get("/v1/reports?outcome=unconfirmed") == {
        "reports": [as_json(report_of(outcome="unconfirmed"))]
    }


async def test_actions_reach_the_daemon_with_what_the_body_says(api: Api) -> None:
    """Without a body: start in the default session, stop everywhere, nothing forced."""
    api.control.decided.set()

    assert await api.post("/v1/servers/git/start") == {
        "instance": as_json(instance_view()),
        "started": True,
    }
    await api.post("/v1/servers/git/start", {"session": "a@b"})
    assert (await api.post("/v1/servers/git/stop"))["outcome"] == "confirmed"
    await api.post("/v1/servers/git/stop", {"session": "s", "force": True, "verify": True})
    await api.post("/v1/servers/git/restart", {})
    await api.post(f"/v1/instances/{LIVING}/stop", {"force": True})
    released = await api.post(f"/v1/instances/{LIVING}/release")

    assert released["outcome"] == "unconfirmed"
    assert [call for call in api.control.calls if call != ("stop ended",)] == [
        ("start", "git", "default"),
        ("start", "git", "a@b"),
        ("stop", "git", None, False, False),
        ("stop", "git", "s", True, True),
        ("restart", "git", "default", False, False),
        ("stop_instance", LIVING, True, False),
        ("release", LIVING),
    ]


async def test_a_shutdown_is_answered_before_it_happens(api: Api) -> None:
    """The caller learns whom to wait for and how long; the log learns who asked."""
    assert await api.post("/v1/shutdown", {"force": True}, 202) == {
        "stopping": True,
        "pid": os.getpid(),
        "deadline_s": 7.5,
    }

    assert api.control.calls[-1] == (
        "request_shutdown",
        True,
        f"pid {os.getpid()}, uid {os.geteuid()}",
    )


async def test_health_is_not_readiness(api: Api) -> None:
    """A daemon that starts or stops is alive and takes no work."""
    api.ready = False

    assert await api.get("/healthz") == {"status": "ok"}
    assert await api.get("/readyz", 503) == {"status": "starting_or_stopping"}
    api.ready = True
    assert await api.get("/readyz") == {"status": "ok"}


async def test_the_report_of_a_stopping_instance_waits_for_the_decision(api: Api) -> None:
    """Half a report would be taken for the whole."""
    answers = list[dict[str, Any]]()

    async def ask() -> None:
        answers.append(await api.get(f"/v1/instances/{LIVING}/report"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        while not api.control.calls:
            await anyio.lowlevel.checkpoint()
        await api.get("/healthz")  # whole exchanges take place in the meantime
        assert answers == []
        api.control.decided.set()

    assert answers[0]["instance"] == LIVING


async def test_a_client_that_goes_away_does_not_cancel_the_stop_it_asked_for(api: Api) -> None:
    """A person who presses Ctrl-C must not leave a family half stopped."""
    with connect(api.path) as client:
        client.sendall(b"POST /v1/servers/git/stop HTTP/1.1\r\nHost: x\r\n\r\n")
        while not api.control.calls:
            await anyio.lowlevel.checkpoint()
    while api.server.server_state.connections:  # the server has noticed
        await anyio.lowlevel.checkpoint()

    api.control.decided.set()

    while ("stop ended",) not in api.control.calls:
        await anyio.lowlevel.checkpoint()


async def problem(response: httpx2.Response) -> dict[str, Any]:
    """A problem document, checked against RFC 9457 and against its own status line."""
    assert response.headers["content-type"] == MEDIA_TYPE
    body: dict[str, Any] = response.json()
    assert body["status"] == response.status_code
    assert body["type"] == f"urn:mcp-supervisord:problem:{body['code']}"
    assert {"title", "detail"} <= body.keys()
    return body


async def test_errors_carry_their_code_and_their_typed_fields(api: Api) -> None:
    """Callers read fields, never the sentence."""
    unknown = await problem(await api.client.get("/v1/servers/gti"))
    api.control.error = CleanupUnconfirmedError("git", LIVING, ("pid 7 sleep",))
    blocked = await problem(await api.client.post("/v1/servers/git/start"))
    api.control.error = LaunchFailedError("git", "exec", 2, "/x", sentence="/x does not exist.")
    failed = await problem(await api.client.post("/v1/servers/git/start"))

    assert (unknown["status"], unknown["code"]) == (404, "unknown_server")
    assert (unknown["server"], unknown["known"]) == ("gti", ["git"])
    assert (blocked["status"], blocked["survivors"]) == (409, ["pid 7 sleep"])
    assert blocked["instance"] == LIVING
    assert (failed["status"], failed["step"], failed["errno"]) == (502, "exec", 2)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/instances/xyz", None, 422, "request_invalid"),
        ("GET", "/v1/instances/0123456789ABCDEF", None, 422, "request_invalid"),
        ("POST", "/v1/servers/git/start", {"session": "no spaces"}, 422, "request_invalid"),
        ("POST", "/v1/servers/git/stop", {"session": ""}, 422, "request_invalid"),
        ("POST", "/v1/servers/git/stop", {"froce": True}, 422, "request_invalid"),
        ("POST", "/v1/servers/git/stop", {"force": "yes"}, 422, "request_invalid"),
        ("GET", "/v1/reports?outcome=maybe", None, 422, "request_invalid"),
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("DELETE", "/v1/servers", None, 405, "method_not_allowed"),
    ],
)
async def test_a_wrong_request_is_explained_and_reaches_nobody(
    api: Api, method: str, path: str, body: object, status: int, code: str
) -> None:
    """Also what the framework itself refuses speaks problem details."""
    response = await api.client.request(method, path, json=body)

    found = await problem(response)
    assert (found["status"], found["code"]) == (status, code)
    assert api.control.calls == []
    assert status != 405 or response.headers["allow"] == "GET"


async def test_a_wrong_value_is_not_repeated(api: Api) -> None:
    """It may be a secret in the wrong place."""
    response = await api.client.post("/v1/servers/git/stop", json={"force": "hunter22"})
    garbled = await api.client.post(
        "/v1/servers/git/stop", content="{hunter22", headers={"content-type": "application/json"}
    )

    assert "hunter22" not in response.text + garbled.text
    assert (await problem(response))["errors"][0]["field"] == "body.force"
    assert (await problem(garbled))["status"] == 422


async def test_a_bug_is_logged_once_and_not_shown(api: Api, written: io.StringIO) -> None:
    """The body says only that it is ours; the daemon goes on."""
    api.control.error = ZeroDivisionError("secret arithmetic")

    found = await problem(await api.client.get("/v1/status"))
    api.control.error = None
    await api.get("/v1/status")

    assert (found["status"], found["code"]) == (500, "internal")
    assert "arithmetic" not in json.dumps(found)
    assert written.getvalue().count("Traceback") == 1
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [
        "request_failed",
        "request_answered",
        "request_answered",
    ]


async def test_every_request_is_one_debug_line_with_its_caller(
    api: Api, written: io.StringIO
) -> None:
    """Who asked is known from the kernel (SO_PEERCRED), not from the request."""
    await api.get("/healthz")

    line = json.loads(written.getvalue())
    assert (line["event"], line["level"]) == ("request_answered", "debug")
    assert (line["method"], line["path"], line["status"]) == ("GET", "/healthz", 200)
    assert (line["peer_pid"], line["peer_uid"]) == (os.getpid(), os.geteuid())


def subclasses(kind: type[SupervisorError]) -> Iterator[type[SupervisorError]]:
    """All of them."""
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_error_code_has_its_status() -> None:
    """One table: a code without a row would be answered as its ancestor's."""
    from supervisor.api.errors import PROBLEMS  # noqa: PLC0415 - only this test

    ours = [kind for kind in subclasses(SupervisorError) if "core.errors" in kind.__module__]
    assert {kind.code for kind in ours} <= PROBLEMS.keys()


async def test_the_document_names_shapes_and_problems(api: Api) -> None:
    """Clients are made from it; FastAPI's own error shape must not be in it."""
    document = await api.get("/openapi.json")

    shapes = document["components"]["schemas"]
    assert {"StatusView", "InstanceView", "CleanupReport", "Problem", "Event"} <= shapes.keys()
    assert "HTTPValidationError" not in shapes
    assert "StopView" in json.dumps(shapes["InstanceView"])
    stop = document["paths"]["/v1/servers/{name}/stop"]["post"]["responses"]
    assert MEDIA_TYPE in stop["422"]["content"]
    status = document["paths"]["/v1/status"]["get"]["responses"]["200"]["content"]
    assert status["application/json"]["schema"]["$ref"].endswith("/StatusView")


async def lines_of(response: httpx2.Response) -> list[dict[str, str]]:
    """The messages of an event stream, up to its end."""
    text = (await response.aread()).decode()
    messages = text.split("\n\n")[:-1]
    return [dict(line.split(": ", 1) for line in each.split("\n")) for each in messages]


async def test_events_are_a_list_by_default(api: Api) -> None:
    """A GET without more must end."""
    api.events.record("first")
    api.events.record("second", server="git", more=[1])

    listed = await api.get("/v1/events")
    later = await api.get("/v1/events?after=00c0ffee-1")

    assert [event["name"] for event in listed["events"]] == ["first", "second"]
    assert later["events"] == [as_json(api.events.recent()[1])]


@pytest.mark.parametrize("how", ["header", "query"])
async def test_a_stream_misses_nothing_after_its_head(api: Api, how: str) -> None:
    """Who has seen the head may act at once and will see what comes of it."""
    api.events.record("before")
    accept = {"accept": "text/event-stream"} if how == "header" else {}
    path = "/v1/events" if how == "header" else "/v1/events?follow=true"

    async with api.client.stream("GET", path, headers=accept) as response:
        api.events.record("after", text="two\nlines")
        api.events.close()
        messages = await lines_of(response)

    assert [(each["id"], each["event"]) for each in messages] == [("00c0ffee-2", "after")]
    assert json.loads(messages[0]["data"])["data"] == {"text": "two\nlines"}


@pytest.mark.parametrize(
    ("last", "names"),
    [("00c0ffee-1", ["second"]), ("0badcafe-1", ["gap", "first", "second"])],
)
async def test_a_stream_goes_on_where_the_client_stopped(
    api: Api, last: str, names: list[str]
) -> None:
    """After another run's id it begins with a gap."""
    api.events.record("first")
    api.events.record("second")
    api.events.close()

    headers = {"accept": "text/event-stream", "last-event-id": last}
    async with api.client.stream("GET", "/v1/events", headers=headers) as response:
        messages = await lines_of(response)

    assert [each["event"] for each in messages] == names
