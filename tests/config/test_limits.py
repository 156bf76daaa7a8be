"""Restarts, time limits, sizes and the metrics listener: what is read, refused and left out."""

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from supervisor.config.load import load_configuration
from supervisor.config.models import Configuration, Server, Settings
from supervisor.config.settings import parse_listen
from supervisor.core.errors import ConfigError
from supervisor.core.limits import CallLimits, RestartPolicy


class Files:
    """Loads what is written into the main file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "config.json"

    def server(self, **record: JsonValue) -> Server:
        """A server with these keys in its record."""
        self._write({"mcpServers": {"git": {"command": "x", **record}}})
        (server,) = self._load().servers.values()
        return server

    def settings(self, **block: JsonValue) -> Settings:
        """The settings of such a block."""
        self._write({"supervisor": block})
        return self._load().settings

    def problem(self, record: JsonValue = None, block: JsonValue = None) -> str:
        """The one problem of a file with that record or block, from its field on."""
        self._write({"mcpServers": {} if record is None else {"git": record}, "supervisor": block})
        with pytest.raises(ConfigError) as caught:
            self._load()
        (sentence,) = caught.value.problems
        return sentence.removeprefix(f"{self._file}, line 1: ")

    def _write(self, content: JsonValue) -> None:
        self._file.write_text(json.dumps(content), "utf-8")

    def _load(self) -> Configuration:
        return load_configuration(str(self._file), {"PORT": "9465"}, home="/")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """An empty folder for configurations."""
    return Files(tmp_path)


def test_a_record_without_limits_has_those_of_the_design(files: Files) -> None:
    """Design sections 8 and 11: what most files leave out."""
    server = files.server()

    assert server.calls == CallLimits(
        connection_timeout_s=30.0,
        request_timeout_s=60.0,
        max_total_timeout_s=None,
        reset_on_progress=False,
        max_line_bytes=16777216,
    )
    assert server.restart == RestartPolicy(
        kind="transient", intensity=5, period_s=60.0, backoff_s=0.5, backoff_max_s=60.0
    )
    assert (server.idle_s, server.autostart) == (None, False)
    assert (server.scope, server.protocol) == ("session", "auto")


def test_limits_of_a_record_are_read_in_seconds(files: Files) -> None:
    """A null is the same as leaving a key out."""
    server = files.server(
        connectionTimeoutMs=1500,
        requestTimeoutMs=0.5,
        maxTotalTimeoutMs=2000,
        resetTimeoutOnProgress=True,
        maxLineBytes=4096,
        idleTimeoutMs=0,
        autostart=True,
        protocol="legacy",
        scope=None,
    )

    assert server.calls == CallLimits(
        connection_timeout_s=1.5,
        request_timeout_s=0.0005,
        max_total_timeout_s=2.0,
        reset_on_progress=True,
        max_line_bytes=4096,
    )
    assert (server.idle_s, server.autostart, server.protocol) == (0.0, True, "legacy")


def test_a_total_alone_makes_room_for_itself(files: Files) -> None:
    """Ten seconds in all cannot be told apart from ten seconds a call."""
    calls = files.server(maxTotalTimeoutMs=10_000).calls

    assert (calls.request_timeout_s, calls.max_total_timeout_s) == (10.0, 10.0)
    assert files.server(maxTotalTimeoutMs=90_000).calls.request_timeout_s == 60.0


@pytest.mark.parametrize(
    ("restart", "policy"),
    [
        ("permanent", RestartPolicy(kind="permanent")),
        ("temporary", RestartPolicy(kind="temporary")),
        ({}, RestartPolicy()),
        (
            {
                "policy": "permanent",
                "intensity": 0,
                "periodMs": 1000,
                "backoffMs": 10,
                "backoffMaxMs": 20,
            },
            RestartPolicy(
                kind="permanent", intensity=0, period_s=1.0, backoff_s=0.01, backoff_max_s=0.02
            ),
        ),
        ({"backoffMs": 90_000}, RestartPolicy(backoff_s=90.0, backoff_max_s=90.0)),
        ({"backoffMaxMs": 100}, RestartPolicy(backoff_s=0.1, backoff_max_s=0.1)),
    ],
)
def test_a_restart_policy_is_a_word_or_an_object(
    files: Files, restart: JsonValue, policy: RestartPolicy
) -> None:
    """What is not given makes room for what is."""
    assert files.server(restart=restart).restart == policy


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (
            {"restart": "always"},
            (
                'field restart: \'always\' where "permanent", "transient" or "temporary", or an '
                'object, such as {"policy": "transient"}, belongs.'
            ),
        ),
        (
            {"restart": {"policy": "always"}},
            (
                'field restart.policy: \'always\' where "permanent", "transient" or "temporary" '
                "belongs."
            ),
        ),
        (
            {"restart": {"intensity": -1}},
            "field restart.intensity: -1 where a whole number from 0 to 1000 belongs.",
        ),
        (
            {"restart": {"backoffMs": 2, "backoffMaxMs": 1}},
            (
                "field restart: backoffMs 2 is above backoffMaxMs 1; right is backoffMs <= "
                "backoffMaxMs."
            ),
        ),
        (
            {"requestTimeoutMs": 3000, "maxTotalTimeoutMs": 2000},
            (
                "requestTimeoutMs 3000 is above maxTotalTimeoutMs 2000; right is "
                "requestTimeoutMs <= maxTotalTimeoutMs."
            ),
        ),
        (
            {"requestTimeoutMs": 0},
            (
                "field requestTimeoutMs: 0 where a number of milliseconds above 0, at most "
                "2147483647, belongs."
            ),
        ),
        (
            {"connectionTimeoutMs": "5 s"},
            (
                "field connectionTimeoutMs: '5 s' where a number of milliseconds above 0, at most "
                "2147483647, belongs."
            ),
        ),
        (
            {"idleTimeoutMs": -1},
            (
                "field idleTimeoutMs: -1 where a number of milliseconds from 0 (never) on, at most "
                "2147483647, belongs."
            ),
        ),
        (
            {"maxLineBytes": 100},
            (
                "field maxLineBytes: 100 where a whole number of bytes from 4096 to 1073741824 "
                "belongs."
            ),
        ),
        ({"scope": "all"}, 'field scope: \'all\' where "session" or "shared" belongs.'),
        ({"protocol": True}, 'field protocol: true where "auto", "legacy" or "modern" belongs.'),
        ({"autostart": "yes"}, "field autostart: 'yes' where true or false belongs."),
        (
            {"envFile": ["CANARY"]},
            "field envFile: a list where text in quotes, the path of a file, belongs.",
        ),
    ],
)
def test_a_wrong_limit_is_told_with_what_would_be_right(
    files: Files, record: dict[str, JsonValue], problem: str
) -> None:
    """The next thing that the operator does is to write it."""
    told = files.problem({"command": "x", **record})

    assert told.removeprefix("server 'git', ").removeprefix("server 'git': ") == problem


def test_a_key_that_nothing_reads_in_a_policy_is_warned_of(files: Files, tmp_path: Path) -> None:
    """A misspelt limit would silently be the default."""
    files.server(restart={"maxRestarts": 3, "backoffMS": 4})

    warnings = load_configuration(str(tmp_path / "config.json"), {}, home="/").warnings

    unknown = [text for text in warnings if "not known" in text]
    assert unknown[0].endswith("did you mean backoffMs?")
    assert "field restart.maxRestarts: this key is not known" in unknown[1]


def test_a_server_says_who_shares_it_and_which_tools_are_offered(files: Files) -> None:
    """Each session has its own unless the record says otherwise; all tools are offered."""
    plain, server = (
        files.server(),
        files.server(
            scope="shared",
            supportsParallelToolCalls=True,
            toolFilter={"include": ["read_*"], "exclude": ["read_secret"]},
        ),
    )

    assert (plain.scope, plain.parallel, plain.tool_filter.allows("drop")) == (
        "session",
        False,
        True,
    )
    assert (server.scope, server.parallel, server.problems) == ("shared", True, ())
    offered = [
        tool for tool in ("read_file", "read_secret", "drop") if server.tool_filter.allows(tool)
    ]
    assert offered == ["read_file"]


def test_limits_of_the_daemon_are_read(files: Files) -> None:
    """And a record's own line limit wins over the daemon's."""
    settings = files.settings(
        sessionIdleTtlMs=0,
        maxLineBytes=8192,
        maxClientQueueBytes=4096,
        metrics={"listen": "[::1]:${PORT}"},
    )

    assert (settings.session_idle_s, settings.max_line_bytes) == (0.0, 8192)
    assert settings.max_client_queue_bytes == 4096
    assert settings.metrics_listen == ("::1", 9465)


def test_a_file_without_limits_has_those_of_the_design(files: Files) -> None:
    """Design sections 9, 10 and 11; TCP listeners are off by default."""
    settings = files.settings(metrics={})

    assert (settings.session_idle_s, settings.max_line_bytes) == (600.0, 16777216)
    assert (settings.max_client_queue_bytes, settings.metrics_listen) == (8388608, None)


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("127.8.9.1:1", ("127.8.9.1", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[0:0:0:0:0:0:0:1]:9464", ("::1", 9464)),
    ],
)
def test_the_metrics_listen_on_a_loopback_address(text: str, listen: tuple[str, int]) -> None:
    """All of 127.0.0.0/8 is loopback, RFC 1122, section 3.2.1.3; and ::1."""
    assert parse_listen(text) == listen


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.0.0.0:9464", "0.0.0.0 is no loopback address"),
        ("192.168.1.5:9464", "192.168.1.5 is no loopback address"),
        ("[::]:9464", ":: is no loopback address"),
        ("[::ffff:127.0.0.1]:9464", "is no loopback address"),
        ("[::ffff:10.0.0.1]:9464", "is no loopback address"),
        ("localhost:9464", "no literal address"),
        ("CANARY.example:9464", "no literal address"),
        ("127.1:9464", "no literal address"),
        ("127.0.0.1", "no literal address"),
        (":9464", "no literal address"),
        ("::1:9464", "no literal address"),
        ("[::1%lo]:9464", "no literal address"),
        ("9464", "no literal address"),
        ("", "no literal address"),
        ("127.0.0.1:+80", "no literal address"),
        ("127.0.0.1:९", "no literal address"),
        ("127.0.0.1:9464\n", "no literal address"),
        ("127.0.0.1:0", "0 is no port"),
        ("127.0.0.1:65536", "65536 is no port"),
    ],
)
def test_the_metrics_listen_nowhere_else(files: Files, text: str, words: str) -> None:
    """They ask for no password; a name may stand for another address tomorrow."""
    told = files.problem(block={"metrics": {"listen": text}})

    assert told.startswith("supervisor.metrics.listen: ")
    assert words in told
    assert "CANARY" not in told


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"metrics": "127.0.0.1:9464"}, "metrics"),
        ({"metrics": {"listen": 9464}}, "metrics.listen"),
        ({"metrics": {"listen": "${GONE}"}}, "metrics.listen"),
        ({"sessionIdleTtlMs": -1}, "sessionIdleTtlMs"),
        ({"maxLineBytes": 1.5}, "maxLineBytes"),
        ({"maxClientQueueBytes": 0}, "maxClientQueueBytes"),
    ],
)
def test_a_wrong_setting_is_told_by_its_field(files: Files, block: JsonValue, field: str) -> None:
    """Once, and by the whole name."""
    assert files.problem(block=block).startswith(f"supervisor.{field}: ")
