"""`list`, `show`, `add`, `set`, `unset`: without a daemon, without a secret on the screen."""

import fcntl
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from pydantic import JsonValue

from cli.fake_daemon import STATUS, running
from cli.running_mcpctl import Ended, mcpctl
from supervisor.cli.configure.changing import change
from supervisor.cli.configure.given_record import Options, record_of
from supervisor.config.editing import Editing
from supervisor.core.errors import RequestError
from supervisor.core.places import Places

SECRET: Final = "CANARY-0123456789"  # noqa: S105 - of no service


def configure(folder: Path, **servers: JsonValue) -> Path:
    """Write the configuration; answer its path."""
    file = folder / "config.json"
    file.write_text(json.dumps({"mcpServers": servers}, indent=2) + "\n")
    return file


def servers_in(file: Path) -> JsonValue:
    """What stands under `mcpServers`."""
    value: JsonValue = json.loads(file.read_text())["mcpServers"]
    return value


def test_list_names_state_transport_command_and_place(tmp_path: Path) -> None:
    """Sorted, across drop-ins, without secrets; remote servers count as enabled."""
    file = configure(
        tmp_path,
        b={"command": "sh", "args": ["--token", SECRET]},
        a={"url": f"https://u:{SECRET}@e.invalid/mcp", "enabled": False},
    )
    drop_in = tmp_path / "config.d" / "1.json"
    drop_in.parent.mkdir()
    drop_in.write_text('{"mcpServers": {"c": {"url": "https://e.invalid"}}}')
    ended = mcpctl(tmp_path, "list")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split() for line in ended.out.splitlines()[1:]] == [
        ["a", "disabled", "streamable-http", "https://***@e.invalid/mcp", f"{file}:10"],
        ["b", "enabled", "stdio", "sh", "--token", "***", f"{file}:3"],
        ["c", "enabled", "streamable-http", "https://e.invalid", f"{drop_in}:1"],
    ]
    document = json.loads(mcpctl(tmp_path, "list", "--json").out)
    assert [(s["name"], s["state"]) for s in document["servers"]] == [
        ("a", "disabled"),
        ("b", "enabled"),
        ("c", "enabled"),
    ]


def test_list_shows_the_one_record_for_which_all_is_refused(tmp_path: Path) -> None:
    """A daemon would not start; exit 100 with its sentence."""
    configure(tmp_path, good={"command": "sh"}, bad={"command": "sh", "args": SECRET})
    ended = mcpctl(tmp_path, "list")
    assert ended.code == 100
    assert [line.split()[:2] for line in ended.out.splitlines()[1:]] == [
        ["bad", "invalid"],
        ["good", "enabled"],
    ]
    assert "server 'bad', field args: text where a list of texts" in ended.err
    assert ended.err.count("\n") == 1
    assert SECRET not in ended.out + ended.err


def test_no_servers_are_no_error(tmp_path: Path) -> None:
    """A stranger's first command says what to do next."""
    ended = mcpctl(tmp_path, "list")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("`mcpctl add` adds one\n")


def test_show_hides_what_reveal_shows(tmp_path: Path) -> None:
    """References are no secrets, and keys that nothing knows may hold some."""
    record: JsonValue = {
        "command": "sh",
        "env": {"API_KEY": SECRET, "B": "${B_TOKEN}"},
        "other": SECRET,
    }
    configure(tmp_path, git=record)
    ended = mcpctl(tmp_path, "show", "git")
    assert ended.code == 0
    assert SECRET not in ended.out + ended.err
    assert '"API_KEY": "***"' in ended.out
    assert '"B": "${B_TOKEN}"' in ended.out
    assert "not shown, since nothing here reads them: other (--reveal)" in ended.out
    as_json = mcpctl(tmp_path, "show", "git", "--json", environ={"B_TOKEN": SECRET})
    assert SECRET not in as_json.out
    revealed = mcpctl(tmp_path, "show", "git", "--json", "--reveal")
    assert json.loads(revealed.out)["record"] == record
    assert mcpctl(tmp_path, "show", "git", "--reveal").out.count(SECRET) == 2
    unknown = mcpctl(tmp_path, "show", "x")
    assert (unknown.code, unknown.err) == (
        1,
        "mcpctl: No server is called 'x'; configured: git.\n",
    )


def test_a_server_is_added_set_and_taken_out(tmp_path: Path) -> None:
    """The whole life of a record; what is not spoken of stays as it is."""
    file = tmp_path / "config.json"
    added = mcpctl(tmp_path, "add", "files", "--timeout-ms", "5000", "--", "npx", "-y", "p", "--x")
    assert added == Ended(0, f"files: added to {file}\n", "")
    assert servers_in(file) == {
        "files": {"command": "npx", "args": ["-y", "p", "--x"], "requestTimeoutMs": 5000}
    }
    again = mcpctl(tmp_path, "add", "files", "--command", "sh")
    assert again.code == 1
    assert "`mcpctl set files JSON` replaces it" in again.err
    words = '{"type": "stdio", "command": "sh", "workingDirectory": "/", "env": {"A": "${HOME}"}}'
    assert mcpctl(tmp_path, "set", "files", words) == (0, f"files: set in {file}\n", "")
    assert servers_in(file) == {"files": {"command": "sh", "cwd": "/", "env": {"A": "${HOME}"}}}
    assert mcpctl(tmp_path, "unset", "files") == (0, f"files: taken out of {file}\n", "")
    assert mcpctl(tmp_path, "unset", "files").code == 1
    assert servers_in(file) == {}


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    """A script that adds servers side by side waits for the lock instead of losing one."""
    configure(tmp_path)
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda n: mcpctl(tmp_path, "add", n, "--", "sh"), "abc"))
    assert [e.code for e in ended] == [0, 0, 0]
    assert servers_in(tmp_path / "config.json") == {n: {"command": "sh"} for n in "abc"}


