"""Negotiation with one server: which questions it gets, and how long that may take.

The loop is trio's with a virtual clock: limits are exact, and nothing is waited for.
"""

import anyio
import pytest
from pydantic import JsonValue
from trio.testing import MockClock

from supervisor.core.call_errors import (
    AnswerNotUtf8Error,
    BadAnswerError,
    CallTimedOutError,
    ProtocolVersionError,
    ServerGoneError,
)
from supervisor.core.negotiation import KNOWN_VERSIONS, Era, Handshake
from supervisor.transport.handshake import DiedOfProbeError, Protocol, negotiate, own_envelope
from transport.scripted import SERVER, After, Answer, Dies, ScriptedServer, Silent, rpc_error

pytestmark = pytest.mark.anyio

LIMIT_S = 30.0
BOTH = ["server/discover", "initialize"]

MODERN: dict[str, JsonValue] = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new"}},
}
LEGACY: dict[str, JsonValue] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "old"},
    "instructions": "Gently.",
}
ALREADY_MODERN: JsonValue = {"supported": ["2026-07-28"], "requested": "2025-11-25"}


@pytest.fixture
def anyio_backend() -> object:
    """Trio with a clock that jumps to whatever is due next."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def server(
    discover: list[Answer] | None = None, initialize: list[Answer] | None = None
) -> ScriptedServer:
    """A server with these answers; without one it does not know the method."""
    return ScriptedServer(server__discover=discover or [], initialize=initialize or [])


async def shake(
    requests: ScriptedServer,
    protocol: Protocol = "auto",
    remembered: Era | None = None,
    limit_s: float = LIMIT_S,
) -> Handshake:
    """Negotiate within the limit."""
    return await negotiate(
        requests,
        SERVER,
        protocol=protocol,
        remembered=remembered,
        deadline_at=anyio.current_time() + limit_s,
    )


async def test_a_new_server_is_asked_once() -> None:
    """Its revision has no handshake; the question carries the envelope."""
    asked = server([MODERN])
    found = await shake(asked)
    assert (found.era, found.protocol_version, found.how) == ("modern", "2026-07-28", "probed")
    assert found.server_info == {"name": "new"}
    (question,) = asked.asked
    assert question.params == {"_meta": own_envelope()}
    assert question.limit_s == 2.0
    assert asked.told == []


async def test_an_old_server_gets_initialize_and_is_told_when_it_is_done() -> None:
    """The newest of its kind is offered, and no capability that the daemon does not have."""
    asked = server(initialize=[LEGACY])
    found = await shake(asked, "legacy")
    assert found == Handshake(
        era="legacy",
        protocol_version="2025-06-18",
        server_info={"name": "old"},
        capabilities={"tools": {}},
        instructions="Gently.",
        how="configured",
    )
    (question,) = asked.asked
    assert (question.method, question.setting) == ("initialize", "connectionTimeoutMs")
    assert question.params["protocolVersion"] == "2025-11-25"
    assert question.params["capabilities"] == {}
    assert asked.told == ["notifications/initialized"]


@pytest.mark.parametrize(
    "answer",
    [
        rpc_error(-32601),
        rpc_error(-32602),
        rpc_error(0),
        rpc_error(-32022),
        rpc_error(-32022, {"supported": ["2031-01-01"]}),
        {"ok": True},
        BadAnswerError(SERVER, "server/discover", "it is junk"),
        AnswerNotUtf8Error(SERVER),
    ],
    ids=str,
)
async def test_whatever_is_no_proof_of_a_new_server_falls_back_at_once(answer: Answer) -> None:
    """Taking only -32601 for a sign of an older server locked many of them out."""
    asked = server([answer], [LEGACY])
    before = anyio.current_time()
    found = await shake(asked)
    assert (found.era, found.how) == ("legacy", "fallback")
    assert asked.methods() == BOTH
    assert anyio.current_time() == before


async def test_a_server_that_is_silent_about_the_probe_costs_the_probes_limit() -> None:
    """It is well below the limit of the start, and the question is taken back."""
    asked = server([Silent()], [LEGACY])
    before = anyio.current_time()
    found = await shake(asked)
    assert found.how == "fallback"
    assert anyio.current_time() - before == pytest.approx(2.0)
    assert asked.cancelled == ["server/discover"]


async def test_a_remembered_old_server_is_not_probed() -> None:
    """The restart does not pay for it again."""
    asked = server([Silent()], [LEGACY])
    found = await shake(asked, remembered="legacy")
    assert found.how == "remembered"
    assert asked.methods() == ["initialize"]


async def test_a_remembered_new_server_may_start_slowly() -> None:
    """Nothing has to be found out, so the probe's short limit does not count."""
    asked = server([After(10.0, MODERN)])
    found = await shake(asked, remembered="modern")
    assert (found.era, found.how) == ("modern", "remembered")


