"""The words between daemon, relay and anchor: one packet or line each, plain text.

A message is a verb and its fields, tab-separated: `signal<TAB>target=group<TAB>pid=7`. Tabs,
newlines, NULs and percent signs in values are percent-encoded, so that any path and any command
line passes. Text, because a helper that has to import json or struct costs more than the rest of
it, and because another implementation can then take a helper's place.

Instants travel as whole nanoseconds of CLOCK_MONOTONIC.

This is the one module of `relay` that the daemon imports. Standard library only, no imports.
"""

MAX_MESSAGE_BYTES = 16384
"""Longer than any message: the longest holds one path and one shortened command line."""

# daemon -> relay
PINNED = "pinned"  # the daemon holds pidfds of all three; the server may be reaped
STOP = "stop"  # requested= term= kill= deadline=
ADVANCE = "advance"  # stage=term|kill: due now
PING = "ping"  # answer with pong
RETIRE = "retire"  # end an anchor that has nothing left to do
ACK = "ack"  # the receipt was read

# relay -> daemon
HELLO = "hello"  # relay=PID/START anchor=PID/START server=PID/START
FAILED = "failed"  # step= errno= path=: no server; a receipt follows
EXITED = "exited"  # status=: the server's wait status
ORPHAN = "orphan"  # pid= start= pgid= sid=: adopted; news, may be dropped
LEFTOVER = "leftover"  # pid= start= pgid= sid= command=: outlived the server
SIGNAL = "signal"  # target= pid= signal= errno= at=
ANCHOR_LOST = "anchor_lost"  # status=
PONG = "pong"
REMAINING = "remaining"  # pid= start= pgid= sid= command=: alive shortly before the deadline
CLOSED = "closed"  # status= anchor= echild= group_gone=: the closing receipt

# fork server and the gate of a spawn
SPAWN = "spawn"  # with the descriptors of FD_ORDER
FORKED = "forked"  # pid= middle=: sent by the middle process, which then waits
REFUSED = "refused"  # errno=: the fork failed

FD_ORDER = ("control", "stdin", "stdout", "stderr", "lineage", "spec", "receipt", "gate")
"""Which descriptors a spawn passes, and in what order. An exec'd relay has no gate."""

FIRST_FD = 10
"""Where an exec'd relay finds them: above everything that a library may have opened at 0 to 9."""

NONE = -1
"""Stands for "no value" in numeric fields."""

_ESCAPES = (("%", "%25"), ("\t", "%09"), ("\n", "%0A"), ("\0", "%00"))


def encode(verb: str, **fields: "str | int") -> bytes:
    """Write one message, without a newline."""
    parts = [verb]
    for key, value in fields.items():
        text = str(value)
        for plain, escaped in _ESCAPES:
            text = text.replace(plain, escaped)
        parts.append(f"{key}={text}")
    return "\t".join(parts).encode("utf-8", "surrogateescape")


def decode(packet: bytes) -> "tuple[str, dict[str, str]]":
    """Read one message; unknown verbs and fields are the reader's to ignore."""
    verb, *parts = packet.decode("utf-8", "surrogateescape").split("\t")
    fields = {}
    for part in parts:
        key, _, text = part.partition("=")
        for plain, escaped in reversed(_ESCAPES):
            text = text.replace(escaped, plain)
        fields[key] = text
    return verb, fields


def to_ns(at: float) -> int:
    """Monotonic seconds as they travel."""
    return int(at * 1_000_000_000)


def from_ns(text: str) -> float:
    """The same back, in seconds."""
    return int(text) / 1_000_000_000
