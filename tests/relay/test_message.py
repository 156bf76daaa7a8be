"""Messages between daemon, relay and anchor: any path and any command line passes."""

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from supervisor.relay import message
from supervisor.relay.message import decode, encode, from_ns, to_ns

# As the kernel gives paths: bytes, of which those that are no UTF-8 become lone surrogates.
TEXTS = st.one_of(
    st.text(),
    st.text("\t\n\0%=059AaDd \r"),
    st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)
KEYS = st.from_regex(r"[a-z_]{1,12}", fullmatch=True).filter(lambda key: key != "verb")


@settings(deadline=None)
@given(st.sampled_from([message.FAILED, message.LEFTOVER]), st.dictionaries(KEYS, TEXTS))
@example(message.FAILED, {"path": "a\tb\nc\0d%e=f"})
@example(message.FAILED, {"path": "%09%0A%00%25%2509"})
@example(message.FAILED, {"path": "caf\udce9"})
def test_whatever_is_said_is_heard(verb: str, fields: dict[str, str]) -> None:
    """Tabs, newlines, percent signs and bytes that are no UTF-8 occur in paths."""
    packet = encode(verb, **fields)

    assert decode(packet) == (verb, fields)
    assert b"\n" not in packet
    assert b"\0" not in packet


@settings(deadline=None)
@given(st.dictionaries(KEYS, st.integers(), max_size=5))
def test_a_message_is_a_verb_and_tab_separated_fields(fields: dict[str, int]) -> None:
    """Another implementation may take a helper's place, so the form is fixed."""
    plain = "".join(f"\t{key}={number}" for key, number in fields.items())
    assert encode("signal", **fields) == b"signal" + plain.encode()


def test_a_message_without_fields_is_its_verb() -> None:
    """The shortest one."""
    assert encode(message.ACK) == b"ack"
    assert decode(b"ack") == ("ack", {})


@pytest.mark.parametrize("packet", [b"", b"later\tnew=1", b"x\tno_value", b"\t=\t="])
def test_a_message_of_another_version_is_read_without_an_error(packet: bytes) -> None:
    """Unknown verbs and fields are the reader's to ignore."""
    verb, fields = decode(packet)
    assert isinstance(verb, str)
    assert all(isinstance(text, str) for text in fields.values())


@settings(deadline=None)
@given(st.floats(min_value=0.0, max_value=1e8))
def test_an_instant_travels_to_the_nanosecond(at: float) -> None:
    """Both sides compare it with the same clock, also after a year of uptime."""
    assert from_ns(str(to_ns(at))) == pytest.approx(at, abs=2e-8)


def test_the_longest_message_fits() -> None:
    """A path of the kernel's longest length, every byte of it escaped."""
    longest = encode(message.FAILED, step="exec", errno=2, path="%" * 4096)
    assert len(longest) < message.MAX_MESSAGE_BYTES


def test_the_descriptors_of_a_spawn_have_one_order() -> None:
    """The gate comes last: an exec'd relay has none."""
    assert message.FD_ORDER[-1] == "gate"
    assert len(set(message.FD_ORDER)) == len(message.FD_ORDER)
    assert message.FIRST_FD > 3
