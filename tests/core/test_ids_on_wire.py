"""Ids on the wire against a simple model: no answer lost, none crossed, every byte restored."""

import json
from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.core.envelope import read_envelope
from supervisor.core.errors import RefusedIdError
from supervisor.core.ids_on_wire import Delivery, Incoming, Late, Stray, Unaddressed, WireIds

TAG = "io.modelcontextprotocol/subscriptionId"

# Each with what it means: two spellings of one meaning are one id.
IDS = {
    b"0": 0,
    b"-0": 0,
    b"1": 1,
    b"2": 2,
    b'"1"': "1",
    b'"\\u0031"': "1",
    b'"a\\"b"': 'a"b',
    b'""': "",
    b"123456789012345678901234567890": 123456789012345678901234567890,
}
REQUESTS = (
    (
        b'{"jsonrpc":"2.0","id":<ID>,"method":"tools/call","params":{"_meta":{"progressToken":'
        b'<TOKEN>},"n":[1.10,1E2,1e400,NaN],"id":7,"x":"\\ud800","x":"again"},"vendor":{"id":[1]}}'
    ),
    (
        b'{ "method" : "subscriptions/listen", "params" : {"a":{"progressToken":5}, '
        b'"_meta":{"v":"}","progressToken":<TOKEN>}} , "jsonrpc" : "2.0" , "id" : <ID> } '
    ),
    b'{"jsonrpc":"2.0","id":<ID>,"method":"ping"}',
)
ANSWERS = (
    b'{"jsonrpc":"2.0","id":<ID>,"result":{"id":3,"n":-0.0,"s":"\\/"},"vendor":null}',
    b'{"error":{"code":-1,"message":"\xc3\xa9","data":[1.0]} , "jsonrpc":"2.0", "id" :<ID>}',
)
PROGRESS = (
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":'
    b'{"progress":1.50,"progressToken": <TOKEN> ,"id":1}}'
)
TAGGED = (
    b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a",'
    b'"_meta":{"io.modelcontextprotocol\\/subscriptionId":<ID>}}}'
)
CANCEL = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":<ID>,"reason":"x"}}'
)
ASK = b'{"jsonrpc":"2.0","id":<ID>,"method":"sampling/createMessage","params":{"id":<ID>0}}'


def fill(template: bytes, id_token: bytes = b"", token: bytes = b"") -> bytes:
    """Put an id and a progress token into a line."""
    return template.replace(b"<ID>", id_token, 1).replace(b"<TOKEN>", token).replace(b"<ID>", b"4")


@dataclass
class Request:
    """What the model knows of one request."""

    client: int
    id_token: bytes
    token: bytes | None
    wire: bytes
    method: str
    state: str = "open"


clients = st.integers(1, 2)
ids = st.sampled_from(sorted(IDS))


