"""What is shown of a record: all that is known of it, and no secret that announces itself."""

import json
from types import MappingProxyType

import hypothesis.strategies as st
from hypothesis import given
from pydantic import JsonValue

from supervisor.config.shown import shown_record

SECRET: dict[str, JsonValue] = {
    "command": "python3",
    "args": ["s.py", "--api-key=CANARY-1", "--token", "CANARY-2", "--region", "eu", "--key=${K}"],
    "env": {
        "EXAMPLE_API_TOKEN": "CANARY-3",
        "DIFY_KEY": "CANARY-4",
        "DATABASE_URL": "postgres://app:CANARY-5@db.example.invalid/app",
        "_TOKEN": "CANARY-6",
        "A_TOKEN": "${A_TOKEN}",
        "PIN_PASSWORD": 123456,
        "REGION": "eu-north",
        "PORT": 80,
    },
    "url": "http://user:CANARY-7@127.0.0.1:9/mcp?key=CANARY-8&page=1",
    "headers": {
        "Authorization": "Bearer CANARY-9",
        "X-Api-Key": "CANARY-10",
        "Accept-Language": "en",
    },
    "oauth": {"scope": "docs.read", "clientSecret": {"value": ["CANARY-11"]}},
    "auth": "oauth",
    "clientKey": "CANARY-12",
    "stop": {"deadlineMs": 5000},
    "cwd": None,
    "comment": "CANARY-13",
}


def test_secrets_are_hidden_and_everything_else_stays_readable() -> None:
    """A summary without the region and the page would be of no use."""
    shown = shown_record(SECRET)

    assert "CANARY" not in repr(shown)
    assert shown == {
        "command": "python3",
        "args": ["s.py", "--api-key=***", "--token", "***", "--region", "eu", "--key=${K}"],
        "env": {
            "EXAMPLE_API_TOKEN": "***",
            "DIFY_KEY": "***",
            "DATABASE_URL": "postgres://***@db.example.invalid/app",
            "_TOKEN": "***",
            "A_TOKEN": "${A_TOKEN}",
            "PIN_PASSWORD": "***",
            "REGION": "eu-north",
            "PORT": 80,
        },
        "url": "http://***@127.0.0.1:9/mcp?key=***&page=1",
        "headers": {"Authorization": "***", "X-Api-Key": "***", "Accept-Language": "en"},
        "oauth": {"scope": "docs.read", "clientSecret": {"value": ["***"]}},
        "auth": "oauth",
        "clientKey": "***",
        "stop": {"deadlineMs": 5000},
    }


def test_what_is_shown_cannot_be_changed() -> None:
    """It is handed to many."""
    assert isinstance(shown_record({"command": "x"}), MappingProxyType)


ANY: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just("CANARY"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(ANY, st.sampled_from(["API_KEY", "_PASSWORD", "X-Token", "9_SECRET", "password"]))
def test_below_a_secret_name_nothing_is_shown(value: JsonValue, name: str) -> None:
    """However deep, whatever its type."""
    shown = shown_record({"env": {name: value}})

    assert "CANARY" not in json.dumps(dict(shown))
