"""The main file and the drop-ins beside it are one configuration, or refused all at once."""

import json
import os
from pathlib import Path

import pytest
from pydantic import JsonValue

from supervisor.config.load import load_configuration, read_documents
from supervisor.config.models import Configuration
from supervisor.core.errors import ConfigError


def write(path: Path, content: JsonValue | str) -> Path:
    """Write JSON, or text as it is, and make the folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def load(main: Path, *, required: bool = False) -> Configuration:
    """The configuration of a daemon with a nearly empty environment."""
    return load_configuration(str(main), {}, home="/home/app", required=required)


def problems_of(main: Path, *, required: bool = False) -> list[str]:
    """The sentences, with the folder of the main file left out."""
    with pytest.raises(ConfigError) as caught:
        load(main, required=required)
    return [problem.replace(f"{main.parent}/", "") for problem in caught.value.problems]


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """Where the main file is, or would be."""
    return tmp_path / "config.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of drop-ins; it exists."""
    folder = tmp_path / "config.d"
    folder.mkdir()
    return folder


def servers(*names: str) -> dict[str, JsonValue]:
    """A file with such servers."""
    return {"mcpServers": {name: {"command": "x"} for name in names}}


def test_drop_ins_add_servers_and_settings(main: Path, folder: Path) -> None:
    """A package or a playbook drops a file and edits none."""
    write(main, servers("b") | {"supervisor": {"maxInstances": 3}})
    write(folder / "20-more.json", {"mcp": {"servers": {"a": {"command": "x"}}}})
    write(folder / "10-limits.json", {"supervisor": {"startConcurrency": 2}})

    configuration = load(main)

    assert list(configuration.servers) == ["a", "b"]
    assert configuration.settings.max_instances == 3
    assert configuration.settings.start_concurrency == 2
    assert configuration.file == str(main)
    assert configuration.files == (
        str(main),
        str(folder / "10-limits.json"),
        str(folder / "20-more.json"),
    )


def test_drop_ins_are_read_in_the_order_of_their_names(main: Path, folder: Path) -> None:
    """Problems and warnings come in the same order on every file system."""
    for name in ("b", "10", "c", "B", "9", "a", "é"):
        write(folder / f"{name}.json", {})

    names = [Path(file).stem for file in load(main).files]

    assert names == ["10", "9", "B", "a", "b", "c", "é"]


def test_settings_of_a_drop_in_hold_for_the_servers_of_every_file(main: Path, folder: Path) -> None:
    """The order of the files must not decide what a server gets."""
    write(main, servers("a"))
    write(folder / "z.json", {"supervisor": {"path": "/opt/bin", "maxLineBytes": 5000}})

    (server,) = load(main).servers.values()

    assert server.launch is not None
    assert server.launch.env["PATH"] == "/opt/bin"
    assert server.calls.max_line_bytes == 5000


def test_only_visible_json_files_are_drop_ins(main: Path, folder: Path) -> None:
    """Editors leave `.x.json.swp`, `x.json~` and dangling `.#x.json` behind."""
    write(main, servers("a"))
    write(folder / "x.json~", "{")
    write(folder / "README", "{")
    write(folder / "x.json.bak", "{")
    (folder / ".#x.json").symlink_to("nobody@nowhere")

    assert load(main).files == (str(main),)


def test_drop_ins_alone_are_a_configuration(main: Path, folder: Path) -> None:
    """Without a main file; unless somebody named one."""
    write(folder / "a.json", servers("a"))

    configuration = load(main)

    assert (configuration.file, configuration.files) == (None, (str(folder / "a.json"),))
    assert list(configuration.servers) == ["a"]
    assert not [text for text in configuration.warnings if "does not exist" in text]
    assert problems_of(main, required=True)[0].startswith("config.json does not exist")


def test_a_server_in_two_files_is_refused_with_both_places(main: Path, folder: Path) -> None:
    """Whichever won, somebody's calls would go to the wrong one."""
    write(main, '{"mcpServers": {\n"a": {"command": "x"},\n"b": {"command": "x"}}}')
    write(folder / "1.json", '{"mcp": {"servers":\n\n\n{"b": {"command": "y"}}}}')
    write(folder / "2.json", '{\n"mcpServers": {"b": {"command": "z"}, "c": {"command": "x"}}}')

    twice = (
        "server 'b': this server stands in config.json, line 3 as well; take one of the two out."
    )
    assert problems_of(main) == [
        f"config.d/1.json, line 4: {twice}",
        f"config.d/2.json, line 2: {twice}",
    ]


