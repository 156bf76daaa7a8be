"""What an answer proves about a server's revision."""

import pytest
from pydantic import JsonValue

from supervisor.core.modern import envelope, server_info
from supervisor.core.negotiation import (
    HANDSHAKE_VERSIONS,
    KNOWN_VERSIONS,
    Era,
    Handshake,
    How,
    Refused,
    discover_limit_s,
    first_question,
    read_discover,
    read_initialize,
    supported_versions,
    unknown_versions,
    version_to_offer,
)


def test_the_known_revisions_are_those_of_the_protocol() -> None:
    """Four with a handshake, one without."""
    assert KNOWN_VERSIONS == (
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    )


def test_what_is_asked_first_depends_on_record_and_memory() -> None:
    """The record comes before memory, which comes before a probe."""
    assert first_question("auto", None) == ("modern", "probed")
    assert first_question("auto", "legacy") == ("legacy", "remembered")
    assert first_question("auto", "modern") == ("modern", "remembered")
    eras: tuple[Era | None, ...] = (None, "legacy", "modern")
    for remembered in eras:
        assert first_question("legacy", remembered) == ("legacy", "configured")
        assert first_question("modern", remembered) == ("modern", "configured")


@pytest.mark.parametrize(
    ("how", "left_s", "limit_s"),
    [
        ("probed", 30.0, 2.0),
        ("probed", 4.0, 2.0),
        ("probed", 1.5, 0.75),
        ("probed", -1.0, 0.0),
        ("remembered", 30.0, 15.0),
        ("remembered", 3.0, 2.0),
        ("remembered", 1.0, 1.0),
        ("configured", 30.0, 30.0),
        ("configured", -1.0, 0.0),
    ],
)
def test_the_question_for_the_newest_revision_leaves_time_to_fall_back(
    how: How, left_s: float, limit_s: float
) -> None:
    """Unless there is nothing to fall back to."""
    assert discover_limit_s(how, left_s) == limit_s


def test_a_proper_answer_to_discover_is_read() -> None:
    """In this revision the server says who it is in `_meta`."""
    read = read_discover(
        {
            "supportedVersions": ["2025-11-25", "2026-07-28"],
            "capabilities": {"tools": {"x": 1}},
            "instructions": "Mind the gap.",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "n", "version": "1"}},
        },
        "probed",
    )
    assert read == Handshake(
        era="modern",
        protocol_version="2026-07-28",
        server_info={"name": "n", "version": "1"},
        capabilities={"tools": {"x": 1}},
        instructions="Mind the gap.",
        how="probed",
    )


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"ok": True},
        {"supportedVersions": "2026-07-28"},
        {"supportedVersions": []},
        {"supportedVersions": [7, None]},
        {"supportedVersions": ["2025-06-18", "2031-01-01"]},
    ],
)
def test_any_other_answer_to_discover_proves_nothing(result: dict[str, JsonValue]) -> None:
    """Old servers answer unknown methods with anything."""
    assert read_discover(result, "probed") is None


def test_a_server_of_unknown_revisions_only_is_refused_with_the_known_ones() -> None:
    """`initialize` would not help: it has said what it speaks."""
    assert read_discover({"supportedVersions": ["2031-01-01"]}, "probed") == Refused(
        "offers protocol 2031-01-01; supported: " + ", ".join(KNOWN_VERSIONS)
    )


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_every_older_revision_is_accepted(version: str) -> None:
    """The server chooses; it need not be the one that was offered."""
    read = read_initialize({"protocolVersion": version, "serverInfo": "?"}, "fallback")
    assert isinstance(read, Handshake)
    assert (read.era, read.protocol_version, read.how) == ("legacy", version, "fallback")
    assert (read.server_info, read.capabilities, read.instructions) == ({}, {}, None)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({}, "without a protocolVersion"),
        ({"protocolVersion": None}, "without a protocolVersion"),
        ({"protocolVersion": "1999-01-01"}, "offers protocol 1999-01-01; supported: 2024-11-05,"),
        ({"protocolVersion": "2024-10-07"}, "offers protocol 2024-10-07; supported: "),
        ({"protocolVersion": 5}, "offers protocol 5; "),
        ({"protocolVersion": ["2025-06-18"]}, "supported: "),
        ({"protocolVersion": "2026-07-28"}, "2026-07-28 in initialize"),
    ],
)
def test_an_unknown_version_is_refused(result: dict[str, JsonValue], words: str) -> None:
    """Going on regardless fails later, and oddly."""
    read = read_initialize(result, "configured")
    assert isinstance(read, Refused)
    assert words in read.why


def test_a_refusal_is_short_and_printable_whatever_was_offered() -> None:
    """It goes to terminals and logs."""
    why = unknown_versions(("\x1b[2J" + "x" * 10_000, *"abcdefgh")).why
    assert why.isprintable()
    assert len(why) < 300


def test_the_versions_in_an_error_are_read_with_care() -> None:
    """The data of an error may be anything."""
    assert supported_versions({"supported": ["2025-06-18", 7]}) == ("2025-06-18",)
    useless: list[JsonValue] = [None, [], "x", {}, {"supported": "2025-06-18"}]
    for data in useless:
        assert supported_versions(data) == ()


def test_initialize_asks_for_the_newest_version_that_both_know() -> None:
    """And for our newest where the server named none."""
    assert version_to_offer(("2024-11-05", "2025-06-18", "2031-01-01")) == "2025-06-18"
    assert version_to_offer(()) == "2025-11-25"
    assert version_to_offer(("2026-07-28",)) == "2025-11-25"


def test_the_envelope_says_who_asks_and_in_which_revision() -> None:
    """The first two members are required in every request."""
    made = envelope("me", "1")
    assert made == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "me", "version": "1"},
    }
    made["progressToken"] = 1
    assert "progressToken" not in envelope("me", "1")


def test_a_server_that_does_not_say_who_it_is_has_no_name() -> None:
    """It should, but need not."""
    silent: list[dict[str, JsonValue]] = [
        {},
        {"_meta": 7},
        {"_meta": {"io.modelcontextprotocol/serverInfo": "n"}},
    ]
    for result in silent:
        assert server_info(result) == {}
