"""Places in JSON texts, compared with what a parser makes of the same text."""

import json
from dataclasses import dataclass
from typing import TypeAlias

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.json_spans import NotAnObjectError, find_span, members

Json: TypeAlias = "bool | int | float | str | list[Json] | Written | None"


@dataclass(frozen=True)
class Written:
    """An object as its members in order, so that names can repeat."""

    members: list[tuple[str, "Json"]]


NAMES = ("a", "b", "_meta", "io.x/tag")

texts = st.one_of(
    st.text(max_size=8), st.sampled_from(['"', "\\", '\\"', "},{", '","a":1', *NAMES])
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.tuples(st.sampled_from(NAMES) | texts, inner), max_size=4).map(Written),
    ),
    max_leaves=12,
)
objects = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=5).map(Written)


@st.composite
def written(draw: st.DrawFn, what: st.SearchStrategy[Json] = objects) -> bytes:
    """A JSON text with blanks, repeated names, and escapes wherever they are allowed."""

    def blank() -> str:
        return draw(st.sampled_from(["", "", "", " ", "\t\r\n "]))

    def string(text: str) -> str:
        spelled = json.dumps(text, ensure_ascii=draw(st.booleans()))
        if text.isascii() and text.isalpha() and draw(st.booleans()):
            return f'"\\u{ord(text[0]):04x}{spelled[2:]}'
        return spelled.replace("/", "\\/") if draw(st.booleans()) else spelled

    def write(value: Json) -> str:
        if isinstance(value, Written):
            inside = [
                f"{blank()}{string(name)}{blank()}:{blank()}{write(item)}{blank()}"
                for name, item in value.members
            ]
            return "{" + ",".join(inside) + blank() + "}"
        if isinstance(value, list):
            return "[" + ",".join(f"{blank()}{write(item)}{blank()}" for item in value) + "]"
        return string(value) if isinstance(value, str) else json.dumps(value)

    return (blank() + write(draw(what)) + blank()).encode(errors="surrogatepass")


@given(written(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
def test_a_path_leads_where_a_parser_finds_its_value(line: bytes, path: list[str]) -> None:
    """Escapes, repeated and nested names, blanks and brackets in strings change nothing."""
    expected: object = json.loads(line)
    for name in path:
        if not isinstance(expected, dict) or name not in expected:
            assert find_span(line, tuple(path)) is None
            return
        expected = expected[name]

    span = find_span(line, tuple(path))

    assert span is not None
    assert json.loads(line[slice(*span)]) == expected
    assert line[slice(*span)].strip() == line[slice(*span)]


@given(written())
def test_the_members_of_an_object_are_those_that_a_parser_sees(line: bytes) -> None:
    """In order, with repetitions."""
    pairs: list[tuple[str, object]] = []

    def keep(found: list[tuple[str, object]]) -> dict[str, object]:
        pairs[:] = found  # the outermost object comes last
        return dict(found)

    json.loads(line, object_pairs_hook=keep)

    assert [
        (json.loads(b'"%b"' % name), json.loads(line[start:end], object_pairs_hook=dict))
        for name, start, end in members(line)
    ] == pairs


@given(st.binary(max_size=60), written(), st.integers(0, 200))
def test_what_is_no_json_is_not_found_and_raises_nothing_else(
    noise: bytes, line: bytes, cut: int
) -> None:
    """Whatever a server writes, reading it ends with an answer."""
    for text in (noise, line[:cut], line[:cut] + noise):
        find_span(text, ("a", "b"))
        try:
            list(members(text))
        except NotAnObjectError:
            continue


@pytest.mark.parametrize(
    "broken",
    [b"", b"{", b'{"a":1', b'{"a":1,}', b'{"a" 1}', b'{"a":[}', b'{"a":1}x', b'{"a":"b}', b"[1]"],
)
def test_a_broken_object_has_no_members(broken: bytes) -> None:
    """Nobody may act on a line that was cut off."""
    with pytest.raises(NotAnObjectError):
        list(members(broken))


def test_nesting_of_any_depth_is_passed_over() -> None:
    """A parser that recurses gives up here."""
    deep = b"[" * 100_000 + b"]" * 100_000
    line = b'{"x":' + deep + b',"a":{"b":7}}'

    assert find_span(line, ("a", "b")) == (len(line) - 3, len(line) - 2)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "line",
    [
        b'{"a":"' + b"x" * 3_000_000,
        b'{"a":"' + b'\\"' * 1_000_000,
        b'{"x":' + b'["' * 300_000,
        b'{"x":{"y":' + b'"a":' * 300_000,
        b"{" + b'"\\u0061":1,' * 50_000 + b'"b":1}',
    ],
    ids=["open string", "open string of quotes", "open arrays", "colons", "repeated name"],
)
def test_broken_and_hostile_texts_take_linear_time(line: bytes) -> None:
    """A quadratic search would take minutes here; the time limit ends it."""
    find_span(line, ("a", "b"))
    find_span(line, ("a",))
