"""Who is told what: resources that are watched by some, lists that all see, log levels."""

import json

import pytest

from supervisor.transport.subscribers import Subscribers

UPDATED = "notifications/resources/updated"
EVERYBODY = (1, 2, 3)


def line(method: str, **params: str) -> bytes:
    """A message with these params."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def note(subscribers: Subscribers, client: int, method: str, **params: str) -> None:
    """A client asks for something."""
    subscribers.note(client, line(method, **params), method)


def told(subscribers: Subscribers, uri: str) -> tuple[int, ...]:
    """Whom an update reaches."""
    return subscribers.of(line(UPDATED, uri=uri), UPDATED, EVERYBODY)


@pytest.fixture
def subscribers() -> Subscribers:
    """Two watch `a`, one watches `b`."""
    made = Subscribers()
    for client, uri in ((1, "a"), (2, "a"), (2, "b")):
        note(made, client, "resources/subscribe", uri=uri)
    return made


def test_an_update_reaches_those_that_watch(subscribers: Subscribers) -> None:
    """And nobody else."""
    assert told(subscribers, "a") == (1, 2)
    assert told(subscribers, "b") == (2,)


def test_an_update_of_a_part_reaches_all_that_watch_anything(subscribers: Subscribers) -> None:
    """A server may name what lies below what was subscribed: MCP allows it."""
    assert told(subscribers, "a/part") == (1, 2)


@pytest.mark.parametrize(
    "method",
    ["notifications/tools/list_changed", "notifications/message", "notifications/of/their/own"],
)
def test_everything_else_reaches_everybody(subscribers: Subscribers, method: str) -> None:
    """Nobody subscribes to it."""
    assert subscribers.of(line(method), method, EVERYBODY) == EVERYBODY


def test_an_end_is_the_servers_business_only_when_nobody_goes_on(
    subscribers: Subscribers,
) -> None:
    """It knows one client and would end it for all."""
    unsubscribe = line("resources/unsubscribe", uri="a")
    assert subscribers.others_watch(1, unsubscribe)
    note(subscribers, 1, "resources/unsubscribe", uri="a")
    assert told(subscribers, "a") == (2,)
    assert not subscribers.others_watch(2, unsubscribe)
    assert subscribers.others_watch(3, unsubscribe)  # it never watched


@pytest.mark.parametrize("params", ["", ',"params":{}', ',"params":{"uri":7}', ',"params":[]'])
def test_a_subscription_to_nothing_is_noted_for_nobody(params: str) -> None:
    """The server will refuse it."""
    made = Subscribers()
    method = "resources/subscribe"
    made.note(
        1, b'{"jsonrpc":"2.0","id":1,"method":"%b"%b}' % (method.encode(), params.encode()), method
    )
    assert not made.others_watch(2, line("resources/unsubscribe", uri="7"))
    assert made.forget(1) == []


def test_the_last_one_that_leaves_ends_a_subscription(subscribers: Subscribers) -> None:
    """A server that watches for nobody wastes its time, and may fill its queue."""
    assert subscribers.forget(1) == []
    bodies = [json.loads(request) for request in subscribers.forget(2)]
    assert [(one["method"], one["params"]) for one in bodies] == [
        ("resources/unsubscribe", {"uri": "a"}),
        ("resources/unsubscribe", {"uri": "b"}),
    ]
    assert len({one["id"] for one in bodies}) == 2
    assert all(isinstance(one["id"], str) for one in bodies)  # numbers are those of requests
    assert subscribers.forget(2) == []


def test_a_log_level_is_set_back_when_the_one_that_set_it_leaves() -> None:
    """Only then: another one may have set it since."""
    made = Subscribers()
    note(made, 1, "logging/setLevel", level="debug")
    note(made, 2, "logging/setLevel", level="error")
    assert made.forget(1) == []
    (request,) = (json.loads(one) for one in made.forget(2))
    assert (request["method"], request["params"]) == ("logging/setLevel", {"level": "info"})
    assert made.forget(2) == []
