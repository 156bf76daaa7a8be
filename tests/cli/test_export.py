"""`export`: entries that run mcpctl, printed or merged; a client's own file keeps all else."""

import json
import tomllib
from pathlib import Path

import pytest
from pydantic import JsonValue

from cli.running_mcpctl import mcpctl
from supervisor.cli.configure.projecting import project, seconds
from supervisor.cli.configure.toml_text import merge, table
from supervisor.core.errors import ConfigError

RECORD: dict[str, JsonValue] = {
    "command": "x",
    "connectionTimeoutMs": 20000,
    "requestTimeoutMs": 1234.5,
    "supportsParallelToolCalls": True,
    "toolFilter": {"include": ["a", "b"], "exclude": ["c"]},
}
WORDS = ("mcpctl", "connect", "x")


def configure(folder: Path, **servers: JsonValue) -> None:
    """Write our configuration."""
    (folder / "config.json").write_text(json.dumps({"mcpServers": servers}))


@pytest.mark.parametrize(
    ("span_ms", "span_s"),
    [(20000, 20), (1234, 1.234), (0.5, 0.0005), (1234.5, 1.2345), (None, None)],
)
def test_milliseconds_become_exact_seconds(span_ms: JsonValue, span_s: JsonValue) -> None:
    """No rounding: 1.1 s is 1100 ms there and back."""
    assert seconds(span_ms) == span_s
    assert isinstance(seconds(20000), int)


def test_codex_gets_limits_hint_and_filters() -> None:
    """What it has keys for, and nothing that the record does not say."""
    assert project("codex", "x", RECORD, WORDS) == {
        "command": "mcpctl",
        "args": ["connect", "x"],
        "startup_timeout_sec": 20,
        "tool_timeout_sec": 1.2345,
        "supports_parallel_tool_calls": True,
        "enabled_tools": ["a", "b"],
        "disabled_tools": ["c"],
    }
    assert project("codex", "x", {}, WORDS) == {"command": "mcpctl", "args": ["connect", "x"]}


@pytest.mark.parametrize(
    ("client", "more"),
    [
        ("cursor", {"type": "stdio"}),
        ("vscode", {"type": "stdio"}),
        ("claude-desktop", {}),
        ("claude-code", {"type": "stdio", "timeout": 1234.5}),
        (
            "gemini",
            {"timeout": 1234.5, "includeTools": ["a", "b"], "excludeTools": ["c"]},
        ),
        ("openclaw", {key: value for key, value in RECORD.items() if key != "command"}),
    ],
)
def test_other_clients_get_what_they_know(client: str, more: dict[str, JsonValue]) -> None:
    """Each in its own words."""
    entry = project(client, "x", RECORD, WORDS)  # type: ignore[arg-type] # a name of the table
    assert entry == {"command": "mcpctl", "args": ["connect", "x"], **more}


@pytest.mark.parametrize("client", ["codex", "gemini"])
def test_a_pattern_cannot_be_exported_as_a_name(client: str) -> None:
    """It would match nothing there, or everything that was to be kept away."""
    record: dict[str, JsonValue] = {"toolFilter": {"exclude": ["ok", "delete_*"]}}
    with pytest.raises(ConfigError) as caught:
        project(client, "x", record, WORDS)  # type: ignore[arg-type] # a name of the table
    assert str(caught.value).startswith(
        "Server 'x', field toolFilter.exclude: 'delete_*' is a pattern, and the client takes exact"
    )


def test_a_table_survives_any_text() -> None:
    """Names with dots, quotes and control characters."""
    values: dict[str, JsonValue] = {
        "a b": 'q"\\\n\x7f\u0085é',
        "l": ["", "x"],
        "t": True,
        "f": 1e-7,
    }
    text = table(("m", "n.o"), values)
    assert tomllib.loads(text) == {"m": {"n.o": values}}


TOML = """# mine
model = "x"

[mcp_servers.a]
command = "old" # here
[mcp_servers.a.env]
K = "v"

[mcp_servers.b]
command = "b"

[profiles.p]
x = 1
"""


