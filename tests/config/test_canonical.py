"""One spelling for each key, and nothing lost on the way to it."""

import pytest
from pydantic import JsonValue

from supervisor.config.canonical import canonical


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"type": "http", "url": "u"}, {"transport": "streamable-http", "url": "u"}),
        ({"type": "sse", "transport": "http"}, {"transport": "streamable-http"}),
        ({"type": "stdio", "command": "x"}, {"command": "x"}),
        ({"type": "ws", "url": "u"}, {"type": "ws", "url": "u"}),
        ({"workingDirectory": "/a", "command": "x"}, {"cwd": "/a", "command": "x"}),
        ({"workingDirectory": "/a", "cwd": "/b"}, {"cwd": "/b"}),
        ({"request_timeout_ms": 5}, {"requestTimeoutMs": 5}),
        ({"request_timeout_ms": 5, "requestTimeoutMs": 6}, {"requestTimeoutMs": 6}),
        ({"stop": {"deadline_ms": 5}}, {"stop": {"deadlineMs": 5}}),
        ({"tool_filter": {"include": ["a_b"]}}, {"toolFilter": {"include": ["a_b"]}}),
        ({"env": {"my_var": "1"}}, {"env": {"my_var": "1"}}),
        ({"some_plugin": 1}, {"some_plugin": 1}),
    ],
)
def test_other_spellings_become_ours(
    written: dict[str, JsonValue], meant: dict[str, JsonValue]
) -> None:
    """The right spelling wins; names of variables and unknown keys are nobody's to change."""
    assert canonical(written) == meant
    assert list(canonical(written)) == list(meant)
    assert canonical(canonical(written)) == meant
