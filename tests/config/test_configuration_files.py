"""Whole files: what is read, what is refused, and that all of it is told at once."""

import json
import os
from pathlib import Path

import pytest
from pydantic import JsonValue

from supervisor.config.files import MAX_FILE_BYTES
from supervisor.config.load import load_configuration
from supervisor.config.models import Configuration, Settings
from supervisor.core.errors import ConfigError

ENVIRON = {"PATH": "/usr/bin:/bin", "DIR": "/opt/tools"}


def load(path: Path, content: JsonValue | bytes) -> Configuration:
    """Write the content (JSON, or bytes as they are) and load it."""
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return load_configuration(str(path), ENVIRON, home="/home/app")


def problems_of(path: Path, content: JsonValue | bytes) -> list[str]:
    """The sentences of the error, without the file's path."""
    with pytest.raises(ConfigError) as caught:
        load(path, content)
    assert all(problem.startswith(f"{path}, line ") for problem in caught.value.problems)
    return [problem.removeprefix(f"{path}, ") for problem in caught.value.problems]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the configuration is written."""
    return tmp_path / "config.json"


def test_a_missing_file_is_an_empty_configuration_unless_it_is_required(file: Path) -> None:
    """A fresh installation must start; a file named with a flag must be there."""
    configuration = load_configuration(str(file), ENVIRON, home="/home/app")

    assert (configuration.file, configuration.servers) == (None, {})
    assert [str(file) in warning for warning in configuration.warnings] == [True]
    with pytest.raises(ConfigError, match="does not exist"):
        load_configuration(str(file), ENVIRON, home="/home/app", required=True)


def test_servers_come_sorted_by_name(file: Path) -> None:
    """Every list is stable, whatever the order in the file."""
    records: JsonValue = {name: {"command": "x"} for name in ("b", "../evil", "B", "a.b", "a_b")}

    configuration = load(file, {"mcpServers": records})

    assert list(configuration.servers) == ["../evil", "B", "a.b", "a_b", "b"]
    assert configuration.file == str(file)


def test_openclaw_s_own_file_is_read(file: Path) -> None:
    """Its servers stand under mcp.servers; both places together are one map."""
    configuration = load(
        file,
        {
            "mcp": {"servers": {"a": {"command": "x"}}, "sessionIdleTtlMs": 5},
            "mcpServers": {"b": {"command": "y"}},
            "gateway": {"anything": 1},
        },
    )

    assert list(configuration.servers) == ["a", "b"]


def test_a_server_in_both_places_is_refused(file: Path) -> None:
    """Neither of the two is more right than the other."""
    (problem,) = problems_of(
        file, b'{"mcpServers": {"a": {"command": "x"}},\n"mcp": {"servers": {"a": {}}}}'
    )

    assert problem.startswith("line 2: server 'a': this server stands under mcpServers as well")


def test_the_supervisor_block_becomes_settings(file: Path) -> None:
    """Milliseconds become seconds, references become values, null is the default."""
    settings = load(
        file,
        {
            "supervisor": {
                "maxInstances": 3,
                "startConcurrency": 2,
                "shutdownTimeoutMs": 1500,
                "socketGroup": None,
                "path": "${DIR}/bin:/bin",
                "metrics": {"listen": "127.0.0.1:9464"},
            }
        },
    ).settings

    assert settings == Settings(
        max_instances=3,
        start_concurrency=2,
        shutdown_timeout_s=1.5,
        path="/opt/tools/bin:/bin",
        metrics_listen=("127.0.0.1", 9464),
    )
    assert load(file, {}).settings == Settings()
    assert Settings().start_concurrency == (os.cpu_count() or 1)


WRONG = b"""{
  "mcpServers": {
    "one": {
      "command": 5,
      "args": "--token CANARY-1",
      "env": {"A": {"b": "CANARY-2"}, "B": null, "PIN": []},
      "uid": true,
      "gid": -1,
      "enabled": "yes",
      "stop": {"deadlineMs": "5s", "killAfterMs": -1}
    },
    "two": {"args": ["a", 8080, null]},
    "three": "CANARY-3",
    "four": {"stop": {"deadlineMs": 1000, "killAfterMs": 1000}},
    "five": {"disabled": true}
  },
  "supervisor": {
    "maxInstances": 0, "startConcurrency": 2.5, "shutdownTimeoutMs": 0,
    "socketGroup": "no:such:group", "path": "${NOT_SET}"
  },
  "mcp": []
}"""


def test_all_problems_of_a_file_are_told_at_once(file: Path) -> None:
    """Nobody wants to restart a daemon once for each typing mistake."""
    problems = problems_of(file, WRONG)

    assert [problem.partition(" where ")[0] for problem in problems[:14]] == [
        "line 4: server 'one', field command: a number",
        "line 5: server 'one', field args: text",
        "line 6: server 'one', field env.A: an object",
        "line 6: server 'one', field env.B: null",
        "line 6: server 'one', field env.PIN: a list",
        "line 7: server 'one', field uid: true",
        "line 8: server 'one', field gid: -1",
        "line 9: server 'one', field enabled: 'yes'",
        "line 10: server 'one', field stop.deadlineMs: '5s'",
        "line 10: server 'one', field stop.killAfterMs: -1",
        "line 12: server 'two', field args[1]: a number",
        "line 12: server 'two', field args[2]: null",
        "line 13: server 'three': text",
        (
            "line 14: server 'four', field stop: termAfterMs 400, killAfterMs 1000 and deadlineMs "
            "1000 do not follow each other; right is 0 <= termAfterMs <= killAfterMs < deadlineMs."
        ),
    ]
    assert [problem.split(": ")[1] for problem in problems[14:]] == [
        "server 'five', field disabled",
        "supervisor.maxInstances",
        "supervisor.shutdownTimeoutMs",
        "supervisor.startConcurrency",
        "supervisor.path",
        "supervisor.socketGroup",
        "mcp",
    ]
    assert 'write "enabled": false instead' in problems[14]
    assert "CANARY" not in "".join(problems)


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("args", 1, 'a list of texts, such as ["--port", "8080"], belongs.'),
        ("env", [], 'an object, such as {"LOG_LEVEL": "info"}, belongs.'),
        ("uid", 2**32 - 1, "the number or the name of a user belongs."),
        ("noNewPrivileges", 1, "true or false belongs."),
        ("stop", 5, 'an object, such as {"deadlineMs": 5000}, belongs.'),
        (
            "stop",
            {"deadlineMs": 10**8},
            "a number of milliseconds above 0, at most a day, belongs.",
        ),
        ("stop", {"deadlineMs": True}, "a number of milliseconds above 0, at most a day, belongs."),
        ("cwd", ["/"], "text in quotes, the path of a directory, belongs."),
        ("transport", 1, '"stdio", "streamable-http" or "sse" belongs.'),
    ],
)
def test_a_wrong_type_is_told_with_what_would_be_right(
    file: Path, field: str, value: JsonValue, right: str
) -> None:
    """The next thing that the operator does is to write it."""
    (problem,) = problems_of(file, {"mcpServers": {"git": {"command": "x", field: value}}})

    assert problem.startswith(f"line 1: server 'git', field {field}")
    assert problem.endswith(f" where {right}")


@pytest.mark.parametrize(
    "name", ["", "  ", "__proto__", "a\nb", "a\u001b[1m", "a\u202eb", "\u007f"]
)
def test_a_name_that_could_mislead_is_refused(file: Path, name: str) -> None:
    """Names go to terminals and logs; one that a terminal obeys is shown as an escape."""
    (problem,) = problems_of(file, {"mcpServers": {name: {"command": "x"}}})

    assert problem.startswith(f"line 1: server {name!r}: ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"mcpservers": {}}, "mcpservers: this key is not known and is ignored; did you mean mcpS"),
        ({"servers": {}}, "did you mean mcpServers?"),
        ({"zzz": 1}, "zzz: this key is not known and is ignored."),
        ({"supervisor": {"maxInstance": 1}}, "supervisor.maxInstance: this key is not known"),
        ({"mcp": {"server": {}}}, "did you mean servers?"),
        ({"mcpServers": {"a": {"command": "x", "comand": ""}}}, "did you mean command?"),
        ({"mcpServers": {"a": {"command": "x", "timeout": 5}}}, "did you mean requestTimeoutMs?"),
        ({"mcpServers": {"a": {"command": "x", "workingDirectory": ""}}}, "did you mean cwd?"),
        ({"mcpServers": {"a": {"command": "x", "stop": {"termAfter": 1}}}}, "mean termAfterMs?"),
    ],
)
def test_an_unknown_key_is_a_warning_that_names_the_nearest_one(
    file: Path, content: JsonValue, words: str
) -> None:
    """Other programs keep their own keys in such files, but a typing mistake must be seen."""
    warnings = [text for text in load(file, content).warnings if "not known" in text]

    assert len(warnings) == 1
    assert words in warnings[0]


def test_keys_of_the_whole_design_are_no_unknown_keys(file: Path) -> None:
    """A file for a later release can be read by this one."""
    later: dict[str, JsonValue] = {
        "auth": "oauth",
        "autostart": True,
        "connectionTimeoutMs": 1,
        "envFile": ".env",
        "headers": {"X": 1},
        "limits": {},
        "oauth": {"scope": "x"},
        "protocol": "auto",
        "restart": {"policy": "transient"},
        "scope": "session",
        "toolFilter": {"include": ["*"]},
    }

    warnings = load(file, {"$schema": "x", "mcpServers": {"a": {"command": "x", **later}}}).warnings

    assert not [text for text in warnings if "not known" in text]


@pytest.mark.parametrize("content", [b"[]", b"null", b'"x"', b'{"mcpServers": []}'])
def test_something_else_than_an_object_is_refused(file: Path, content: bytes) -> None:
    """An empty configuration would be a silent answer to a wrong file."""
    (problem,) = problems_of(file, content)

    assert problem.endswith("where an object, such as {}, belongs.")


def test_what_cannot_be_read_is_refused_in_one_sentence(file: Path, tmp_path: Path) -> None:
    """Directories, other encodings and swapped arguments are no reason for a traceback."""
    for path, words in ((str(tmp_path), "Is a directory"), ("a\0b", "null byte")):
        with pytest.raises(ConfigError, match=words):
            load_configuration(path, ENVIRON, home="/")
    assert "no UTF-8" in problems_of(file, b'{"a":\n"\xff"}')[0]
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        load(file, b" " * (MAX_FILE_BYTES + 1))


def test_a_byte_order_mark_is_not_in_the_way(file: Path) -> None:
    """Some editors put one first."""
    assert load(file, b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x"}}}').servers.keys() == {
        "a"
    }
