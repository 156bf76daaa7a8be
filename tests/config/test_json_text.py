"""One member of a JSON text changes, and no other character does."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import JsonValue

from supervisor.config.json_text import put, take_out

FILE = """{
  "supervisor":   {"maxInstances": 1e1},
  "mcpServers": {
    "a": {"command": "x"},

    "b": {
        "command":  "y"
    }
  },
  "z": [1,  2]
}
"""


def test_a_new_member_comes_last_and_all_else_stays() -> None:
    """What a person has laid out by hand is theirs."""
    changed = put(FILE, ("mcpServers", "c"), {"command": "n", "args": ["1"]})
    new = """,
    "c": {
      "command": "n",
      "args": ["1"]
    }
"""
    assert changed == FILE.replace('"y"\n    }\n', '"y"\n    }' + new)


def test_a_replaced_member_keeps_its_place() -> None:
    """A diff of the file shows that server and nothing else."""
    changed = put(FILE, ("mcpServers", "a"), {"command": "n"})
    assert changed == FILE.replace('{"command": "x"}', '{\n      "command": "n"\n    }')


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("a", '"a": {"command": "x"},\n\n    '),
        ("b", ',\n\n    "b": {\n        "command":  "y"\n    }'),
    ],
)
def test_a_member_goes_with_its_comma(name: str, gone: str) -> None:
    """Of two commas one would be left, and the file would be no JSON."""
    assert take_out(FILE, ("mcpServers", name)) == FILE.replace(gone, "")


def test_the_only_member_leaves_an_empty_object() -> None:
    """And the next one goes in there, indented."""
    text = '{\n  "mcpServers": {\n    "a": 1\n  }\n}\n'
    empty = take_out(text, ("mcpServers", "a"))
    assert empty == '{\n  "mcpServers": {}\n}\n'
    assert put(empty, ("mcpServers", "a"), 1) == text


def test_a_text_on_one_line_is_laid_out() -> None:
    """It has no formatting that somebody would miss."""
    text = put('{"mcpServers": {}}', ("mcpServers", "a"), {"command": "x"})
    assert text == '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    }\n  }\n}\n'


def test_objects_on_the_way_are_made() -> None:
    """A file with settings only gets its first server; null is the same as nothing."""
    for text in ('{\n  "x": 1\n}\n', '{\n  "mcpServers": null,\n  "x": 1\n}\n'):
        value = json.loads(put(text, ("mcpServers", "a"), {"command": "y"}))
        assert value == {"x": 1, "mcpServers": {"a": {"command": "y"}}}


def test_line_ends_of_another_system_stay() -> None:
    """An editor would show a mixture as a changed file."""
    text = put('{\r\n  "a": 1\r\n}\r\n', ("b",), {"c": 1})
    assert text == '{\r\n  "a": 1,\r\n  "b": {\r\n    "c": 1\r\n  }\r\n}\r\n'


def test_comments_and_bare_keys_of_other_programs_stay() -> None:
    """VS Code and OpenClaw write such files; a brace in a comment or a text is none."""
    text = "{\n  // the } first\n  servers: {\n    a: {u: 'it}s'}, /* { */\n  },\n}\n"
    changed = put(text, ("servers", "b"), 2)
    assert changed == text.replace("'it}s'},", "'it}s'},\n    \"b\": 2,")


NAMES = st.text(st.sampled_from('ab"\\\n/*{}é'), max_size=3)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)


@given(OBJECTS, OBJECTS, NAMES, VALUES, st.sampled_from([None, 1, "\t"]))
def test_whatever_stands_there_put_and_take_out_do_that_one_thing(
    outer: dict[str, JsonValue],
    inner: dict[str, JsonValue],
    name: str,
    value: JsonValue,
    indent: int | str | None,
) -> None:
    """The value is as if the object had been changed in memory, in its order."""
    whole = {**outer, "m": inner, "n": 0}
    text = json.dumps(whole, indent=indent)

    changed = put(text, ("m", name), value)

    assert list(json.loads(changed)["m"].items()) == list({**inner, name: value}.items())
    assert json.loads(changed) == {**whole, "m": {**inner, name: value}}
    without = {key: item for key, item in inner.items() if key != name}
    assert json.loads(take_out(changed, ("m", name))) == {**whole, "m": without}
