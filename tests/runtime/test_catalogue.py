"""Listings: lazy, shared by those who ask at once, kept until a change, never kept when failed."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic import JsonValue
from trio.testing import MockClock

from supervisor.core.call_errors import BadAnswerError, CallError, CallTimedOutError, RpcError
from supervisor.core.listing import Listing, ListingKind
from supervisor.core.negotiation import Era, Handshake
from supervisor.runtime.catalogue import Catalogue
from supervisor.transport.handshake import own_envelope
from transport.scripted import SERVER, After, Answer, ScriptedServer, Silent, rpc_error

pytestmark = pytest.mark.anyio

LIMIT_S = 10.0
CHANGED = "notifications/tools/list_changed"
KINDS: tuple[ListingKind, ...] = ("tools", "prompts", "resources", "resource_templates")


@pytest.fixture
def anyio_backend() -> object:
    """Trio with a clock that jumps to whatever is due next."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def page(*names: str, then: JsonValue = None) -> dict[str, JsonValue]:
    """One page of tools."""
    tools: list[JsonValue] = [{"name": name, "inputSchema": {}} for name in names]
    return {"tools": tools} if then is None else {"tools": tools, "nextCursor": then}


def catalogue_of(
    server: ScriptedServer,
    *,
    era: Era = "legacy",
    capabilities: tuple[str, ...] = ("tools", "prompts", "resources"),
) -> Catalogue:
    """The catalogue of a server that declared these capabilities."""
    handshake = Handshake(
        era=era,
        protocol_version="2026-07-28" if era == "modern" else "2025-06-18",
        server_info={},
        capabilities={name: {} for name in capabilities},
        instructions=None,
        how="probed",
    )
    return Catalogue(server, SERVER, handshake)


def tools(*answers: Answer) -> ScriptedServer:
    """A server that answers `tools/list` so, in order."""
    return ScriptedServer(tools__list=list(answers))


def names(listing: Listing) -> list[JsonValue]:
    """The names in it."""
    return [item["name"] for item in listing.items]


async def list_tools(catalogue: Catalogue, limit_s: float = LIMIT_S) -> Listing:
    """What everybody does."""
    return await catalogue.listing("tools", limit_s=limit_s)


async def settle() -> None:
    """Let every task come as far as it can without time going by."""
    for _ in range(10):
        await checkpoint()


async def test_nothing_is_asked_before_somebody_wants_it_and_then_once() -> None:
    """A server is listed by its first use."""
    server = tools(page("a", "b"))
    catalogue = catalogue_of(server)
    assert server.asked == []
    first = await list_tools(catalogue)
    assert names(first) == ["a", "b"]
    assert await list_tools(catalogue) is first
    assert server.methods() == ["tools/list"]


async def test_all_pages_are_fetched_with_the_servers_own_cursors() -> None:
    """The first request carries none."""
    server = tools(page("a", then="x"), page("b", then="y"), page("c"))
    assert names(await list_tools(catalogue_of(server))) == ["a", "b", "c"]
    assert [one.params for one in server.asked] == [{}, {"cursor": "x"}, {"cursor": "y"}]


async def test_a_new_server_gets_the_envelope_with_every_page() -> None:
    """It refuses a request without one."""
    server = tools(page("a", then="x"), page("b"))
    await list_tools(catalogue_of(server, era="modern"))
    meta = own_envelope()
    assert [one.params for one in server.asked] == [{"_meta": meta}, {"cursor": "x", "_meta": meta}]


async def test_each_kind_has_its_method_and_its_shelf() -> None:
    """A change of one does not touch the others."""
    server = ScriptedServer(
        tools__list=[page("t")],
        prompts__list=[{"prompts": [{"name": "p"}]}],
        resources__list=[{"resources": [{"uri": "r:1"}]}],
        resources__templates__list=[{"resourceTemplates": [{"uriTemplate": "r:{n}"}]}],
    )
    catalogue = catalogue_of(server)
    for _ in range(2):
        counts = [len((await catalogue.listing(kind, limit_s=1)).items) for kind in KINDS]
        assert counts == [1, 1, 1, 1]
    assert len(server.asked) == 4
    assert catalogue.changed("notifications/resources/list_changed") == (
        "resources",
        "resource_templates",
    )
    assert catalogue.changed("notifications/prompts/list_changed") == ("prompts",)
    assert catalogue.changed("notifications/message") == ()
    for kind in KINDS:
        await catalogue.listing(kind, limit_s=1)
    assert sorted(server.methods()[4:]) == [
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ]


