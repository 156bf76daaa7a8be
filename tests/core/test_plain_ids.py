"""Ids of a private channel against a simple model: nothing is rewritten, nothing is lost."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from supervisor.core.envelope import read_envelope
from supervisor.core.errors import RefusedIdError
from supervisor.core.ids_on_wire import Delivery, Incoming, Late, Stray, Unaddressed
from supervisor.core.plain_ids import PlainIds

CLIENT = 1

# Each with what it means: two spellings of one meaning are one id.
IDS = {
    b"0": 0,
    b"-0": 0,
    b"7": 7,
    b'"7"': "7",
    b'"\\u0037"': "7",
    b'""': "",
    b'"a\\"b"': 'a"b',
    b"123456789012345678901234567890": 123456789012345678901234567890,
}
ids = st.sampled_from(sorted(IDS))

REQUEST = b'{"jsonrpc":"2.0","id":<ID>,"method":"ping","params":{"id":[1.10,1E2]}}'
ANSWERS = (
    b'{"jsonrpc":"2.0","id":<ID>,"result":{"id":3,"n":-0.0}}',
    b'{ "error" : {"code":-1,"message":"\xc3\xa9"} , "jsonrpc":"2.0", "id" : <ID> }',
)
CANCEL = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":<ID>}}'


def fill(template: bytes, id_token: bytes) -> bytes:
    """Put an id into a line."""
    return template.replace(b"<ID>", id_token)


class Channel(RuleBasedStateMachine):
    """One client, one server, and everything that can happen between them."""

    def __init__(self) -> None:
        super().__init__()
        self.plain_ids = PlainIds(CLIENT)
        self.open: dict[object, bytes] = {}
        self.over: dict[object, str] = {}
        self.late = self.duplicate = 0

    def out(self, line: bytes) -> bytes | None:
        """The client sends."""
        return self.plain_ids.outgoing(CLIENT, line, read_envelope(line))

    def back(self, line: bytes) -> Incoming:
        """The server sends."""
        return self.plain_ids.incoming(line, read_envelope(line))

    @rule(id_token=ids)
    def the_client_asks(self, id_token: bytes) -> None:
        """Refused if its id is in flight, else passed as it is."""
        line, meant = fill(REQUEST, id_token), IDS[id_token]
        if meant in self.open:
            with pytest.raises(RefusedIdError):
                self.out(line)
            return
        assert self.out(line) == line
        self.open[meant] = id_token
        if self.over.get(meant) == "given up":
            del self.over[meant]

    @rule(id_token=ids, template=st.sampled_from(ANSWERS))
    def the_server_answers(self, id_token: bytes, template: bytes) -> None:
        """Delivered once, with the id as it was asked; later ones are counted."""
        line, meant = fill(template, id_token), IDS[id_token]
        exact = meant in self.open or self.over.get(meant) == "given up"
        if not exact and self.twin_is_known(meant):
            return  # some servers change the type: it may be the twin's, see below
        got = self.back(line)
        if meant in self.open:
            assert got == Delivery(CLIENT, line)
            del self.open[meant]
            self.over[meant] = "answered"
        elif meant not in self.over:
            assert got == Stray()
        elif self.over[meant] == "given up":
            assert got == Late("late")
            self.late += 1
            self.over[meant] = "answered"
        else:
            assert got == Late("duplicate")
            self.duplicate += 1

    def twin_is_known(self, meant: object) -> bool:
        """Whether the same number was asked as another JSON type."""
        twin = {7: "7", "7": 7, 0: "0"}.get(meant)
        return twin in self.open or twin in self.over

    @rule(id_token=ids)
    def the_client_cancels(self, id_token: bytes) -> None:
        """Passed on where it means something."""
        line, meant = fill(CANCEL, id_token), IDS[id_token]
        assert self.out(line) == (line if meant in self.open else None)
        if self.open.pop(meant, None) is not None:
            self.over[meant] = "given up"

    @rule(id_token=ids)
    def time_is_over(self, id_token: bytes) -> None:
        """The daemon cancels, with the id as the server knows it."""
        meant = IDS[id_token]
        asked = self.open.pop(meant, None)
        assert self.plain_ids.give_up(CLIENT, id_token) == asked
        if asked is not None:
            self.over[meant] = "given up"

    @rule()
    def the_server_dies(self) -> None:
        """Everything that waits is named."""
        failed = [request.id_token for request in self.plain_ids.fail_all()]
        assert failed == list(self.open.values())
        self.over |= dict.fromkeys(self.open, "given up")
        self.open.clear()

    @invariant()
    def the_table_holds_what_is_open(self) -> None:
        """Nothing is lost, nothing is left."""
        in_flight = self.plain_ids.in_flight()
        assert [request.id_token for request in in_flight] == list(self.open.values())
        assert self.plain_ids.count == len(self.open)
        assert (self.plain_ids.late, self.plain_ids.duplicate) == (self.late, self.duplicate)


Channel.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestChannel = Channel.TestCase


@pytest.mark.parametrize(
    ("asked", "answered"),
    [(b"5", b'"5"'), (b"5", b"5.0"), (b'"5"', b"5"), (b"-3", b'"-3"'), (b'"\\u0035"', b"5")],
)
def test_an_id_that_comes_back_as_another_type_is_restored(asked: bytes, answered: bytes) -> None:
    """Some servers keep all numbers as floating point, or all ids as text; clients compare."""
    plain_ids = PlainIds(CLIENT)
    line = fill(REQUEST, asked)
    plain_ids.outgoing(CLIENT, line, read_envelope(line))
    answer = fill(ANSWERS[0], answered)
    got = plain_ids.incoming(answer, read_envelope(answer))
    assert got == Delivery(CLIENT, fill(ANSWERS[0], asked))


def test_a_late_answer_does_not_reach_the_twin_of_its_request() -> None:
    """The same number as text is another id, although some servers mix the two."""
    plain_ids = PlainIds(CLIENT)
    for token in (b"7", b'"7"'):
        line = fill(REQUEST, token)
        plain_ids.outgoing(CLIENT, line, read_envelope(line))
    plain_ids.give_up(CLIENT, b'"7"')
    answer = fill(ANSWERS[0], b'"7"')
    assert plain_ids.incoming(answer, read_envelope(answer)) == Late("late")
    assert [request.id_token for request in plain_ids.in_flight()] == [b"7"]


@pytest.mark.parametrize("token", [b"null", b"1.5", b"true", b"{}"])
def test_a_request_with_a_bad_id_is_refused_by_name(token: bytes) -> None:
    """Taken for a notification, it would never be answered."""
    line = fill(REQUEST, token)
    with pytest.raises(RefusedIdError, match="string or an integer") as refused:
        PlainIds(CLIENT).outgoing(CLIENT, line, read_envelope(line))
    assert refused.value.id_token == token


def test_questions_and_notifications_of_the_server_are_for_the_only_client() -> None:
    """With the server's own ids: nobody else could use them."""
    plain_ids = PlainIds(CLIENT)
    for line in (REQUEST, b'{"jsonrpc":"2.0","method":"notifications/message"}'):
        filled = fill(line, b'"of the server"')
        assert plain_ids.incoming(filled, read_envelope(filled)) == Unaddressed()
    asked = fill(REQUEST, b'"of the server"')
    assert plain_ids.server_request(asked, read_envelope(asked), CLIENT) == asked
