"""A real channel with a real server against a simple model: no answer lost, none crossed.

Clients ask with ids of every JSON type, cancel, leave; the server answers when the test says so,
twice, too late, and dies in between. What a client must get follows from the order in which all
this was said, since the server obeys in the order of its stdin.
"""

import re
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import anyio
import hypothesis.strategies as st
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, Phase, given, settings

from supervisor.core.call_errors import ServerGoneError
from transport.lone_server import Listener, LoneServer, lone_server

IDS: Final = {
    b"0": 0,
    b"-1": -1,
    b"1": 1,
    b'"1"': "1",
    b'"\\u0031"': "1",
    b'""': "",
    b'"a\\"b]}"': 'a"b]}',
    b"123456789012345678901234567890": 123456789012345678901234567890,
}
"""Ids as a client spells them, and what they mean."""

CLIENTS: Final = 3
EXAMPLES: Final = 60

ANSWER: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":(.*),"result":\{"tag":([0-9]+)\}\}')
PROGRESS: Final = re.compile(
    rb'\{"jsonrpc":"2\.0","method":"notifications/progress",'
    rb'"params":\{"progressToken":(.*),"progress":1,"tag":([0-9]+)\}\}'
)
REFUSAL: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":(.*),"error":\{"code":-32600,.*')

HAPPENINGS: Final = (
    *("ask",) * 8,
    *("answer",) * 6,
    *("progress",) * 3,
    *("cancel", "leave", "turn", "sync") * 1,
    "die",
)
"""Each as often as it is to happen."""

STEPS: Final = 30
"""Of a story, at least; twice as many at most."""

ids = st.sampled_from(sorted(IDS))


@dataclass(frozen=True)
class Step:
    """One happening; it uses of the rest what it needs.

    Attributes:
        what: see `HAPPENINGS`.
        who: which client.
        id_token: of its request.
        progress_token: likewise.
        which: of the youngest requests, the youngest being 0.
    """

    what: str
    who: int
    id_token: bytes
    progress_token: bytes | None
    which: int


steps = st.builds(
    Step,
    what=st.sampled_from(HAPPENINGS),
    who=st.integers(0, CLIENTS - 1),
    id_token=ids,
    progress_token=st.none() | ids,
    which=st.integers(0, 5),
)


class Client(Listener):
    """One client; hashable, as clients are told apart by who they are."""

    __hash__ = object.__hash__


@dataclass
class Request:
    """What the model knows of one request.

    Attributes:
        state: `open`; `told` when the server was told to answer; `seen` when its answer may have
            come meanwhile; `over`.
        answers: how many answers it may get, from and to.
        progress: likewise.
    """

    tag: int
    client: Client
    id_token: bytes
    progress_token: bytes | None
    state: str = "open"
    answers: tuple[int, int] = (0, 0)
    progress: tuple[int, int] = (0, 0)
    told_progress: int = 0

    def no_longer_wanted(self) -> None:
        """Its client has cancelled it, or has left."""
        if self.state != "over":
            self.answers = (0, 1 if self.state == "seen" else 0)
            self.state = "over"