async def test_what_a_server_did_not_declare_is_not_asked_for() -> None:
    """Some servers never answer what they do not know."""
    server = ScriptedServer(tools__list=[Silent()], prompts__list=[Silent()])
    catalogue = catalogue_of(server, capabilities=())
    for kind in KINDS:
        assert await catalogue.listing(kind, limit_s=LIMIT_S) == Listing()
    assert server.asked == []


async def test_a_server_that_does_not_know_the_method_has_none() -> None:
    """It may have resources or prompts all the same."""
    assert await list_tools(catalogue_of(tools(rpc_error(-32601)))) == Listing()


async def test_a_method_that_is_forgotten_between_two_pages_is_an_error() -> None:
    """The first page would be thrown away, and the rest of nothing kept as good."""
    server = tools(page("a", then="x"), rpc_error(-32601), page("a"))
    catalogue = catalogue_of(server)
    with pytest.raises(RpcError):
        await list_tools(catalogue)
    assert names(await list_tools(catalogue)) == ["a"]


@pytest.mark.parametrize(
    "answers",
    [
        [rpc_error(-32603)],
        [page("a", then="x"), rpc_error(-32603)],
        [{"tools": "none"}],
        [page("a", then="x"), page("b", then="x")],
    ],
)
async def test_a_listing_that_failed_is_not_kept(answers: list[Answer]) -> None:
    """Not even its good pages; the next one who asks asks anew."""
    server = tools(*answers, page("good"))
    catalogue = catalogue_of(server)
    with pytest.raises(CallError):
        await list_tools(catalogue)
    assert names(await list_tools(catalogue)) == ["good"]


async def test_a_listing_in_circles_is_the_servers_fault_by_name() -> None:
    """The error says what to look for."""
    with pytest.raises(BadAnswerError, match="'files' answered tools/list wrongly: it repeats a"):
        await list_tools(catalogue_of(tools(page(then="x"))))


async def test_a_failed_listing_after_a_change_does_not_bring_the_old_one_back() -> None:
    """What the server has taken back is not offered."""
    server = tools(page("old"), rpc_error(-32603))
    catalogue = catalogue_of(server)
    await list_tools(catalogue)
    catalogue.changed(CHANGED)
    for _ in range(2):
        with pytest.raises(RpcError):
            await list_tools(catalogue)


async def test_all_pages_share_one_limit_and_the_error_names_it() -> None:
    """Not each page its own, and not what was left for the last one."""
    server = tools(*[After(4.0, page(then=str(number))) for number in range(100)])
    before = anyio.current_time()
    with pytest.raises(CallTimedOutError, match=r"within 10 s; requestTimeoutMs"):
        await list_tools(catalogue_of(server))
    assert anyio.current_time() - before == pytest.approx(LIMIT_S)


async def test_a_list_that_changes_and_changes_is_within_the_limit_too() -> None:
    """Listing again is no new beginning."""
    server = tools(After(6.0, page("a")))
    catalogue = catalogue_of(server)
    before = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(after, 1.0, catalogue)
        with pytest.raises(CallTimedOutError):
            await list_tools(catalogue)
    assert anyio.current_time() - before == pytest.approx(LIMIT_S)


async def after(seconds: float, catalogue: Catalogue, notes: int = 1) -> None:
    """Announce changes in a while."""
    await anyio.sleep(seconds)
    for _ in range(notes):
        catalogue.changed(CHANGED)