class Channel(RuleBasedStateMachine):
    """Three clients, one server, and everything that can happen between them."""

    def __init__(self) -> None:
        super().__init__()
        self.wire_ids = WireIds()
        self.requests: list[Request] = []
        self.asked: dict[bytes, tuple[int, bytes]] = {}
        self.late = self.duplicate = 0

    def out(self, client: int, line: bytes) -> bytes | None:
        """A client sends."""
        return self.wire_ids.outgoing(client, line, read_envelope(line))

    def back(self, line: bytes) -> Incoming:
        """The server sends."""
        return self.wire_ids.incoming(line, read_envelope(line))

    def open_of(self, client: int) -> list[Request]:
        """What one client waits for, oldest first."""
        return [one for one in self.requests if one.client == client and one.state == "open"]

    def find(self, client: int, id_token: bytes) -> Request | None:
        """The open request of that id."""
        same = [one for one in self.open_of(client) if IDS[one.id_token] == IDS[id_token]]
        return same[0] if same else None

    @initialize(client=clients, others=st.lists(ids, min_size=2, max_size=12))
    def clients_are_busy(self, client: int, others: list[bytes]) -> None:
        """There is something in flight for the rest to happen to."""
        for at, id_token in enumerate(others):
            self.a_client_asks(client + at % 2, id_token, REQUESTS[at % 3], id_token)

    @rule(client=clients, id_token=ids, template=st.sampled_from(REQUESTS), token=ids)
    def a_client_asks(self, client: int, id_token: bytes, template: bytes, token: bytes) -> None:
        """Refused if its id is in flight; else rewritten at two places and nowhere else."""
        line = fill(template, id_token, token)
        if self.find(client, id_token) is not None:
            with pytest.raises(RefusedIdError):
                self.out(client, line)
            return
        sent = self.out(client, line)
        assert sent is not None
        wire = read_envelope(sent).id_token
        assert wire is not None
        assert wire.isdigit()
        assert wire not in {one.wire for one in self.requests}
        assert sent == fill(template, wire, wire)
        method = read_envelope(line).method
        assert method is not None
        kept = token if b"<TOKEN>" in template else None
        self.requests.append(Request(client, id_token, kept, wire, method))

    @precondition(lambda self: self.requests)
    @rule(
        data=st.data(),
        template=st.sampled_from(ANSWERS),
        spelling=st.sampled_from([b"%b", b'"%b"', b"%b.0"]),
    )
    def the_server_answers(self, data: st.DataObject, template: bytes, spelling: bytes) -> None:
        """Once to whom it belongs, with the original id; later ones are counted."""
        one = data.draw(st.sampled_from(self.requests))
        got = self.back(fill(template, spelling % one.wire))
        if one.state == "open":
            assert got == Delivery(one.client, fill(template, one.id_token))
        elif one.state == "given up":
            assert got == Late("late")
            self.late += 1
        else:
            assert got == Late("duplicate")
            self.duplicate += 1
        one.state = "answered"

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def the_server_tells_progress(self, data: st.DataObject) -> None:
        """To the client that asked for it, under its own token."""
        one = data.draw(st.sampled_from(self.requests))
        got = self.back(fill(PROGRESS, token=one.wire))
        if one.state == "open" and one.token is not None:
            assert got == Delivery(one.client, fill(PROGRESS, token=one.token))
        else:
            assert got == Late("late")
            self.late += 1

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def the_server_sends_to_a_subscription(self, data: st.DataObject) -> None:
        """Tags are ids, with the slash escaped as some encoders do."""
        one = data.draw(st.sampled_from(self.requests))
        got = self.back(fill(TAGGED, one.wire))
        if one.state == "open":
            assert got == Delivery(one.client, fill(TAGGED, one.id_token))
        else:
            assert got == Late("late")
            self.late += 1

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def the_server_ends_a_subscription(self, data: st.DataObject) -> None:
        """By a cancellation; it may not end other requests that way."""
        one = data.draw(st.sampled_from(self.requests))
        if one.wire in self.asked:  # then it would take back its own request
            return
        got = self.back(fill(CANCEL, one.wire))
        if one.state == "open" and one.method == "subscriptions/listen":
            assert got == Delivery(one.client, fill(CANCEL, one.id_token))
            one.state = "given up"
        else:
            assert got == Late("late")
            self.late += 1

    @rule(client=clients, id_token=ids)
    def a_client_cancels(self, client: int, id_token: bytes) -> None:
        """What is not in flight is not passed on."""
        one = self.find(client, id_token)
        sent = self.out(client, fill(CANCEL, id_token))
        assert sent == (None if one is None else fill(CANCEL, one.wire))
        if one is not None:
            one.state = "given up"

    @rule(client=clients, id_token=ids)
    def time_is_over(self, client: int, id_token: bytes) -> None:
        """The daemon cancels on its own."""
        one = self.find(client, id_token)
        wire_id = self.wire_ids.give_up(client, id_token)
        assert wire_id == (None if one is None else one.wire)
        if one is not None:
            one.state = "given up"

    @rule(client=clients)
    def a_client_leaves(self, client: int) -> None:
        """Its requests are to be cancelled, those made of it to be refused."""
        forgotten = self.wire_ids.forget(client)
        assert forgotten.wire_tokens == tuple(one.wire for one in self.open_of(client))
        assert sorted(forgotten.server_ids) == sorted(
            token for token, (asked, _) in self.asked.items() if asked == client
        )
        self.asked = {token: of for token, of in self.asked.items() if of[0] != client}
        for one in self.open_of(client):
            one.state = "given up"

    @rule()
    def the_server_dies(self) -> None:
        """Everyone who waits is named, with the original id."""
        left = [one for one in self.requests if one.state == "open"]
        failed = [(one.client, one.id_token) for one in self.wire_ids.fail_all()]
        assert failed == [(one.client, one.id_token) for one in left]
        for one in left:
            one.state = "given up"
        self.asked = {}

    @rule(client=clients, server_id=st.sampled_from([b"1", b"2", b'"1"', b'"s"']))
    def the_server_asks(self, client: int, server_id: bytes) -> None:
        """Under a fresh id."""
        line = fill(ASK, server_id)
        assert self.back(line) == Unaddressed()
        if server_id in self.asked:
            with pytest.raises(RefusedIdError):
                self.wire_ids.server_request(line, read_envelope(line), client)
            return
        sent = self.wire_ids.server_request(line, read_envelope(line), client)
        fresh = read_envelope(sent).id_token
        assert fresh is not None
        assert fresh not in {token for _, token in self.asked.values()}
        assert sent == fill(ASK, fresh)
        self.asked[server_id] = (client, fresh)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), client=clients, template=st.sampled_from(ANSWERS))
    def a_client_replies(self, data: st.DataObject, client: int, template: bytes) -> None:
        """Only the one that was asked, and once."""
        server_id = data.draw(st.sampled_from(sorted(self.asked)))
        owner, fresh = self.asked[server_id]
        sent = self.out(client, fill(template, fresh))
        if client != owner:
            assert sent is None
            return
        assert sent == fill(template, server_id)
        del self.asked[server_id]
        assert self.out(client, fill(template, fresh)) is None

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def the_server_takes_back_what_it_asked(self, data: st.DataObject) -> None:
        """The client knows the request by its fresh id."""
        server_id = data.draw(st.sampled_from(sorted(self.asked)))
        owner, fresh = self.asked.pop(server_id)
        assert self.back(fill(CANCEL, server_id)) == Delivery(owner, fill(CANCEL, fresh))

    @rule(token=st.sampled_from([b"0", b"-1", b"999999", b'"x"', b"null", b"1.5"]))
    def the_server_answers_what_nobody_asked(self, token: bytes) -> None:
        """It reaches nobody."""
        assert self.back(fill(ANSWERS[0], token)) == Stray()
        assert self.back(fill(PROGRESS, token=token)) == Stray()

    @invariant()
    def the_table_holds_what_is_open(self) -> None:
        """Nothing is lost, nothing is left."""
        open_ones = [one for one in self.requests if one.state == "open"]
        assert [
            (one.wire_token, one.client, one.id_token, one.progress_token, one.method)
            for one in self.wire_ids.in_flight()
        ] == [(one.wire, one.client, one.id_token, one.token, one.method) for one in open_ones]
        for client in (1, 2, 3):
            assert len(self.wire_ids.in_flight(client)) == len(self.open_of(client))
        assert (self.wire_ids.late, self.wire_ids.duplicate) == (self.late, self.duplicate)