def test_a_setting_in_two_files_is_refused_with_both_places(main: Path, folder: Path) -> None:
    """Null is the same as leaving it out, and other settings may be anywhere."""
    write(main, '{"supervisor": {"path": null, "startConcurrency": 1,\n"maxInstances": 4}}')
    write(folder / "1.json", {"supervisor": {"path": "/bin"}})
    write(folder / "2.json", '{"supervisor":\n{\n"maxInstances": 4}}')

    (problem,) = problems_of(main)
    assert problem == (
        "config.d/2.json, line 3: supervisor.maxInstances: this setting stands in config.json, "
        "line 2 as well; take one of the two out."
    )


def test_an_unknown_key_may_stand_in_every_file(main: Path, folder: Path) -> None:
    """`$schema`, and notes that people leave: warned of by file and line, not refused."""
    note: JsonValue = {"$schema": "x", "supervisor": {"//": "a note"}}
    write(main, note)
    write(folder / "1.json", note)

    warnings = load(main).warnings

    assert [warning.partition(":")[0] for warning in warnings] == [
        f"{main}, line 1",
        f"{folder}/1.json, line 1",
    ]


def test_all_problems_of_all_files_are_told_at_once(main: Path, folder: Path) -> None:
    """One is no JSON, one no UTF-8, one is wrong twice, one leads nowhere."""
    write(main, '{"mcpServers": {"a":\n{"command": 5}}}')
    write(folder / "1.json", '{\n"mcpServers": {,}}')
    (folder / "2.json").write_bytes(b'{"x":\n"\xff"}')
    write(folder / "3.json", '{"mcpServers": {"a": {"args": 5}},\n"supervisor": {"path": 1}}')
    (folder / "4.json").symlink_to("nowhere")
    (folder / "5.json").mkdir()
    (folder / "6\n.json").write_text("{}")

    told = problems_of(main)

    assert [text.partition(": ")[0] for text in sorted(told)] == [
        "config.d holds '6\\n.json', a name that cannot be shown; rename that file.",
        "config.d/1.json, line 2, column 16",
        "config.d/2.json, line 2",
        "config.d/3.json, line 1",
        "config.d/3.json, line 1",
        "config.d/3.json, line 2",
        "config.d/4.json does not exist; mend the link, or take it out.",
        "config.d/5.json cannot be read",
        "config.json, line 2",
    ]


def test_a_fifo_among_the_drop_ins_is_refused_and_not_waited_for(main: Path, folder: Path) -> None:
    """The start of the daemon would hang until somebody writes into it."""
    os.mkfifo(folder / "a.json")

    assert problems_of(main) == [
        "config.d/a.json is no regular file; name one, or take this one out."
    ]


def test_a_main_file_may_be_a_pipe() -> None:
    """`--config <(generate)` is how a shell hands over what is in no file."""
    reader, writer = os.pipe()
    try:
        os.write(writer, b'{"mcpServers": {"a": {"command": "x"}}}')
        os.close(writer)
        assert list(load(Path(f"/proc/self/fd/{reader}")).servers) == ["a"]
    finally:
        os.close(reader)


def test_something_else_in_place_of_the_folder_is_told(main: Path) -> None:
    """Silence would leave its servers out."""
    write(main, servers("a"))
    (main.parent / "config.d").write_text("")

    assert problems_of(main) == ["config.d cannot be read: Not a directory."]


def test_each_file_warns_of_its_own_servers_only(main: Path, folder: Path) -> None:
    """A warning names the file in which the record stands."""
    write(main, {"mcpServers": {"a": {"command": "x", "comand": "y"}}})
    write(folder / "1.json", {"mcpServers": {"b": {"command": "x", "arg": []}}})

    unknown = [text for text in load(main).warnings if "not known" in text]

    assert [text.partition(", field")[0] for text in unknown] == [
        f"{main}, line 1: server 'a'",
        f"{folder}/1.json, line 1: server 'b'",
    ]


def test_the_documents_can_be_had_as_they_are_written(main: Path, folder: Path) -> None:
    """Advice about literal secrets needs the texts, not what they became."""
    write(main, servers("a"))
    write(folder / "1.json", '{"mcpServers": 5}')

    assert [document.file for document in read_documents(str(main))] == [
        str(main),
        str(folder / "1.json"),
    ]
    write(folder / "1.json", "{")
    with pytest.raises(ConfigError):
        read_documents(str(main))