def test_a_change_reads_under_the_lock_under_which_it_writes(tmp_path: Path) -> None:
    """What another command writes between the two would be refused, for no fault of anybody."""
    configure(tmp_path)
    places = Places(str(tmp_path / "config.json"), str(tmp_path), str(tmp_path))

    def act(editing: Editing) -> str:
        with (tmp_path / ".config.json.lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return editing.add("a", {"command": "sh"})

    change(places, "a", act)
    assert servers_in(tmp_path / "config.json") == {"a": {"command": "sh"}}


def test_a_literal_secret_is_written_with_a_warning_that_does_not_show_it(tmp_path: Path) -> None:
    """It is the operator's to decide; the sentence names the place."""
    ended = mcpctl(tmp_path, "add", "a", "--command", "sh", "--env", f"API_KEY={SECRET}")
    assert ended.code == 0
    assert "server 'a', field env.API_KEY: this looks like a secret" in ended.err
    assert SECRET not in ended.out + ended.err


def test_json_names_the_file_and_the_warnings(tmp_path: Path) -> None:
    """For scripts."""
    ended = mcpctl(tmp_path, "add", "a", "--json", "--", "sh", "${MCPCTL_TEST_UNSET}")
    document = json.loads(ended.out)
    assert document["file"] == str(tmp_path / "config.json")
    assert "the variable MCPCTL_TEST_UNSET is not set" in document["warnings"][0]
    assert document["reload_needed"] is False


@pytest.mark.parametrize("mine", [True, False])
def test_a_running_daemon_is_not_reloaded_and_a_hint_says_how(
    tmp_runtime: Path, *, mine: bool
) -> None:
    """The hint stands only where that daemon would read this very file."""
    file = str(tmp_runtime / "config.json") if mine else "/elsewhere/config.json"
    status = replace(STATUS, daemon=replace(STATUS.daemon, config_file=file))
    with running(tmp_runtime) as fake:
        fake.answer("GET", "/v1/status", status)
        ended = mcpctl(tmp_runtime, "add", "a", "--", "sh")
        asked = {(asked.method, asked.target) for asked in fake.asked}
    assert ended.code == 0
    assert ("`mcpctl reload` takes this over" in ended.out) is mine
    assert asked == {("GET", "/v1/status")}


@pytest.mark.parametrize(
    ("record", "code", "sentence"),
    [
        ("[1]", 2, "The given JSON is no object"),
        ('{"command": CANARY-0123456789}', 2, "the given JSON, line 1, column 13: this is no JSON"),
        ('{"a": 1, "a": 2}', 2, "this key stands here twice"),
        ('{"command": ["CANARY-0123456789"]}', 100, "field command: a list where text in quotes"),
    ],
)
def test_a_wrong_record_is_refused_with_a_sentence(
    tmp_path: Path, record: str, code: int, sentence: str
) -> None:
    """2 where the words are wrong, 100 where the configuration would be."""
    ended = mcpctl(tmp_path, "set", "a", record)
    assert (ended.code, ended.out) == (code, "")
    assert sentence in ended.err
    assert SECRET not in ended.err
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (Options(), "either a command or a URL"),
        (Options(command="a", url="b"), "either a command or a URL"),
        (Options(words=("a",), arguments=("b",)), "--command and --arg have no place"),
        (Options(command="a", headers=("b=c",)), "belong to a --url"),
        (Options(url="a", env=("b=c",)), "belong to a command"),
        (Options(url="a", transport="stdio"), "no stdio server"),
        (Options(command="a", env=("B=c", SECRET)), "--env number 2 is no pair"),
        (Options(url="a", headers=(f"={SECRET}",)), "--header number 1 is no pair"),
    ],
)
def test_options_that_contradict_each_other_are_a_sentence(options: Options, sentence: str) -> None:
    """A value that could not be understood may be a secret, so it is counted and not shown."""
    with pytest.raises(RequestError, match=sentence) as caught:
        record_of(options)
    assert SECRET not in str(caught.value)


def test_options_become_a_record() -> None:
    """All of them; nothing that was not said."""
    local = Options(
        command="a",
        arguments=("-b",),
        env=("C=d=e",),
        cwd="/f",
        include=("g,h", "i*"),
        exclude=("j",),
        timeout_ms=1.5,
        connect_timeout_ms=2.0,
        disabled=True,
        scope="shared",
    )
    assert record_of(local) == {
        "command": "a",
        "args": ["-b"],
        "env": {"C": "d=e"},
        "cwd": "/f",
        "enabled": False,
        "scope": "shared",
        "connectionTimeoutMs": 2,
        "requestTimeoutMs": 1.5,
        "toolFilter": {"include": ["g", "h", "i*"], "exclude": ["j"]},
    }
    remote = Options(url="u", transport="http", headers=("A: b=c", "D=e:f"))
    assert record_of(remote) == {
        "url": "u",
        "transport": "streamable-http",
        "headers": {"A": "b=c", "D": "e:f"},
    }
    assert record_of(Options(words=("a",))) == {"command": "a"}