async def test_a_change_drops_the_list_and_nobody_is_asked_before_it_is_wanted() -> None:
    """Fifty announcements in a burst cost one listing."""
    server = tools(page("a"), page("a", "b"))
    catalogue = catalogue_of(server)
    await list_tools(catalogue)
    for _ in range(50):
        assert catalogue.changed(CHANGED) == ("tools",)
    await settle()
    assert len(server.asked) == 1
    assert names(await list_tools(catalogue)) == ["a", "b"]
    assert len(server.asked) == 2


async def test_changes_during_a_listing_make_it_be_listed_once_more() -> None:
    """However many came; the answer is from after the last of them."""
    server = tools(After(1.0, page("a")), After(1.0, page("a", "b")))
    catalogue = catalogue_of(server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(after, 0.5, catalogue, 50)
        assert names(await list_tools(catalogue)) == ["a", "b"]
    assert len(server.asked) == 2
    await list_tools(catalogue)
    assert len(server.asked) == 2


async def test_a_list_that_never_rests_is_served_and_not_kept() -> None:
    """Three listings are enough for one question."""
    server = tools(After(1.0, page("a")))
    catalogue = catalogue_of(server)

    async def announce() -> None:
        for _ in range(3):
            await after(0.9, catalogue)
            await anyio.sleep(0.1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(announce)
        assert names(await list_tools(catalogue)) == ["a"]
    assert len(server.asked) == 3
    await list_tools(catalogue)
    assert len(server.asked) == 4


class Askers:
    """Several who want the tools at the same time."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.got: list[Listing | CallError] = []

    async def ask(self, limit_s: float = LIMIT_S) -> None:
        """One of them."""
        try:
            self.got.append(await list_tools(self.catalogue, limit_s))
        except CallError as error:
            self.got.append(error)


async def test_those_who_ask_at_once_share_one_listing() -> None:
    """A burst of sessions is no burst of requests."""
    server = tools(After(1.0, page("a")))
    askers = Askers(catalogue_of(server))
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(askers.ask)
    assert len(askers.got) == 5
    assert all(got is askers.got[0] for got in askers.got)
    assert len(server.asked) == 1


async def test_those_who_ask_at_once_share_its_failure_too() -> None:
    """One behind the other, the fifth would wait for five time limits."""
    server = tools(Silent())
    askers = Askers(catalogue_of(server))
    before = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(askers.ask)
    assert anyio.current_time() - before == pytest.approx(LIMIT_S)
    assert [type(got) for got in askers.got] == [CallTimedOutError] * 5
    assert len(server.asked) == 1


async def test_who_joins_waits_no_longer_than_his_own_limit() -> None:
    """And leaves the listing to the others."""
    server = tools(After(5.0, page("a")))
    askers = Askers(catalogue_of(server))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(askers.ask)
        await settle()
        before = anyio.current_time()
        await askers.ask(limit_s=2.0)
        assert anyio.current_time() - before == pytest.approx(2.0)
    assert [type(got) for got in askers.got] == [CallTimedOutError, Listing]
    assert "within 2 s" in str(askers.got[0])
    assert server.cancelled == []


async def test_when_the_first_one_gives_up_the_next_one_asks() -> None:
    """A client that leaves does not fail the others."""
    server = tools(After(5.0, page("gone")), page("a"))
    askers = Askers(catalogue_of(server))
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as first:
                first.start_soon(askers.ask)
                await settle()
                for _ in range(3):
                    tasks.start_soon(askers.ask)
                await settle()
                scope.cancel()
    assert server.cancelled == ["tools/list"]
    assert [names(got) for got in askers.got if isinstance(got, Listing)] == [["a"]] * 3
    assert len(server.asked) == 2


async def test_a_bad_tool_is_told_each_time_the_list_is_served() -> None:
    """The diagnostics belong to the listing that is kept."""
    answer: dict[str, JsonValue] = {"tools": [{"name": "bare"}, {"name": "a", "inputSchema": {}}]}
    catalogue = catalogue_of(tools(answer))
    for _ in range(2):
        listing = await list_tools(catalogue)
        assert names(listing) == ["a"]
        assert listing.diagnostics == (
            "Server 'files': tool 'bare' is left out: it has no inputSchema.",
        )
