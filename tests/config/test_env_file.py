"""Variables from a file: how lines are read, who wins, and what is told of a bad one."""

import json
import os
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import JsonValue

from supervisor.config.env_file import parse_env_file
from supervisor.config.load import load_configuration
from supervisor.config.models import Server


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=plain", "plain"),
        ("A = spaced out ", "spaced out"),
        ("export A=x", "x"),
        ("A=", ""),
        ("A=a=b", "a=b"),
        ("A=x # a comment", "x"),
        ("A=x#y", "x#y"),
        ("A=#x", "#x"),
        ("A= # a comment", ""),
        ("A='a # b' # a comment", "a # b"),
        ("A='a\\n'", "a\\n"),
        (r'A="a\nb\t\"\\\$\x"', 'a\nb\t"\\$\\x'),
        ('A=""', ""),
        ('A=it"s', 'it"s'),
        ("A=${HOME}", "${HOME}"),
        ("A=~/x", "~/x"),
        ("A=x\r", "x"),
        ("A='ü'", "ü"),
    ],
)
def test_a_line_sets_a_variable(line: str, value: str) -> None:
    """As a shell would, without its expansions: a secret may hold any character."""
    found = parse_env_file(f"# a comment\n\n{line}\n")

    assert (found.variables, found.problems) == ({"A": value}, ())


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("A=1\nCANARY\n", "line 2 is no NAME=value"),
        ("1A=CANARY", "line 1 is no NAME=value"),
        ("=CANARY", "line 1 is no NAME=value"),
        ("CANARY B=1", "line 1 is no NAME=value"),
        ("A='CANARY", "line 1 has a quote that does not end"),
        ('A="CANARY\\"', "line 1 has a quote that does not end"),
        ("A='x' CANARY", "line 1 has a quote that does not end, or text after it"),
        ("A=\n\nA=CANARY", "lines 1 and 3 both set A"),
        ("A=CAN\0ARY", "line 1 holds a NUL character"),
    ],
)
def test_a_bad_line_is_told_by_its_number_and_not_shown(text: str, clause: str) -> None:
    """A typing mistake can put a secret anywhere, and the others are still read."""
    found = parse_env_file(f"{text}\nGOOD=1")

    assert len(found.problems) == 1
    assert found.problems[0].startswith(clause)
    assert "CANARY" not in repr(found)
    assert found.variables["GOOD"] == "1"


@given(st.text(max_size=60))
def test_any_text_is_read_or_told_of(text: str) -> None:
    """Whatever the file holds, reading it does not fail."""
    found = parse_env_file(text)

    assert found.variables or found.problems or not text.strip() or "#" in text


def server_of(folder: Path, record: dict[str, JsonValue]) -> Server:
    """The server of a file in `folder`, for a daemon with its own variable X."""
    file = folder / "config.json"
    file.write_text(json.dumps({"mcpServers": {"git": {"command": "x", **record}}}), "utf-8")
    (server,) = load_configuration(str(file), {"X": "daemon"}, home=str(folder)).servers.values()
    return server


def env_of(folder: Path, record: dict[str, JsonValue]) -> dict[str, str]:
    """The environment of that server, which has no problems."""
    server = server_of(folder, record)
    assert server.problems == ()
    assert server.launch is not None
    return dict(server.launch.env)


def test_env_wins_over_the_file_and_the_file_over_the_base(tmp_path: Path) -> None:
    """What stands in the record is nearer to whoever reads it."""
    (tmp_path / ".env").write_text("A=file\nB=file\nPATH=/file\n")

    env = env_of(tmp_path, {"envFile": ".env", "env": {"B": "record"}})

    assert (env["A"], env["B"], env["PATH"]) == ("file", "record", "/file")


