"""A configuration is changed where a server stands, and never to something a daemon refuses."""

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from supervisor.config.editing import Editing
from supervisor.config.file_change import EditRefusedError
from supervisor.config.inventory import Entry
from supervisor.core.errors import ConfigError, UnknownServerError

HOME = "/home/app"


def write(path: Path, value: JsonValue) -> Path:
    """A file over several lines."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")
    return path


def read(path: Path) -> JsonValue:
    """What stands there now."""
    value: JsonValue = json.loads(path.read_text())
    return value


def judge(editing: Editing, *names: str) -> tuple[Entry, ...]:
    """With a daemon's environment that holds SET only."""
    entries, _ = editing.judge(names, {"SET": "x"}, HOME)
    return entries


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """The main file, with one server, beside a drop-in with another."""
    write(tmp_path / "config.d" / "10.json", {"mcpServers": {"dropped": {"command": "d"}}})
    return write(
        tmp_path / "config.json", {"mcpServers": {"a": {"command": "x"}}, "supervisor": {}}
    )


def test_a_server_is_changed_where_it_stands(main: Path) -> None:
    """In a drop-in too; a new one goes into the main file."""
    editing = Editing.begin(str(main))
    drop_in = main.parent / "config.d" / "10.json"
    assert editing.set("dropped", {"command": "e"}) == str(drop_in)
    assert editing.add("new", {"command": "n"}) == str(main)
    judge(editing, "dropped", "new")
    editing.write()
    assert read(drop_in) == {"mcpServers": {"dropped": {"command": "e"}}}
    assert read(main) == {
        "mcpServers": {"a": {"command": "x"}, "new": {"command": "n"}},
        "supervisor": {},
    }


def test_a_first_server_makes_the_file(tmp_path: Path) -> None:
    """Also its folder."""
    file = tmp_path / "x" / "config.json"
    editing = Editing.begin(str(file))
    editing.add("a", {"command": "x"})
    judge(editing, "a")
    editing.write()
    assert read(file) == {"mcpServers": {"a": {"command": "x"}}}


def test_a_file_that_keeps_its_servers_like_openclaw_goes_on_so(tmp_path: Path) -> None:
    """One map, not two."""
    file = write(tmp_path / "config.json", {"mcp": {"servers": {"a": {"command": "x"}}}})
    editing = Editing.begin(str(file))
    editing.add("b", {"command": "y"})
    editing.unset("a")
    editing.write()
    assert read(file) == {"mcp": {"servers": {"b": {"command": "y"}}}}


def test_what_is_there_is_not_added_and_what_is_not_there_is_not_taken_out(main: Path) -> None:
    """Both say what to do instead."""
    editing = Editing.begin(str(main))
    with pytest.raises(EditRefusedError, match=r"line 3. `mcpctl set a JSON` replaces it"):
        editing.add("a", {"command": "y"})
    with pytest.raises(UnknownServerError, match="configured: a, dropped"):
        editing.unset("b")


def test_a_server_in_two_places_is_for_a_person_to_decide(main: Path) -> None:
    """Nobody knows which one is meant."""
    write(main.parent / "config.d" / "20.json", {"mcpServers": {"a": {"command": "z"}}})
    with pytest.raises(EditRefusedError, match=r"stands in .*config.json, line 3 and in .*20.json"):
        Editing.begin(str(main)).unset("a")


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"command": "x", "args": "y"}, "server 'n', field args: text where a list of texts"),
        ({"args": ["y"]}, "server 'n': there is no command; write one"),
        ({"command": "x", "cwd": "y"}, "server 'n', field cwd: a working directory starts with /"),
        ({"url": "http://x", "transport": "ws"}, "server 'n', field transport: this transport is"),
        ({"command": "x", "disabled": True}, "server 'n', field disabled: this key is called"),
        ({"command": "x\0"}, "server 'n', field command: this text holds a NUL"),
    ],
)
def test_what_a_daemon_would_refuse_is_not_written(
    main: Path, record: dict[str, JsonValue], sentence: str
) -> None:
    """With the daemon's own sentence, and no line of a text that nobody can look up."""
    editing, before = Editing.begin(str(main)), main.read_text()
    editing.add("n", record)
    with pytest.raises(ConfigError) as caught:
        judge(editing, "n")
    assert caught.value.problems[0].startswith(f"{main}: {sentence}")
    assert caught.value.problems[-1] == "Nothing was written."
    assert main.read_text() == before


def test_a_missing_variable_is_no_reason_to_refuse(main: Path) -> None:
    """It may be set where the daemon runs; what is wrong with it set is wrong all the same."""
    editing = Editing.begin(str(main))
    editing.add("n", {"command": "x", "env": {"A": "${UNSET}", "B": "${SET}"}})
    (entry,) = judge(editing, "n")
    assert (entry.state, entry.lasting) == ("enabled", ())
    assert "the variable UNSET is not set" in entry.passing[0]
    editing.set("n", {"command": "x", "env": {"A": "${UNSET}", "": "1"}})
    with pytest.raises(ConfigError, match="a variable's name is not empty"):
        judge(editing, "n")


def test_remote_and_disabled_servers_may_be_written_before_they_run(main: Path) -> None:
    """A record is right even where this release cannot use it yet."""
    editing = Editing.begin(str(main))
    editing.add("r", {"url": "http://localhost/mcp"})
    editing.add("o", {"enabled": False})
    assert [entry.state for entry in judge(editing, "r", "o")] == ["disabled", "enabled"]


def test_a_broken_record_can_be_mended_or_taken_out(main: Path) -> None:
    """Only what results is judged; another server's trouble is not this one's."""
    broken: JsonValue = {"mcpServers": {"a": {"command": 1}, "b": {}}}
    write(main, broken)
    editing = Editing.begin(str(main))
    editing.unset("a")
    judge(editing, "a")
    editing.write()
    assert read(main) == {"mcpServers": {"b": {}}}


def test_an_edit_since_the_reading_is_kept(main: Path) -> None:
    """In any of the files that would be written, before the first of them is."""
    editing, before = Editing.begin(str(main)), main.read_text()
    editing.set("a", {"command": "y"})
    editing.set("dropped", {"command": "y"})
    drop_in = write(main.parent / "config.d" / "10.json", {"mcpServers": {"by": {"command": "h"}}})
    with pytest.raises(EditRefusedError, match=f"{drop_in} has changed since it was read"):
        editing.write()
    assert main.read_text() == before


def test_unknown_keys_warn_for_the_changed_server_only(main: Path) -> None:
    """As at `check`."""
    write(main, {"mcpServers": {"a": {"command": "x", "argv": []}}})
    editing = Editing.begin(str(main))
    editing.add("n", {"command": "x", "comand": "y"})
    _, warnings = editing.judge(["n"], {}, HOME)
    assert [warning.partition(": ")[2] for warning in warnings] == [
        "server 'n', field comand: this key is not known and is ignored; did you mean command?"
    ]
