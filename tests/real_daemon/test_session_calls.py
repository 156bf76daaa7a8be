"""Calls in sessions: bytes, limits, turns, deaths, and how servers of each era are spoken to.

Source: design sections 8, 10 and 16.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest
from typing_extensions import override

from real_daemon.daemon_fixture import Daemon, running_daemon
from real_daemon.daemon_log import Json
from real_daemon.diaries import (
    Held,
    Stage,
    call,
    edit,
    open_session,
    processes,
    stage,
    text_of,
    tool_names,
)

ODD_ARGUMENTS: Final = (
    b'{"n": 1.0e+02,"big":12345678901234567890123,  "s":"caf\\u00e9","x":{"b":1,"a":-0.0}}'
)
ODD_RESULT: Final = (
    b'{"content":[{"type":"text","text":"caf\\u00e9","x-colour": 1.50e+2}],'
    b'"structuredContent":{"big":12345678901234567890123,"small":1E-7},"x-unknown":{"b":1,"a":2}}'
)

SHORT: Final = {"requestTimeoutMs": 400}


@pytest.fixture(scope="module")
def on_stage() -> Iterator[Stage]:
    """A folder of diaries."""
    with stage() as made:
        yield made


@pytest.fixture(scope="module")
def daemon(on_stage: Stage) -> Iterator[Daemon]:
    """A daemon that the tests share; each uses a session of its own."""
    records = {
        "calm": on_stage.record("calm"),
        "short": on_stage.record("short", **SHORT),
        "patient": on_stage.record("patient", **SHORT, resetTimeoutOnProgress=True),
        "parallel": on_stage.record("parallel", supportsParallelToolCalls=True),
        "schemas": on_stage.record("schemas", "schemas=yes"),
        "asks": on_stage.record("asks", "asks=yes"),
    }
    with running_daemon(records) as running:
        yield running


@pytest.fixture
def key(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[str]:
    """The key of a session that ends with the test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)
    yield name
    daemon.api("DELETE", f"/v1/sessions/{name}")


def raw_call(daemon: Daemon, key: str, tool: str, body: bytes) -> bytes:
    """Call a tool with a body as it is; the answer as it is."""
    with closing(daemon.connection()) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v1/sessions/{key}/tools/{tool}", body, headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return answer.read()


class Beside(threading.Thread):
    """A call on a thread of its own."""

    def __init__(self, daemon: Daemon, key: str, tool: str, arguments: Json, status: int) -> None:
        super().__init__()
        self._call = (daemon, key, tool, arguments, status)
        self._answer: list[Json] = []
        self.start()

    @override
    def run(self) -> None:
        """Call."""
        daemon, key, tool, arguments, status = self._call
        self._answer.append(call(daemon, key, tool, arguments, status=status))

    def answer(self) -> Json:
        """Wait for what came."""
        self.join()
        (answer,) = self._answer
        return answer


def beside(
    daemon: Daemon, key: str, tool: str, arguments: Json | None = None, status: int = 200
) -> Beside:
    """Begin a call and go on."""
    return Beside(daemon, key, tool, arguments or {}, status)


# What passes


