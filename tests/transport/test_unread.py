"""What a server has not read yet, against a model that keeps all of it."""

import hypothesis.strategies as st
from hypothesis import given

from supervisor.transport.unread import Unread, Waiting


def accept(unread: Unread, size: int, client: int, *ids: bytes, expires_at: float) -> None:
    """Accept so many bytes with requests among them."""
    unread.accepted_bytes += size
    unread.add(client, ids, expires_at)


def test_a_request_that_was_read_does_not_expire() -> None:
    """Its own limit counts from then on, which is the client's."""
    unread = Unread()
    accept(unread, 100, 1, b"1", expires_at=5.0)
    assert unread.expired(0, now=9.0) == ()
    assert not unread.waiting


def test_a_request_of_which_one_byte_is_unread_expires_at_its_time() -> None:
    """The server cannot have understood it; its time began when it came."""
    unread = Unread()
    accept(unread, 100, 1, b"1", b"2", expires_at=5.0)
    assert unread.expired(1, now=4.9) == ()
    assert [one.id_token for one in unread.expired(1, now=5.0)] == [b"1", b"2"]
    assert unread.expired(1, now=9.0) == ()


def test_what_was_read_before_does_not_protect_what_came_later() -> None:
    """The first hundred bytes are read, of the second hundred ten."""
    unread = Unread()
    accept(unread, 100, 1, b"read", expires_at=1.0)
    accept(unread, 100, 2, b"unread", expires_at=2.0)
    assert unread.expired(90, now=3.0) == (Waiting(200, 2, b"unread", 2.0),)


def test_requests_of_a_client_that_left_expire_for_nobody() -> None:
    """They were cancelled when it left."""
    unread = Unread()
    accept(unread, 100, 1, b"1", expires_at=1.0)
    accept(unread, 100, 2, b"1", expires_at=1.0)
    unread.forget(1)
    assert [one.client for one in unread.expired(200, now=2.0)] == [2]


@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    looks=st.lists(st.tuples(st.integers(0, 20000), st.floats(0, 3)), max_size=10),
)
def test_each_request_expires_once_or_was_read(
    sizes: list[int], looks: list[tuple[int, float]]
) -> None:
    """Whatever has been read by the time of each look; a pipe only ever moves on."""
    unread, ends = Unread(), list[int]()
    for at, size in enumerate(sizes):
        accept(unread, size, 1, b"%d" % at, expires_at=float(at))
        ends.append(unread.accepted_bytes)
    read_to, now, expired = 0, 0.0, list[int]()
    for more, later in looks:
        read_to, now = min(ends[-1], read_to + more), now + later
        waiting = {one.end for one in unread.waiting}
        over = [int(one.id_token) for one in unread.expired(ends[-1] - read_to, now)]
        assert all(ends[at] > read_to and at <= now for at in over)
        assert over == [
            at for at, end in enumerate(ends) if end in waiting and end > read_to and at <= now
        ]
        expired += over
    assert len(expired) == len(set(expired))
    assert all(one.end > read_to for one in unread.waiting)
