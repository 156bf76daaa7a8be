"""Lines of keys, duplicate keys, and sentences for what is no JSON."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import JsonValue

from supervisor.config.document import KeyPath, describe, parse
from supervisor.core.errors import ConfigError


def test_each_key_and_list_item_knows_its_line() -> None:
    """An error that names line 1 of a file of 300 lines is no help."""
    text = '{\n "a": {\n  "b":\n   [1,\n    {"c": "x\\" {,"},\n    [\n ]]},\n "d": null}'

    lines = parse(text, "f").lines

    assert lines == {
        (): 1,
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "b", 0): 4,
        ("a", "b", 1): 5,
        ("a", "b", 1, "c"): 5,
        ("a", "b", 2): 6,
        ("d",): 8,
    }


def test_a_key_that_stands_twice_is_a_problem_at_every_level() -> None:
    """The last one would win silently, and calls would go to the wrong server."""
    text = (
        '{"mcpServers": {"files": {"env": {"A": "1",\n"A": "2"}},\n"files": {}},\n'
        '"x": {"y": [{"z": 1, "\\u007a": 2}]}}'
    )

    assert [problem.sentence.partition("; ")[0] for problem in parse(text, "f.json").problems] == [
        "f.json, line 2: server 'files', field env.A: this key stands here twice, first in line 1",
        "f.json, line 3: server 'files': this key stands here twice, first in line 1",
        "f.json, line 4: x.y[0].z: this key stands here twice, first in line 4",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", 'line 1, column 1: this is no JSON: the file is empty; write {"mcpServers": {}}.'),
        ('{"a": 1,\n}', "a comma stands before the closing bracket; take it out."),
        ('{"a": [1,\n]}', "a comma stands before the closing bracket; take it out."),
        ('{\n// note\n"a": 1}', "line 2, column 1: this is no JSON: comments are not possible"),
        ("{'a': 1}", "line 1, column 2: this is no JSON: texts and keys stand in double quotes"),
        ('{"a": 1}\nx', "line 2, column 1: this is no JSON: extra data."),
        ('{"a":\n NaN}', "line 2: this is no JSON: NaN is no number."),
        ('{"a": "1e999",\n"b": 1e999}', "line 2: this is no JSON: a number is too large."),
        ('{"a":\n' + "9" * 5000 + "}", "line 2: this is no JSON: a number is too large."),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str, sentence: str) -> None:
    """Trailing commas and comments are what people type; the parser's own words do not say so."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.json")

    assert str(caught.value).startswith("f.json")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", ['["a\\u0000b"]', '["\\ud800"]', '{"\\udfff": 1}'])
def test_a_text_that_no_program_could_be_given_is_a_problem(text: str) -> None:
    """Otherwise the start fails later, inside the launch, without a line."""
    assert len(parse(text, "f").problems) == 1


def test_a_surrogate_pair_is_a_character() -> None:
    """JSON writes everything beyond 16 bits as two halves."""
    assert parse('["\\ud83d\\ude00"]', "f").problems == ()


@pytest.mark.parametrize(
    ("value", "path", "shown"),
    [
        ("yes", ("enabled",), "'yes'"),
        ("5 s", ("stop", "deadlineMs"), "'5 s'"),
        ("CANARY-1", ("enabled",), "text"),
        ("abc", ("args",), "text"),
        (12345678, ("env", "PIN"), "a number"),
        (12345678, ("uid",), "12345678"),
        (True, ("args", 0), "true"),
        (None, ("args", 0), "null"),
        ({"token": "abc"}, ("cwd",), "an object"),
        (["abc"], ("cwd",), "a list"),
    ],
)
def test_a_wrong_value_is_shown_only_when_it_is_harmless(
    value: JsonValue, path: KeyPath, shown: str
) -> None:
    """A typing mistake can put a secret anywhere."""
    assert describe(value, path) == shown


JSON_VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def paths_of(value: JsonValue, path: KeyPath = ()) -> set[KeyPath]:
    """Every key and list position of a value."""
    found = {path}
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= paths_of(inner, (*path, key))
    if isinstance(value, list):
        for at, inner in enumerate(value):
            found |= paths_of(inner, (*path, at))
    return found


@given(JSON_VALUES, st.sampled_from([None, 1]), st.booleans())
def test_the_lines_cover_whatever_json_reads(
    value: JsonValue, indent: int | None, ascii_only: bool
) -> None:
    """The second pass must not lose its place in texts full of brackets and quotes."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    document = parse(text, "f")

    assert document.value == value
    assert set(document.lines) == {path for path in paths_of(value) if len(path) <= 8}
    assert max(document.lines.values()) <= text.count("\n") + 1
