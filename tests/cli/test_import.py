"""`import`: each client's file in our words; what cannot be said is refused, secrets unseen."""

import json
from pathlib import Path
from typing import Final

import pytest
from pydantic import JsonValue

from cli.running_mcpctl import Ended, mcpctl
from supervisor.cli.configure.clients import CLIENTS, client_of, places, project_of
from supervisor.cli.configure.plan import differences
from supervisor.cli.configure.reading import ForeignEntry, entries_of, parse_foreign
from supervisor.cli.configure.translating import RefusedEntry, goes_through_us, translate
from supervisor.config.file_change import look
from supervisor.core.errors import ConfigError

SECRET: Final = "CANARY-0123456789"  # noqa: S105 - of no service
HOME: Final = "/home/ada"


def ours(client: str, record: JsonValue, folder: str | None = None) -> dict[str, JsonValue]:
    """The record that an entry becomes."""
    entry = ForeignEntry(name="s", record=record, folder=folder)
    return translate(entry, CLIENTS[client], HOME).record


def run(folder: Path, *words: str) -> Ended:
    """Run `import` with a home of its own and a project as working directory."""
    home, project = folder / "home", folder / "project"
    for path in (home, project):
        path.mkdir(exist_ok=True)
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "CODEX_HOME": ""}
    return mcpctl(folder, "import", *words, environ=environ, cwd=project)