async def test_a_server_that_is_remembered_wrongly_still_gets_initialize() -> None:
    """Its package was downgraded behind the same command, and it is silent about what is new."""
    asked = server([Silent()], [LEGACY])
    found = await shake(asked, remembered="modern")
    assert (found.era, found.how) == ("legacy", "fallback")


@pytest.mark.parametrize("remembered", [None, "legacy"])
async def test_a_new_server_that_was_too_slow_for_the_probe_is_asked_again(
    remembered: Era | None,
) -> None:
    """It answered too late, and refuses `initialize` with the revision that it speaks."""
    asked = server([Silent(), MODERN] if remembered is None else [MODERN])
    asked._answers["initialize"] = [After(8.0, rpc_error(-32022, ALREADY_MODERN))]
    found = await shake(asked, remembered=remembered)
    assert (found.era, found.how) == ("modern", "probed")
    assert asked.methods()[-2:] == ["initialize", "server/discover"]
    assert asked.told == []


async def test_a_server_that_names_older_versions_is_offered_the_newest_of_them() -> None:
    """-32022 says what both could speak."""
    named: JsonValue = {"supported": ["2024-11-05", "2025-03-26"]}
    asked = server([rpc_error(-32022, named)], [LEGACY])
    assert (await shake(asked)).how == "fallback"
    assert asked.asked[1].params["protocolVersion"] == "2025-03-26"


@pytest.mark.parametrize(
    ("discover", "initialize"),
    [
        ([Dies()], [LEGACY]),
        ([Silent()], [After(3.0, Dies())]),
        ([rpc_error(-32600)], [Dies()]),
    ],
    ids=["at once", "when it reads the question late", "after it has complained"],
)
@pytest.mark.parametrize("remembered", [None, "modern"])
async def test_a_server_that_dies_of_the_probe_is_told_apart_from_a_crash(
    discover: list[Answer], initialize: list[Answer], remembered: Era | None
) -> None:
    """It is started once more without the question; what killed it was ours."""
    with pytest.raises(DiedOfProbeError, match="exited with code 1"):
        await shake(server(discover, initialize), remembered=remembered)


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_a_server_that_dies_where_nothing_was_tried_out_has_crashed(
    protocol: Protocol,
) -> None:
    """The record says what to ask, so a second start would end alike."""
    with pytest.raises(ServerGoneError) as caught:
        await shake(server([Dies()], [Dies()]), protocol)
    assert not isinstance(caught.value, DiedOfProbeError)


async def test_a_remembered_old_server_that_dies_has_crashed() -> None:
    """It was not asked anything new."""
    with pytest.raises(ServerGoneError) as caught:
        await shake(server([MODERN], [Dies()]), remembered="legacy")
    assert not isinstance(caught.value, DiedOfProbeError)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (rpc_error(-32601), "-32601: no"),
        (rpc_error(-32022, {"supported": ["2025-06-18"]}), "-32022: no"),
        ({"ok": True}, "does not answer server/discover"),
    ],
    ids=str,
)
async def test_modern_alone_never_falls_back(answer: Answer, words: str) -> None:
    """The operator wants no other revision; the error says how to want less."""
    asked = server([answer], [LEGACY])
    with pytest.raises(ProtocolVersionError, match=words) as caught:
        await shake(asked, "modern")
    assert '"auto" would try the older ones' in str(caught.value)
    assert asked.methods() == ["server/discover"]