Channel.TestCase.settings = settings(max_examples=100, stateful_step_count=60)
TestChannel = Channel.TestCase


def send(wire_ids: WireIds, client: int, line: bytes) -> bytes | None:
    """Send a client's line."""
    return wire_ids.outgoing(client, line, read_envelope(line))


@pytest.mark.parametrize("token", [b"null", b"1.0", b"true", b"{}"])
def test_a_request_with_a_bad_id_is_refused_by_name(token: bytes) -> None:
    """Taken for a notification, it would never be answered."""
    with pytest.raises(RefusedIdError, match="string or an integer") as refused:
        send(WireIds(), 1, fill(REQUESTS[2], token))

    assert refused.value.id_token == token
    assert refused.value.reason == "not_an_id"


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"id":2,"x":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"\\u0069d":2,"x":{}}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}',
        b'{"id":2,"params":{},"jsonrpc":"2.0","method":"m","id":1}',
    ],
)
def test_a_request_with_two_ids_is_refused(line: bytes) -> None:
    """A server that takes the other one would answer with somebody else's id on the wire."""
    with pytest.raises(RefusedIdError, match="more than one id"):
        send(WireIds(), 1, line)


def test_a_request_that_breaks_off_inside_is_refused_where_it_may_hide_an_id() -> None:
    """Its parts cannot be told apart."""
    with pytest.raises(RefusedIdError, match="no valid JSON"):
        send(WireIds(), 1, b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"},"id":2}}')


@pytest.mark.parametrize(("first", "second"), [(b"0", b"-0"), (b"1", b"1"), (b'"1"', b'"\\u0031"')])
def test_an_id_in_flight_is_not_taken_twice_by_one_client(first: bytes, second: bytes) -> None:
    """Whatever its spelling: the client itself could not tell the answers apart."""
    wire_ids = WireIds()
    send(wire_ids, 1, fill(REQUESTS[2], first))

    with pytest.raises(RefusedIdError, match="still in flight"):
        send(wire_ids, 1, fill(REQUESTS[2], second))

    assert send(wire_ids, 2, fill(REQUESTS[2], second)) is not None
    answer = fill(ANSWERS[0], b"1")
    wire_ids.incoming(answer, read_envelope(answer))
    assert send(wire_ids, 1, fill(REQUESTS[2], second)) is not None


def test_the_last_answer_of_a_subscription_has_its_tag_restored() -> None:
    """The client knows its subscription by the id that it chose."""
    wire_ids = WireIds()
    send(wire_ids, 1, b'{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen"}')
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"_meta":{"%b":1}}}' % TAG.encode()

    got = wire_ids.incoming(answer, read_envelope(answer))

    assert isinstance(got, Delivery)
    assert json.loads(got.line)["id"] == "sub"
    assert json.loads(got.line)["result"]["_meta"][TAG] == "sub"


def test_what_is_for_nobody_in_particular_passes_unchanged() -> None:
    """List changes go to everyone, a client's own progress reports to the server."""
    wire_ids = WireIds()
    changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    progress = fill(PROGRESS, token=b"5")

    assert wire_ids.incoming(changed, read_envelope(changed)) == Unaddressed()
    assert wire_ids.incoming(b"banner", read_envelope(b"banner")) == Stray()
    assert send(wire_ids, 1, progress) == progress
    assert send(wire_ids, 1, b"banner") is None


def test_requests_that_are_never_answered_do_not_fill_the_memory() -> None:
    """A server may rightly not answer what was cancelled."""
    wire_ids = WireIds()

    for _ in range(10_000):
        send(wire_ids, 1, fill(REQUESTS[2], b"1"))
        send(wire_ids, 1, fill(CANCEL, b"1"))

    assert len(wire_ids._given_up) == 4096
    assert wire_ids.in_flight() == ()