def write(file: Path, content: JsonValue | str) -> Path:
    """A file of a client, with its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def servers_in(folder: Path) -> dict[str, JsonValue]:
    """What our configuration holds."""
    value: dict[str, JsonValue] = json.loads((folder / "config.json").read_text())["mcpServers"]
    return value


@pytest.mark.parametrize(
    ("client", "theirs", "expected"),
    [
        (
            "claude-code",
            {"type": "http", "url": "u", "headers": {"A": "${B:-c}"}, "timeout": 5000},
            {
                "transport": "streamable-http",
                "url": "u",
                "headers": {"A": "${B:-c}"},
                "requestTimeoutMs": 5000,
            },
        ),
        ("claude-code", {"type": "stdio", "command": "x", "args": [], "env": {}}, {"command": "x"}),
        ("claude-code", {"command": "x", "timeout": 500}, {"command": "x"}),
        (
            "claude-desktop",
            {"command": "x", "args": ["${HOME}", "${a b}", "$HOME"]},
            {"command": "x", "args": ["$${HOME}", "${a b}", "$HOME"]},
        ),
        (
            "cursor",
            {"command": "x", "args": ["${userHome}/y", "${/}"], "env": {"A": "p-${env:B}"}},
            {"command": "x", "args": [f"{HOME}/y", "/"], "env": {"A": "p-${B}"}},
        ),
        ("cursor", {"command": "x", "disabled": True}, {"command": "x", "enabled": False}),
        (
            "vscode",
            {"type": "stdio", "command": "x", "env": {"A": "${input:api-key}"}},
            {"command": "x", "env": {"A": "${API_KEY}"}},
        ),
        (
            "gemini",
            {
                "command": "x",
                "env": {"A": "$B", "C": "${D}"},
                "timeout": 9,
                "includeTools": ["t"],
                "excludeTools": ["u"],
                "trust": True,
            },
            {
                "command": "x",
                "env": {"A": "${B}", "C": "${D}"},
                "requestTimeoutMs": 9,
                "toolFilter": {"include": ["t"], "exclude": ["u"]},
            },
        ),
        ("gemini", {"httpUrl": "u"}, {"url": "u", "transport": "streamable-http"}),
        ("gemini", {"url": "u"}, {"url": "u", "transport": "sse"}),
        (
            "codex",
            {
                "command": "x",
                "env": {"A": "${B}"},
                "env_vars": ["C", {"name": "D", "source": "local"}],
                "startup_timeout_sec": 0.1,
                "tool_timeout_sec": 20,
                "supports_parallel_tool_calls": True,
                "enabled_tools": ["t"],
                "default_tools_approval_mode": "prompt",
                "required": True,
            },
            {
                "command": "x",
                "env": {"A": "$${B}", "C": "${C}", "D": "${D}"},
                "connectionTimeoutMs": 100,
                "requestTimeoutMs": 20000,
                "supportsParallelToolCalls": True,
                "toolFilter": {"include": ["t"]},
                "codex": {"defaultToolsApprovalMode": "prompt"},
            },
        ),
        (
            "codex",
            {"url": "u", "bearer_token_env_var": "A", "env_http_headers": {"H": "B"}},
            {
                "url": "u",
                "transport": "streamable-http",
                "headers": {"H": "${B}", "Authorization": "Bearer ${A}"},
            },
        ),
        ("openclaw", {"url": "u"}, {"url": "u", "transport": "sse"}),
        (
            "openclaw",
            {"command": "x", "connect_timeout": 2, "timeout": 3, "ssl_verify": False},
            {
                "command": "x",
                "connectionTimeoutMs": 2000,
                "requestTimeoutMs": 3000,
                "sslVerify": False,
            },
        ),
    ],
)
def test_an_entry_is_said_in_our_words(
    client: str, theirs: JsonValue, expected: dict[str, JsonValue]
) -> None:
    """References stay references, what the client takes literally stays literal, spans are ms."""
    assert ours(client, theirs) == expected


def test_a_project_s_server_starts_in_its_folder() -> None:
    """Where its client would have started it, and where its relative paths lead from."""
    record: JsonValue = {
        "command": "node",
        "args": ["${workspaceFolder}/s.js", "${workspaceFolderBasename}"],
        "envFile": ".env",
    }
    assert ours("vscode", record, "/src/p") == {
        "command": "node",
        "args": ["/src/p/s.js", "p"],
        "envFile": "/src/p/.env",
        "cwd": "/src/p",
    }
    assert ours("claude-code", {"command": "x", "cwd": "sub"}, "/p")["cwd"] == "/p/sub"


@pytest.mark.parametrize(
    "text", ["${workspaceFolder}/x", "${file}", "${config:a.b}", "${command:c}"]
)
def test_a_variable_of_the_editor_is_refused_outside_of_it(text: str) -> None:
    """A server with another path would be another server."""
    with pytest.raises(RefusedEntry, match="means nothing outside the editor"):
        ours("cursor", {"command": "x", "args": [text]})


@pytest.mark.parametrize(
    ("record", "through"),
    [
        ({"command": "/opt/bin/mcpctl", "args": ["connect", "a"]}, True),
        ({"command": "env", "args": ["A=b", "mcpctl", "--runtime-dir", "/r", "serve"]}, True),
        ({"command": "python", "args": ["-m", "supervisor.cli.entry", "connect", "a"]}, True),
        ({"command": "mcpctl", "args": ["status"]}, False),
        ({"command": "npx", "args": ["connect"]}, False),
        ("mcpctl connect", False),
    ],
)
def test_entries_that_run_mcpctl_are_known(record: JsonValue, *, through: bool) -> None:
    """Taken over, such a server would connect to itself."""
    assert goes_through_us(record) is through


def test_a_client_is_known_by_the_name_of_its_file() -> None:
    """And a project by the place of it."""
    for client in CLIENTS.values():
        for file in places(client, HOME, {}, "/src/p"):
            assert client_of(file) is client, file
            in_project = file.startswith("/src/p")
            assert project_of(file, HOME) == ("/src/p" if in_project else None)


def test_json_with_comments_and_toml_are_read(tmp_path: Path) -> None:
    """A date elsewhere in a file is no reason to refuse it."""
    file = tmp_path / "x"
    file.write_text("{/* } */ servers: {a: {command: 'x',},}, // end\n}")
    value = parse_foreign(look(str(file)), str(file), toml=False)
    (entry,) = entries_of(value, CLIENTS["vscode"], str(file), None)
    assert (entry.name, entry.record) == ("a", {"command": "x"})
    file.write_text('d = 2026-01-02\n[mcp_servers."a.b"]\ncommand = "x"\n')
    value = parse_foreign(look(str(file)), str(file), toml=True)
    (entry,) = entries_of(value, CLIENTS["codex"], str(file), None)
    assert (entry.name, entry.record) == ("a.b", {"command": "x"})


@pytest.mark.parametrize(
    ("text", "toml", "sentence"),
    [
        (f'{{"a": 1,\n "b": {SECRET} }}', False, "x, line 2, column "),
        (f"{{a: '{SECRET}', a: 2}}", False, "a key stands in an object twice"),
        (f"a = {SECRET}", True, "this is no TOML: invalid value (at line 1, column 5)"),
        ("", False, "this is no JSON"),
        ('{"mcpServers": []}', False, "mcpServers is no object"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_sentence(
    tmp_path: Path, text: str, sentence: str, *, toml: bool
) -> None:
    """With its line where the parser knows it, and without what stands there."""
    file = tmp_path / "x"
    file.write_text(text)

    def read() -> list[ForeignEntry]:
        value = parse_foreign(look(str(file)), str(file), toml=toml)
        return list(entries_of(value, CLIENTS["claude-code"], str(file), None))

    with pytest.raises(ConfigError) as caught:
        read()
    assert sentence in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_difference_in_a_secret_is_told_and_not_shown() -> None:
    """Also of keys that nothing here reads."""
    old: JsonValue = {"command": "a", "env": {"API_KEY": SECRET, "B": "1"}, "x": SECRET}
    new: dict[str, JsonValue] = {"command": "b", "env": {"API_KEY": "other-secret"}}
    assert list(differences(old, new)) == [
        '- command: "a"',
        '+ command: "b"',
        "~ env.API_KEY: differs in what is not shown",
        '- env.B: "1"',
        "- x: not shown",
    ]


def test_each_entry_s_fate_is_shown_and_what_is_right_is_written(tmp_path: Path) -> None:
    """Added, same, kept, refused, skipped; one bad entry costs the others nothing."""
    write(
        tmp_path / "config.json", {"mcpServers": {"same": {"command": "s"}, "k": {"command": "k"}}}
    )
    file = write(
        tmp_path / "home" / ".claude.json",
        {
            "mcpServers": {
                "same": {"type": "stdio", "command": "s", "args": []},
                "k": {"command": "other", "env": {"API_KEY": SECRET}},
                "new": {"command": "n", "env": {"API_KEY": SECRET}},
                "bad": {"command": ["n", SECRET]},
                "us": {"command": "mcpctl", "args": ["connect", "k"]},
            },
            "projects": {"/": {"mcpServers": {"p": {"command": "q"}, "new": {"command": "z"}}}},
        },
    )
    before = file.read_text()
    ended = run(tmp_path, "claude-code", "--yes")
    assert SECRET not in ended.out + ended.err
    assert ended.out.splitlines() == [
        f"Claude Code, {file}:",
        "  same     same  s",
        "  kept     k  other",
        '             - command: "k"',
        '             + command: "other"',
        '             + env.API_KEY: "***"',
        "             another server has this name here; --replace takes the client's",
        "  added    new  n",
        "  refused  bad",
        "             field command: a list where text in quotes belongs.",
        "  skipped  us",
        "             it runs mcpctl already",
        "  added    p  q",
        "             belongs to the project /, and so starts there",
        "  refused  new",
        f"             another entry of this name comes first, from {file}; rename one of them",
        "wrote 2 servers",
    ]
    assert ended.code == 1  # one of them was refused
    assert servers_in(tmp_path) == {
        "same": {"command": "s"},
        "k": {"command": "k"},
        "new": {"command": "n", "env": {"API_KEY": SECRET}},
        "p": {"command": "q", "cwd": "/"},
    }
    assert file.read_text() == before


def test_nothing_is_written_unless_somebody_agrees(tmp_path: Path) -> None:
    """A script has to say so; `--dry-run` never does."""
    write(tmp_path / "project" / ".mcp.json", {"mcpServers": {"a": {"command": "x"}}})
    asked = run(tmp_path, ".mcp.json")
    assert (asked.code, "say --yes or --dry-run" in asked.err) == (2, True)
    dry = run(tmp_path, ".mcp.json", "--dry-run", "--yes")
    assert (dry.code, dry.out.splitlines()[-1]) == (0, "nothing was written (would be: 1 added)")
    assert not (tmp_path / "config.json").exists()


def test_replace_takes_the_client_s_and_json_tells_all(tmp_path: Path) -> None:
    """One document, after the writing."""
    write(tmp_path / "config.json", {"mcpServers": {"a": {"command": "x"}}})
    write(tmp_path / "home/.codex/config.toml", '[mcp_servers.a]\ncommand = "y"\n')
    ended = run(tmp_path, "codex", "--replace", "--yes", "--json")
    document = json.loads(ended.out)
    assert (ended.code, document["written"]) == (0, True)
    assert document["servers"][0]["differences"] == ['- command: "x"', '+ command: "y"']
    assert servers_in(tmp_path) == {"a": {"command": "y"}}


def test_what_is_neither_file_nor_client_names_both(tmp_path: Path) -> None:
    """And a client without a file, where it was looked for."""
    unknown = run(tmp_path, "cursr")
    assert unknown.code == 1
    assert "'cursr' is no file, and no client; clients are claude-code, " in unknown.err
    absent = run(tmp_path, "cursor")
    assert absent.code == 1
    assert f"looked for {tmp_path}/home/.cursor/mcp.json, " in absent.err
