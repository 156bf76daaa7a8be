"""What a relay is told to start arrives as it was written."""

import hypothesis.strategies as st
from hypothesis import given, settings

from supervisor.relay.launch_order import LaunchOrder, unpack

# No argument, path or environment entry can hold a NUL, execve(2); everything else may occur.
WORDS = st.binary(max_size=20).map(lambda raw: raw.replace(b"\0", b""))
IDS = st.integers(-1, 2**31 - 1)
SPANS_US = st.integers(0, 3_600_000_000)

ORDERS = st.builds(
    LaunchOrder,
    argv=st.lists(WORDS, min_size=1),
    env=st.lists(WORDS.map(lambda word: b"NAME=" + word)),
    cwd=WORDS,
    uid=IDS,
    gid=IDS,
    groups=st.lists(st.integers(0, 2**31 - 1)),
    no_new_privileges=st.integers(0, 1),
    oom_score_adj=st.integers(-1001, 1000),
    nofile_soft=st.integers(-1, 1 << 20),
    nofile_hard=st.integers(-1, 1 << 20),
    umask=st.integers(-1, 0o777),
    term_after_us=SPANS_US,
    kill_after_us=SPANS_US,
    deadline_us=SPANS_US,
)


@settings(deadline=None)
@given(ORDERS)
def test_an_order_arrives_as_it_was_written(order: LaunchOrder) -> None:
    """Empty arguments, newlines and bytes that are no UTF-8 included."""
    assert vars(unpack(order.pack())) == vars(order)


def test_what_is_not_said_is_left_as_it_is() -> None:
    """-1 and -1001 stand for "leave it": a server without limits keeps the daemon's originals."""
    order = unpack(
        LaunchOrder(
            argv=[b"cat", b""],
            env=[],
            cwd=b"/",
            groups=[],
            term_after_us=2_000_000,
            kill_after_us=4_000_000,
            deadline_us=5_000_000,
        ).pack()
    )
    assert order.argv == [b"cat", b""]
    assert (order.uid, order.gid, order.nofile_soft, order.umask) == (-1, -1, -1, -1)
    assert order.oom_score_adj == -1001
    assert order.no_new_privileges == 0