async def test_modern_alone_has_the_whole_limit() -> None:
    """A slow start is no proof of age."""
    assert (await shake(server([After(29.0, MODERN)]), "modern")).how == "configured"
    with pytest.raises(CallTimedOutError, match="connectionTimeoutMs"):
        await shake(server([Silent()]), "modern")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1999-01-01", "Server 'files' offers protocol 1999-01-01; supported: "),
        (None, "Server 'files' answers initialize without a protocolVersion"),
    ],
)
async def test_nothing_is_sent_after_an_answer_with_an_unknown_version(
    version: str | None, words: str
) -> None:
    """Nobody knows what the server would make of it."""
    asked = server(initialize=[{**LEGACY, "protocolVersion": version}])
    with pytest.raises(ProtocolVersionError, match=words) as caught:
        await shake(asked)
    assert asked.told == []
    assert asked.methods() == BOTH
    if version is not None:
        assert str(caught.value).endswith(", ".join(KNOWN_VERSIONS) + ".")


@pytest.mark.parametrize("protocol", ["auto", "modern"])
async def test_a_server_of_the_future_is_refused_with_the_known_versions(
    protocol: Protocol,
) -> None:
    """`initialize` would only hide the reason."""
    asked = server([{"supportedVersions": ["2031-01-01"]}])
    with pytest.raises(ProtocolVersionError, match=r"2031-01-01; supported: 2024-11-05, .*2026-07"):
        await shake(asked, protocol)
    assert asked.methods() == ["server/discover"]


@pytest.mark.parametrize(
    ("protocol", "error", "words"),
    [
        ("auto", rpc_error(-32600), "refuses initialize: no"),
        ("legacy", rpc_error(-32022, ALREADY_MODERN), "refuses initialize: no"),
        ("auto", rpc_error(-32022, {"supported": ["2031-01-01"]}), "2031-01-01; supported: "),
    ],
    ids=str,
)
async def test_a_server_that_refuses_initialize_is_given_up(
    protocol: Protocol, error: Answer, words: str
) -> None:
    """There is nothing left to ask, or the record forbids it."""
    asked = server([rpc_error(-32601), MODERN], [error])
    with pytest.raises(ProtocolVersionError, match=words):
        await shake(asked, protocol)
    assert asked.methods()[-1] == "initialize"
    assert asked.told == []


@pytest.mark.parametrize("remembered", [None, "legacy", "modern"])
@pytest.mark.parametrize("limit_s", [-1.0, 0.0, 1.0, 5.0, 30.0])
async def test_all_together_stays_within_one_deadline(
    remembered: Era | None, limit_s: float
) -> None:
    """Probe and fallback share the time; neither gets a negative rest."""
    asked = server([Silent()], [Silent()])
    before = anyio.current_time()
    with pytest.raises(CallTimedOutError):
        await shake(asked, remembered=remembered, limit_s=limit_s)
    assert anyio.current_time() - before == pytest.approx(max(0.0, limit_s))
    assert all(one.limit_s >= 0 for one in asked.asked)


async def test_the_second_question_for_the_newest_revision_is_within_the_deadline_too() -> None:
    """A server that contradicts itself cannot make the start last."""
    asked = server([Silent()], [rpc_error(-32022, ALREADY_MODERN)])
    before = anyio.current_time()
    with pytest.raises(CallTimedOutError):
        await shake(asked)
    assert anyio.current_time() - before == pytest.approx(LIMIT_S)
    assert asked.methods() == [*BOTH, "server/discover"]


async def test_the_envelope_is_the_callers_to_add_to() -> None:
    """A progress token of one call must not appear in the next."""
    own_envelope()["progressToken"] = 1
    assert "progressToken" not in own_envelope()
