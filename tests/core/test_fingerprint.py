"""Two connections are the same when their processes and handshakes would see the same."""

from dataclasses import replace
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.fingerprint import connection_fingerprint
from supervisor.core.launch import LaunchSpec, StopPolicy

KEY = bytes(range(32))
SPEC = LaunchSpec(
    argv=("server", "--token", "hunter2"),
    env={"PATH": "/bin", "TOKEN": "hunter2"},
    cwd="/srv",
    uid=1000,
    gid=100,
    groups=(7, 100),
    secrets=frozenset({"hunter2"}),
)


def of(launch: LaunchSpec, protocol: str = "auto", key: bytes = KEY) -> str:
    """The fingerprint under the tests' key."""
    return connection_fingerprint(launch, protocol, key)


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, argv=("server", "--token", "hunter3")),
        replace(SPEC, argv=("server", "--token hunter2")),
        replace(SPEC, argv=("server", "hunter2", "--token")),
        replace(SPEC, env={"PATH": "/bin", "TOKEN": "hunter3"}),
        replace(SPEC, env={"PATH": "hunter2", "TOKEN": "/bin"}),
        replace(SPEC, env={"PATH": "/bin"}),
        replace(SPEC, env={"PATH": "/bin", "TOKEN": "hunter2", "EMPTY": ""}),
        replace(SPEC, cwd="/"),
        replace(SPEC, uid=1001),
        replace(SPEC, uid=None),
        replace(SPEC, gid=101),
        replace(SPEC, groups=(100,)),
        replace(SPEC, no_new_privileges=True),
    ],
)
def test_whatever_a_process_sees_makes_another_fingerprint(other: LaunchSpec) -> None:
    """A kept process with old arguments is the bug that reloads are known for."""
    assert of(other) != of(SPEC)


def test_the_revisions_that_are_offered_make_another_fingerprint() -> None:
    """They decide about the handshake."""
    assert len({of(SPEC, protocol) for protocol in ("auto", "legacy", "modern")}) == 3


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, stop=StopPolicy.from_deadline(60.0)),
        replace(SPEC, secrets=frozenset()),
        replace(SPEC, env=dict(reversed(list(SPEC.env.items())))),
        replace(SPEC, groups=(100, 7, 7)),
    ],
)
def test_what_no_process_sees_leaves_the_fingerprint(other: LaunchSpec) -> None:
    """A longer grace period is no reason to end anybody's work."""
    assert of(other) == of(SPEC)


def test_the_same_launch_has_another_fingerprint_under_another_key() -> None:
    """Without the key a guess of the token cannot be tried; this one would take a second."""
    assert of(SPEC) != of(SPEC, key=bytes(32))


@pytest.mark.parametrize(
    "guessable",
    [replace(SPEC, argv=(), env={"TOKEN": "1234"}), replace(SPEC, argv=("1234",), env={})],
)
def test_values_enter_through_the_key_in_arguments_and_in_variables(guessable: LaunchSpec) -> None:
    """One of the two alone would be enough to lose the secret."""
    bare = replace(guessable, argv=(), env={})

    assert of(bare) == of(bare, key=bytes(32))
    assert of(guessable) != of(guessable, key=bytes(32))


def test_the_fingerprint_is_the_same_on_every_machine_and_in_every_release() -> None:
    """It is kept across restarts of the daemon; a new form of it is a decision, no accident."""
    assert of(SPEC) == ("9a07f86ef87b992d2c3b3b53662eb32de38c07269b9e906a283ecfd2877007e8")


@given(st.dictionaries(st.text(), st.text()), st.lists(st.text()), st.randoms())
def test_any_order_of_variables_and_any_text_has_one_fingerprint(
    env: dict[str, str], words: list[str], random: Random
) -> None:
    """JSON objects have no order, and programs do rewrite them."""
    launch = replace(SPEC, argv=tuple(words), env=env)

    shuffled = dict(sorted(env.items(), key=lambda _: random.random()))

    assert of(launch) == of(replace(launch, env=shuffled))
    assert len(of(launch)) == 64


def test_bytes_that_are_no_utf_8_do_not_stop_it() -> None:
    """A variable of the daemon's environment may hold any bytes."""
    assert of(replace(SPEC, env={"LANG": "\udcff"})) != of(replace(SPEC, env={"LANG": "\udcfe"}))