@dataclass
class Model:
    """All clients, all requests, and the server of the moment."""

    stack: AsyncExitStack
    clients: list[Client] = field(default_factory=lambda: [Client() for _ in range(CLIENTS)])
    requests: list[Request] = field(default_factory=list[Request])
    failures: Counter[tuple[int, bytes]] = field(default_factory=Counter[tuple[int, bytes]])
    refused: Counter[tuple[int, bytes]] = field(default_factory=Counter[tuple[int, bytes]])
    left: list[Client] = field(default_factory=list[Client])
    syncs: int = 0
    first_tag: int = 0
    """The first request of this server: of those before it knows nothing."""

    async def start_server(self) -> None:
        """Start a process, and attach everybody to it."""
        await self.stack.aclose()  # the one before it
        self.server: LoneServer = await self.stack.enter_async_context(lone_server("obedient.py"))
        self.director = Listener()
        self.numbers = {client: self.server.channel.attach(client) for client in self.clients}
        self.directing = self.server.channel.attach(self.director)

    def in_flight(self, client: Client, id_token: bytes) -> Request | None:
        """The request of that client whose id means the same, if any may be in flight."""
        for one in self.requests:
            same = one.client is client and IDS[one.id_token] == IDS[id_token]
            if same and one.state != "over":
                return one
        return None

    def order(self, what: str, tag: int = -1) -> None:
        """Tell the server to do something."""
        params = b'{"do":"%b","tag":%d}' % (what.encode(), tag)
        line = b'{"jsonrpc":"2.0","method":"notifications/do","params":%b}' % params
        self.server.channel.send(self.directing, [line])

    # What can happen

    async def take(self, step: Step) -> None:
        """Let one thing happen."""
        match step.what:
            case "ask":
                self.ask(step.who, step.id_token, step.progress_token)
            case "answer":
                self.answer(step.which)
            case "progress":
                self.progress(step.which)
            case "cancel":
                self.cancel(step.who, step.id_token)
            case "leave":
                self.leave(step.who)
            case "turn":
                await self.turn()
            case "sync":
                await self.sync()
            case _:
                await self.die()
                await self.start_server()

    def ask(self, at: int, id_token: bytes, progress_token: bytes | None) -> None:
        """A client asks; at once refused if it waits for that id already."""
        client, tag = self.clients[at], len(self.requests)
        meta = b"" if progress_token is None else b',"_meta":{"progressToken":%b}' % progress_token
        params = b'{"tag":%d%b}' % (tag, meta)
        before = len(client.lines)
        self.server.channel.send(
            self.numbers[client],
            [b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":%b}' % (id_token, params)],
        )
        earlier = self.in_flight(client, id_token)
        came = client.lines[before:]
        if earlier is not None and (earlier.state != "seen" or came):
            (line,) = came
            refusal = REFUSAL.fullmatch(line)
            assert refusal is not None
            assert refusal[1] == id_token
            self.refused[id(client), id_token] += 1
            return
        assert came == []
        if earlier is not None:  # then its answer had come
            earlier.answers, earlier.state = (1, 1), "over"
            earlier.progress = (earlier.told_progress, earlier.told_progress)
        self.requests.append(Request(tag, client, id_token, progress_token))

    def youngest(self, at: int) -> Request | None:
        """One of the last requests, whatever has become of it; None of another server's."""
        known = [one for one in self.requests if one.tag >= self.first_tag]
        return known[-1 - at % len(known)] if known else None

    def answer(self, at: int) -> None:
        """The server answers one request, perhaps not for the first time."""
        one = self.youngest(at)
        if one is not None:
            self.order("answer", one.tag)
            if one.state == "open":
                one.state = "told"

    def progress(self, at: int) -> None:
        """The server tells of progress, perhaps of what is over."""
        one = self.youngest(at)
        if one is not None:
            self.order("progress", one.tag)
            if one.state == "open" and one.progress_token is not None:
                one.told_progress += 1

    def cancel(self, at: int, id_token: bytes) -> None:
        """A client gives up."""
        client = self.clients[at]
        self.server.channel.send(
            self.numbers[client],
            [
                b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%b}}'
                % id_token
            ],
        )
        one = self.in_flight(client, id_token)
        if one is not None:
            one.no_longer_wanted()

    def leave(self, at: int) -> None:
        """A client goes, and another one comes."""
        client, fresh = self.clients[at], Client()
        self.server.channel.detach(self.numbers.pop(client))
        for one in self.requests:
            if one.client is client:
                one.no_longer_wanted()
        self.left.append(client)
        self.clients[at] = fresh
        self.numbers[fresh] = self.server.channel.attach(fresh)

    async def turn(self) -> None:
        """What has come is heard, or not yet: nobody knows."""
        for _ in range(20):
            await checkpoint()
        for one in self.requests:
            if one.state == "told":
                one.state = "seen"

    async def sync(self) -> None:
        """Wait until all that was said before has been heard."""
        self.syncs += 1
        line = b'{"jsonrpc":"2.0","id":%d,"method":"sync"}' % self.syncs
        self.server.channel.send(self.directing, [line])
        await self.director.wait_for(lambda: self.director.lines[-1:] != [])
        self.director.lines.clear()
        self.settle()

    def settle(self) -> None:
        """All that the server was told has been done, and heard."""
        for one in self.requests:
            if one.state in {"told", "seen"}:
                one.answers, one.state = (1, 1), "over"
                one.progress = (one.told_progress, one.told_progress)

    async def die(self) -> None:
        """The server ends: what it had said before is heard, what it has not answered fails."""
        self.order("die")
        await self.server.wait_ended()
        self.settle()
        failed = Counter[Client]()
        for one in self.requests:
            if one.state == "open":
                self.failures[id(one.client), one.id_token] += 1
                failed[one.client] += 1
                one.state = "over"
                one.progress = (one.told_progress, one.told_progress)
        for client in self.clients:
            error, count = client.ends[-1]
            assert count == failed[client]
            assert error.why == "exited with code 7"
            assert error.last_stderr == ("told to die",)
        assert self.server.channel.ids.in_flight() == ()
        assert self.server.channel.end_reason() == "crash"
        self.first_tag = len(self.requests)

    # What must have come of it

    def judge(self) -> None:
        """Compare what every client has got with what it had to get."""
        answers, told = Counter[int](), Counter[int]()
        for client in [*self.clients, *self.left]:
            refused = Counter[tuple[int, bytes]]()
            for line in client.lines:
                if answer := ANSWER.fullmatch(line):
                    one = self.requests[int(answer[2])]
                    assert (one.client, one.id_token) == (client, answer[1])
                    answers[one.tag] += 1
                elif progress := PROGRESS.fullmatch(line):
                    one = self.requests[int(progress[2])]
                    assert (one.client, one.progress_token) == (client, progress[1])
                    assert answers[one.tag] == 0
                    told[one.tag] += 1
                else:
                    refusal = REFUSAL.fullmatch(line)
                    assert refusal is not None, line
                    refused[id(client), refusal[1]] += 1
            assert refused == Counter(
                {key: n for key, n in self.refused.items() if key[0] == id(client)}
            )
            failed = Counter((id(client), token) for token, _ in client.failed)
            assert all(isinstance(error, ServerGoneError) for _, error in client.failed)
            assert failed == Counter(
                {key: n for key, n in self.failures.items() if key[0] == id(client)}
            )
        for one in self.requests:
            assert one.answers[0] <= answers[one.tag] <= one.answers[1], one
            assert one.progress[0] <= told[one.tag] <= one.told_progress, one


async def play(story: list[Step]) -> None:
    """Let it all happen, and end with a death, so that nothing stays open."""
    async with AsyncExitStack() as stack:
        model = Model(stack)
        await model.start_server()
        for step in story:
            await model.take(step)
        await model.die()
        model.judge()


@settings(
    max_examples=EXAMPLES,
    # a story that goes wrong may end at a time limit: to shrink it would take minutes
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(story=st.lists(steps, min_size=STEPS, max_size=2 * STEPS))
def test_every_request_gets_its_own_answer_or_an_error(story: list[Step]) -> None:
    """Whatever the order of questions, answers, cancellations, departures and deaths."""
    anyio.run(play, story)