@pytest.mark.parametrize("written", [".env", "~/.env", "${HERE}/.env", "./../{name}/.env"])
def test_its_path_is_relative_to_the_configuration(
    tmp_path: Path, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never to where the daemon happens to run; `~` and references work as elsewhere."""
    monkeypatch.chdir("/")
    (tmp_path / ".env").write_text("A=1")
    written = written.replace("${HERE}", "${UNSET:-" + str(tmp_path) + "}")

    assert env_of(tmp_path, {"envFile": written.replace("{name}", tmp_path.name)})["A"] == "1"


def test_references_are_the_daemon_s_and_not_the_file_s(tmp_path: Path) -> None:
    """One rule for references; a file can neither feed them nor hold them."""
    (tmp_path / ".env").write_text("X=file\nY=${X}\n")

    env = env_of(tmp_path, {"envFile": ".env", "env": {"COPY": "${X}"}})

    assert (env["X"], env["Y"], env["COPY"]) == ("file", "${X}", "daemon")


def test_a_file_that_cannot_be_used_keeps_its_server_from_starting(tmp_path: Path) -> None:
    """A server without its token fails later, far from the cause."""
    (tmp_path / "latin").write_bytes(b"A=1\nB=\xff")
    (tmp_path / "large").write_bytes(b"#" * (1024 * 1024 + 1))
    (tmp_path / "bad").write_text("A=1\nCANARY\n'")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    where = f"{tmp_path}/config.json, line 1: server 'git', field envFile: "
    unset = "the variable UNSET is not set in the daemon's environment"

    told = {
        name: server_of(tmp_path, {"envFile": name}).problems
        for name in ("gone", "latin", "large", "bad", "folder", "fifo", "${UNSET}")
    }

    assert {name: [text.removeprefix(where) for text in texts] for name, texts in told.items()} == {
        "gone": ["that file does not exist; create it, or take envFile out."],
        "latin": ["that file, line 2: this is no UTF-8; save the file in that encoding."],
        "large": ["that file is larger than 1 MiB, so it is not what it is taken for."],
        "bad": [
            f'in that file, line {number} is no NAME=value; write one, or start it with "#".'
            for number in (2, 3)
        ],
        "folder": ["that file cannot be read: Is a directory."],
        "fifo": ["that file is no regular file; name one, or take this one out."],
        "${UNSET}": [f"{unset}; set it there, or write a default: ${{UNSET:-...}}."],
    }


def test_loader_hooks_of_the_file_are_left_out_as_those_of_the_record(tmp_path: Path) -> None:
    """Otherwise the file would be the way around the rule."""
    (tmp_path / ".env").write_text("LD_PRELOAD=CANARY\nPYTHONPATH=/x\nA=1\n")

    left = env_of(tmp_path, {"envFile": ".env"})
    allowed = env_of(tmp_path, {"envFile": ".env", "allowLoaderEnv": True})

    assert left["A"] == "1"
    assert not left.keys() & {"LD_PRELOAD", "PYTHONPATH"}
    assert allowed["PYTHONPATH"] == "/x"
    server_of(tmp_path, {"envFile": ".env"})
    warnings = load_configuration(str(tmp_path / "config.json"), {}, home="/").warnings
    assert sum("field envFile: 'LD_PRELOAD', 'PYTHONPATH' left out" in w for w in warnings) == 1


def test_what_a_file_holds_is_masked_unless_it_is_plain(tmp_path: Path) -> None:
    """Secrets are what people put there; masking every `info` would make logs unreadable."""
    (tmp_path / ".env").write_text(
        "DIFY_KEY=letters\nSESSION=s3cr3t\nLEVEL=info\nPORT=8080\nPATH=/opt/bin\n"
        "DB=postgres://app:hunter2@db/app\n"
    )

    launch = server_of(tmp_path, {"envFile": ".env"}).launch

    assert launch is not None
    assert launch.secrets == {
        "letters", "s3cr3t", "postgres://app:hunter2@db/app", "app:hunter2", "hunter2",
    }  # fmt: skip
