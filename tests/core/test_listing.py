"""What of a server's listing is kept, and which listing is refused."""

import pytest
from pydantic import JsonValue

from supervisor.core import listing
from supervisor.core.listing import Pages, sift

OBJECT: JsonValue = {"type": "object"}


def tool(name: str, **more: JsonValue) -> dict[str, JsonValue]:
    """A tool that is in order."""
    return {"name": name, "inputSchema": OBJECT, **more}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"inputSchema": OBJECT}, "tool is left out: its 'name' is no text"),
        ({"name": 7, "inputSchema": OBJECT}, "tool is left out: its 'name' is no text"),
        ({"name": "  ", "inputSchema": OBJECT}, "its 'name' is no text, or an empty one"),
        ({"name": "bad", "inputSchema": "x"}, "tool 'bad' is left out: its inputSchema is no obj"),
        ({"name": "bad", "inputSchema": None}, "tool 'bad' is left out: its inputSchema is no ob"),
        ({"name": "bad"}, "tool 'bad' is left out: it has no inputSchema"),
        ("bad", "tool is left out: it is no object"),
        (None, "tool is left out: it is no object"),
    ],
)
def test_one_bad_tool_is_left_out_by_name_and_the_others_stay(bad: JsonValue, words: str) -> None:
    """Clients of the official SDK refuse a whole list for one such tool."""
    kept = sift("files", "tools", [tool("a"), bad, tool("b")])
    assert [item["name"] for item in kept.items] == ["a", "b"]
    (told,) = kept.diagnostics
    assert told.startswith("Server 'files': ")
    assert words in told


def test_a_tool_that_is_listed_twice_counts_once() -> None:
    """Which one was meant nobody knows; the first one is as good, and the warning says so."""
    kept = sift("files", "tools", [tool("a", title="1"), tool("b"), tool("a", title="2")])
    assert [(item["name"], item.get("title")) for item in kept.items] == [("a", "1"), ("b", None)]
    assert kept.diagnostics == (
        "Server 'files': tool 'a' is listed 2 times; the first one counts.",
    )


def test_a_bad_tool_does_not_hide_a_good_one_of_the_same_name() -> None:
    """It is left out before doubles are looked for."""
    kept = sift("files", "tools", [{"name": "a"}, tool("a")])
    assert [dict(item) for item in kept.items] == [tool("a")]
    assert len(kept.diagnostics) == 1


def test_what_is_not_known_here_survives_unaltered() -> None:
    """A schema of any dialect, `_meta` and vendors' members belong to the client."""
    odd = tool("a", _meta={"v": [1, {"w": None}]}, vendor=1.5)
    odd["inputSchema"] = {"$schema": "https://example.invalid/d", "required": "x"}
    (item,) = sift("files", "tools", [odd]).items
    assert item is odd


def test_other_kinds_are_told_apart_by_their_own_member() -> None:
    """A resource has a uri, and its name may be anybody's."""
    items: list[JsonValue] = [
        {"uri": "a:1", "name": "n"},
        {"uri": "a:2", "name": "n"},
        {"name": "n"},
    ]
    kept = sift("files", "resources", items)
    assert [item["uri"] for item in kept.items] == ["a:1", "a:2"]
    assert kept.diagnostics == (
        "Server 'files': resource is left out: its 'uri' is no text, or an empty one.",
    )
    assert "resource template" in sift("files", "resource_templates", [{}]).diagnostics[0]


@pytest.mark.parametrize("twice", [False, True])
def test_a_diagnostic_stays_short(*, twice: bool) -> None:
    """A name may be as long as a line."""
    name = "n" * 100_000
    items: list[JsonValue] = [tool(name), tool(name)] if twice else [{"name": name}]
    (told,) = sift("files", "tools", items).diagnostics
    assert len(told) < 200


def test_pages_are_put_together_in_order() -> None:
    """A page says where the next one is, until one does not."""
    pages = Pages()
    assert pages.add({"tools": [1, 2], "nextCursor": "x"}, "tools") == "x"
    assert pages.add({"tools": [3]}, "tools") is None
    assert pages.items == [1, 2, 3]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({}, "no list 'tools'"),
        ({"tools": {}}, "no list 'tools'"),
        ({"tools": [], "nextCursor": 7}, "nextCursor is no text"),
    ],
)
def test_a_page_that_is_none_is_refused(result: dict[str, JsonValue], words: str) -> None:
    """Half a listing would be taken for the whole."""
    with pytest.raises(ValueError, match=words):
        Pages().add(result, "tools")


def test_a_cursor_that_comes_again_is_refused() -> None:
    """The server would be asked for ever."""
    pages = Pages()
    pages.add({"tools": [], "nextCursor": "a"}, "tools")
    pages.add({"tools": [], "nextCursor": "b"}, "tools")
    with pytest.raises(ValueError, match="repeats a cursor"):
        pages.add({"tools": [], "nextCursor": "a"}, "tools")


def test_the_bounds_hold_and_what_reaches_them_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 pages, 16384 items, 10 MiB: each alone ends a listing."""
    pages = Pages()
    for number in range(128):
        pages.add({"tools": [], "nextCursor": str(number)}, "tools")
    with pytest.raises(ValueError, match="more than 128 pages"):
        pages.add({"tools": []}, "tools")

    Pages().add({"tools": [1] * 16384}, "tools")
    with pytest.raises(ValueError, match="more than 16384 items"):
        Pages().add({"tools": [1] * 16385}, "tools")

    assert listing.MAX_BYTES == 10 * 1024 * 1024
    monkeypatch.setattr(listing, "MAX_BYTES", 100)
    Pages().add({"tools": ["x" * 96]}, "tools")
    split = Pages()
    split.add({"tools": ["x" * 60], "nextCursor": "a"}, "tools")
    with pytest.raises(ValueError, match="more than 100 bytes"):
        split.add({"tools": ["x" * 60]}, "tools")