def test_a_table_is_replaced_with_what_is_below_it() -> None:
    """Its old environment would else go with the new command."""
    merged = merge(TOML, "mcp_servers", {"a": {"command": "new"}})
    assert merged is not None
    assert merged.startswith('# mine\nmodel = "x"\n\n[mcp_servers.b]\n')
    expected = tomllib.loads(TOML)
    expected["mcp_servers"]["a"] = {"command": "new"}
    assert tomllib.loads(merged) == expected
    assert merge(merged, "mcp_servers", {"a": {"command": "new"}}) == merged


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = {a = {command = "x"}}\n',
        'mcp_servers.a.command = "x"\n',
        't = """\n[mcp_servers.a]\n"""\n',
    ],
)
def test_tables_that_are_written_otherwise_are_left_alone(text: str) -> None:
    """Whoever has written them so has to put ours in by hand."""
    assert merge(text, "mcp_servers", {"a": {"command": "new"}}) is None


def test_entries_run_the_full_path_with_the_socket_s_folder(tmp_path: Path) -> None:
    """A client's environment may name neither; disabled and remote servers are left out."""
    configure(
        tmp_path,
        a={"command": "x"},
        off={"command": "x", "enabled": False},
        far={"url": "http://h"},
    )
    ended = mcpctl(tmp_path, "export", "claude-desktop")
    entry = json.loads(ended.out)["mcpServers"]["a"]
    assert ended.code == 0
    assert list(json.loads(ended.out)["mcpServers"]) == ["a"]
    assert entry["command"].startswith("/")
    assert entry["args"] == ["connect", "a", "--runtime-dir", str(tmp_path)]
    assert "left out (disabled): off" in ended.err
    assert "remote servers come with a later release" in ended.err
    session = mcpctl(tmp_path, "export", "openclaw", "--session", "w").out
    assert json.loads(session)["mcp"]["servers"]["a"]["args"][:4] == [
        "connect",
        "a",
        "--session",
        "w",
    ]
    serve = tomllib.loads(mcpctl(tmp_path, "export", "codex", "--serve", "--session", "w").out)
    assert serve["mcp_servers"]["mcp-supervisor"]["args"][:3] == ["serve", "--session", "w"]


def test_writing_keeps_the_file_and_asks_before_it_takes_an_entry_s_place(tmp_path: Path) -> None:
    """Comments, other servers, other settings; the second time there is nothing to do."""
    configure(tmp_path, a={"command": "x"}, b={"command": "x"})
    file = tmp_path / "mcp.json"
    own = '{ // mine\n  "servers": {\n    "a": {"command": "npx"}, // hers\n  },\n}\n'
    file.write_text(own)
    write = ("export", "vscode", "--write", str(file))
    asked = mcpctl(tmp_path, *write)
    assert (asked.code, "say --yes or --dry-run" in asked.err) == (2, True)
    assert mcpctl(tmp_path, *write, "--dry-run").code == 0
    assert file.read_text() == own
    ended = mcpctl(tmp_path, *write, "--yes")
    assert ended.code == 0
    assert "  kept     a  " in ended.out
    assert ended.out.endswith("wrote 1 entry; restart VS Code to use it\n")
    assert file.read_text().startswith('{ // mine\n  "servers": {\n    "a": {"command": "npx"},\n')
    assert "// hers" in file.read_text()
    again = mcpctl(tmp_path, *write, "--yes", "--replace")
    assert ("  changed  a  " in again.out, "  same     b  " in again.out) == (True, True)
    assert mcpctl(tmp_path, *write, "--yes").out.endswith("nothing was written\n")


def test_a_new_file_of_a_client_may_be_read_by_others(tmp_path: Path) -> None:
    """A project's file is committed; what we write into it is no secret."""
    configure(tmp_path, a={"command": "x"})
    file = tmp_path / "p" / ".codex" / "config.toml"
    ended = mcpctl(tmp_path, "export", "codex", "--write", str(file), "--yes", "--json")
    assert json.loads(ended.out)["written"] is True
    assert tomllib.loads(file.read_text())["mcp_servers"]["a"]["args"][0] == "connect"
    assert file.stat().st_mode & 0o077 == 0o044


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("cursr",), 2, "No client is called 'cursr'; known are claude-code, "),
        (("cursor", "--session", "a/b"), 2, "'a/b' is no session key"),
        (("cursor",), 1, "there is no server to export"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(
    tmp_path: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    """With what would do."""
    ended = mcpctl(tmp_path, "export", *words)
    assert (ended.code, ended.out) == (code, "")
    assert sentence in ended.err