def test_arguments_and_results_pass_byte_for_byte(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """Spellings of numbers, order of members and unknown fields are the server's business."""
    open_session(daemon, key, "calm")
    body = b'{"arguments": ' + ODD_ARGUMENTS + b', "more": 1}'
    assert raw_call(daemon, key, "calm__odd", body) == ODD_RESULT
    lines = [e["line"] for e in on_stage["calm"].entries() if e.get("heard") == "tools/call"]
    assert ODD_ARGUMENTS.decode() in lines[-1]


def test_a_tool_that_fails_is_an_answer_and_not_an_error(daemon: Daemon, key: str) -> None:
    """`isError` is for the model; `mcpctl call` says it with its exit code."""
    open_session(daemon, key, "calm")
    for _ in range(4):  # more often than the breaker bears failures
        result = call(daemon, key, "calm__fails")
        assert (result["isError"], text_of(result)) == (True, "no such file")
    done = daemon.mcpctl("call", "calm__fails", "--session", key)
    assert (done.returncode, done.stdout) == (1, "no such file\n")


def test_arguments_that_do_not_fit_are_refused_with_their_path(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """And the server is not bothered with them."""
    open_session(daemon, key, "calm")
    before = len(on_stage["calm"].calls("typed"))
    wrong = {"rows": [{"id": 1}, {"id": "secret-value"}]}
    problem = call(daemon, key, "calm__typed", wrong, status=422)
    assert problem["code"] == "arguments_invalid"
    assert "$.rows[1].id" in problem["detail"]
    assert "secret-value" not in json.dumps(problem)
    assert len(on_stage["calm"].calls("typed")) == before
    call(daemon, key, "calm__typed", {"rows": [{"id": 1}]})
    assert len(on_stage["calm"].calls("typed")) == before + 1


def test_a_result_that_breaks_its_own_schema_is_the_servers_fault(daemon: Daemon, key: str) -> None:
    """Whoever relies on the schema is not given what breaks it."""
    open_session(daemon, key, "calm")
    assert call(daemon, key, "calm__shaped", {"n": 1})["structuredContent"] == {"n": 1}
    problem = call(daemon, key, "calm__shaped", {"n": "one"}, status=502)
    assert problem["code"] == "result_invalid"
    assert "$.n" in problem["detail"]


def test_odd_schemas_cost_their_own_tools_only(daemon: Daemon, key: str) -> None:
    """One tool of an old dialect, one broken, one without: the others are usable."""
    open_session(daemon, key, "schemas")
    answer = daemon.api("GET", f"/v1/sessions/{key}/tools")
    names = [tool["name"] for tool in answer["tools"]]
    assert names == ["schemas__broken", "schemas__draft7", "schemas__echo"]
    (diagnostic,) = answer["diagnostics"]
    assert "'bare'" in diagnostic
    (broken,) = [t for t in answer["tools"] if t["name"] == "schemas__broken"]
    assert broken["inputSchema"] == {"type": "no-such-type"}
    call(daemon, key, "schemas__draft7", {"p": ["a", 1]})
    refused = call(daemon, key, "schemas__draft7", {"p": ["a", "b"]}, status=422)
    assert "$.p[1]" in refused["detail"]
    call(daemon, key, "schemas__broken")
    daemon.log.wait_for("schema_not_checked", server="schemas", tool="broken")


# Limits


def test_a_call_at_its_limit_is_cancelled_and_its_late_answer_goes_nowhere(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """The server is told which request nobody waits for; what it answers then is dropped."""
    open_session(daemon, key, "short")
    problem = call(daemon, key, "short__silent", status=504)
    assert (problem["code"], problem["limit_s"]) == ("call_timed_out", 0.4)
    assert "requestTimeoutMs" in problem["detail"]
    # the server reads in order: after this answer it has read the cancellation, and said its word
    assert text_of(call(daemon, key, "short__echo", {"text": "next"})) == "next"
    (silent,) = on_stage["short"].calls("silent")
    cancelled = on_stage["short"].heard("notifications/cancelled")
    assert [note["params"]["requestId"] for note in cancelled] == [silent["id"]]
    assert daemon.instances()[0]["stray_lines"] == 0


def test_progress_extends_the_time_of_a_call_whose_caller_cannot_hear_it(
    daemon: Daemon, key: str
) -> None:
    """Where the record allows it: an HTTP request has no way to be told of progress."""
    open_session(daemon, key, "patient", "short")
    steps = {"n": 4, "gap_s": 0.2}
    assert text_of(call(daemon, key, "patient__steps", steps)) == "done"
    late = call(daemon, key, "short__steps", steps, status=504)
    assert late["setting"] == "requestTimeoutMs"
    assert call(daemon, key, "patient__silent", status=504)["limit_s"] == 0.4


def test_a_caller_that_goes_away_cancels_its_call(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """Nobody would read the answer, and the work may cost money; the next call is not behind it."""
    open_session(daemon, key, "calm")
    with Held(on_stage.folder, "left") as held:
        path = f"/v1/sessions/{key}/tools/calm__hold"
        with daemon.request("POST", path, {"arguments": held.arguments}):
            held.wait_entered()
        assert text_of(call(daemon, key, "calm__echo", {"text": "next"})) == "next"
        (hold,) = on_stage["calm"].calls("hold")
        assert (
            on_stage["calm"].heard("notifications/cancelled")[-1]["params"]["requestId"]
            == (hold["id"])
        )
        held.release()


def test_after_three_silences_the_server_is_left_in_peace(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """The message says when the next try is possible; another session's server is not meant."""
    open_session(daemon, key, "short")
    before = len(on_stage["short"].calls("silent"))
    for _ in range(3):
        assert call(daemon, key, "short__silent", status=504)["code"] == "call_timed_out"
    paused = call(daemon, key, "short__echo", status=503)
    assert (paused["code"], paused["failures"]) == ("server_paused", 3)
    assert 50 < paused["retry_in_s"] <= 60
    assert paused["retry_at_utc"] in paused["detail"]
    assert len(on_stage["short"].calls("silent")) == before + 3
    open_session(daemon, f"{key}.other", "short")
    call(daemon, f"{key}.other", "short__echo")
    daemon.api("DELETE", f"/v1/sessions/{key}.other")


# Turns


def held_calls(daemon: Daemon, key: str, tools: list[str], helds: list[Held]) -> list[Beside]:
    """Begin calls that are held."""
    return [
        beside(daemon, key, tool, held.arguments) for tool, held in zip(tools, helds, strict=True)
    ]


@pytest.mark.parametrize(
    ("server", "tools"), [("parallel", ["hold", "hold"]), ("calm", ["look", "look"])]
)
def test_calls_run_side_by_side_where_the_record_or_the_tools_allow_it(
    daemon: Daemon, on_stage: Stage, key: str, server: str, tools: list[str]
) -> None:
    """Both have reached the server before one of them is answered."""
    open_session(daemon, key, server)
    with Held(on_stage.folder, "one") as one, Held(on_stage.folder, "two") as two:
        calls = held_calls(daemon, key, [f"{server}__{tool}" for tool in tools], [one, two])
        one.wait_entered()
        two.wait_entered()
        (instance,) = [i for i in daemon.instances() if i["session"] == key]
        assert instance["calls_in_flight"] == 2
        for held in (one, two):
            held.release()
        assert [text_of(made.answer()) for made in calls] == ["released", "released"]


@pytest.mark.parametrize("second", ["hold", "look"])
def test_calls_to_other_servers_follow_one_another(
    daemon: Daemon, on_stage: Stage, key: str, second: str
) -> None:
    """A server that did not promise more gets one call at a time, readers behind writers too."""
    open_session(daemon, key, "calm")
    with Held(on_stage.folder, "one") as one, Held(on_stage.folder, "two") as two:
        (first,) = held_calls(daemon, key, ["calm__hold"], [one])
        one.wait_entered()
        (other,) = held_calls(daemon, key, [f"calm__{second}"], [two])
        for _ in range(5):  # whoever does not wait for its turn has overtaken these
            call(daemon, key, "calm__nothing", status=404)
        one.release()
        two.wait_entered()
        two.release()
        for made in (first, other):
            assert text_of(made.answer()) == "released"
        did = [
            (entry["did"], entry["name"])
            for entry in on_stage["calm"].entries()
            if entry.get("did") in {"hold", "held"}
        ][-4:]
        names = [one.arguments["entered"], two.arguments["entered"]]
        assert did == [(what, name) for name in names for what in ("hold", "held")]


def test_a_call_whose_turn_does_not_come_says_who_is_before_it(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """And how to let calls run side by side; the call that runs is not touched."""
    open_session(daemon, key, "calm")
    with Held(on_stage.folder, "one") as one:
        (first,) = held_calls(daemon, key, ["calm__hold"], [one])
        one.wait_entered()
        edit(daemon, calm={"requestTimeoutMs": 300})
        problem = call(daemon, key, "calm__echo", status=504)
        edit(daemon, calm={"requestTimeoutMs": 60000})
        assert (problem["code"], problem["limit_s"]) == ("call_queued_too_long", 0.3)
        assert (problem["running"], problem["waiting"]) == (1, 0)
        assert "supportsParallelToolCalls" in problem["detail"]
        one.release()
        assert text_of(first.answer()) == "released"


# Deaths


def test_a_death_in_a_call_fails_it_with_exit_and_stderr_and_the_next_call_works(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """Nothing is repeated: the tool may have done its work before it died."""
    open_session(daemon, key, "calm")
    call(daemon, key, "calm__echo")
    starts, deaths = on_stage["calm"].starts(), len(on_stage["calm"].calls("die"))
    problem = call(daemon, key, "calm__die", status=502)
    assert (problem["code"], problem["last_stderr"]) == ("server_gone", ["out of cheese"])
    assert "exited with code 7" in problem["detail"]
    assert text_of(call(daemon, key, "calm__echo", {"text": "again"})) == "again"
    assert on_stage["calm"].starts() == starts + 1
    assert len(on_stage["calm"].calls("die")) == deaths + 1


def test_all_calls_in_flight_fail_at_a_death(daemon: Daemon, on_stage: Stage, key: str) -> None:
    """None is left hanging, none is replayed to the new process."""
    open_session(daemon, key, "parallel")
    with Held(on_stage.folder, "one") as one, Held(on_stage.folder, "two") as two:
        helds = [one, two]
        calls = [
            beside(daemon, key, "parallel__hold", held.arguments, status=502) for held in helds
        ]
        for held in helds:
            held.wait_entered()
        made = len(on_stage["parallel"].calls("hold"))
        call(daemon, key, "parallel__die", status=502)
        for begun in calls:
            assert begun.answer()["code"] == "server_gone"
        assert text_of(call(daemon, key, "parallel__echo", {"text": "new"})) == "new"
        assert len(on_stage["parallel"].calls("hold")) == made


def test_the_first_call_after_a_silent_death_is_told_of_it(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """What the server knew is lost, so its user has to hear of it before the next one serves."""
    open_session(daemon, key, "calm")
    call(daemon, key, "calm__echo")
    ((pid, _),) = processes(daemon, key).values()
    (instance,) = [one["id"] for one in daemon.instances() if one["session"] == key]
    echoes = len(on_stage["calm"].calls("echo"))
    daemon.kill_process(pid)
    daemon.wait_judged(instance)
    problem = call(daemon, key, "calm__echo", status=502)
    assert problem["code"] == "server_gone"
    assert "signal 9" in problem["detail"] or "SIGKILL" in problem["detail"]
    assert len(on_stage["calm"].calls("echo")) == echoes
    call(daemon, key, "calm__echo")
    assert len(on_stage["calm"].calls("echo")) == echoes + 1


# Lists and questions


def test_a_burst_of_list_changes_is_listed_once_and_reaches_the_next_look(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """Fifty announcements are one change; the new tool can be called at once."""
    open_session(daemon, key, "calm")
    assert "calm__extra1" not in tool_names(daemon, key)
    lists = on_stage["calm"].count("tools/list")
    call(daemon, key, "calm__grow")
    assert text_of(call(daemon, key, "calm__extra1")) == "extra1"
    assert "calm__extra1" in tool_names(daemon, key)
    assert lists + 1 <= on_stage["calm"].count("tools/list") <= lists + 3


def test_what_a_server_asks_the_daemon_is_answered_or_refused_at_once(
    daemon: Daemon, on_stage: Stage, key: str
) -> None:
    """Nobody is there to answer for a user; a tool that waited for one would hang."""
    open_session(daemon, key, "asks")
    answers: dict[str, Any] = json.loads(text_of(call(daemon, key, "asks__ask")))
    assert answers.pop("ping")["result"] == {}
    assert {answer["error"]["code"] for answer in answers.values()} == {-32601}
    (hello,) = on_stage["asks"].heard("initialize")
    assert hello["params"]["capabilities"] == {}
    # it was also asked right after the handshake, with no call under way
    heard = [json.loads(entry["line"]) for entry in on_stage["asks"].entries() if "line" in entry]
    answered = [line["id"] for line in heard if "method" not in line]
    assert sum(str(ident).startswith("ask-roots/list") for ident in answered) == 2
