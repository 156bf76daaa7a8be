"""How the daemon finds the revision of each server, and how it names what servers offer.

Source: design sections 10 and 16.
"""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from real_daemon.daemon_fixture import running_daemon
from real_daemon.diaries import Stage, call, edit, open_session, stage, text_of, tool_names

DISCOVER: Final = ("error", "params", "null-id", "junk", "silent", "dies", "modern")
"""What servers do when they are asked for the newest revision."""

NAMES: Final = ("my.server", "my_server", "My.Server", "../evil")
TOOLS: Final = "read-file,read_file,read.file,read_file"


@pytest.fixture
def on_stage() -> Iterator[Stage]:
    """A folder of diaries."""
    with stage() as made:
        yield made


@pytest.mark.parametrize("mode", DISCOVER)
def test_whatever_a_server_does_with_the_new_question_it_is_usable_and_remembered(
    on_stage: Stage, mode: str
) -> None:
    """Nothing but a proper answer is proof of a new server; and the price is paid once."""
    options = (f"discover={mode}",) + (() if mode == "modern" else ("version=2025-06-18",))
    version = "2026-07-28" if mode == "modern" else "2025-06-18"
    with running_daemon({"old": on_stage.record("old", *options)}) as daemon:
        open_session(daemon, "s")
        assert text_of(call(daemon, "s", "old__echo", {"text": "hi"})) == "hi"
        (instance,) = daemon.instances()
        assert (instance["protocol_version"], instance["state"]) == (version, "ready")
        assert daemon.server("old")["exits"] == 0, "dying of a question is no crash"
        assert daemon.server("old")["error"] is None
        assert on_stage["old"].count("server/discover") == 1

        restarted = daemon.api("POST", "/v1/servers/old/restart", {"session": "s"})
        assert restarted["outcome"] == "confirmed"
        assert text_of(call(daemon, "s", "old__echo", {"text": "hi"})) == "hi"
        assert daemon.instances()[0]["protocol_version"] == version
        probe = daemon.mcpctl_json("probe", "old")
        assert (probe["ok"], probe["protocol_version"]) == (True, version)
        assert probe["how"] == "remembered"
        asked = on_stage["old"].count("server/discover")
        assert asked == (3 if mode == "modern" else 1)
        envelopes = {"_meta" in made["params"] for made in on_stage["old"].calls("echo")}
        assert envelopes == {mode == "modern"}


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1999-01-01", "offers protocol 1999-01-01; supported: 2024-11-05, 2025-03-26, "),
        ("2024-10-07", "offers protocol 2024-10-07; supported: 2024-11-05, 2025-03-26, "),
        ("none", "answers initialize without a protocolVersion"),
    ],
)
def test_a_server_of_no_known_revision_is_refused_with_the_list_and_stopped(
    on_stage: Stage, version: str, said: str
) -> None:
    """The same configuration would get the same answer, so nobody tries again by himself."""
    records = {
        "odd": on_stage.record("odd", f"version={version}"),
        "well": on_stage.record("well"),
    }
    with running_daemon(records) as daemon:
        open_session(daemon, "s")
        answer = daemon.api("GET", "/v1/sessions/s/tools")
        assert {tool["name"].partition("__")[0] for tool in answer["tools"]} == {"well"}
        (diagnostic,) = answer["diagnostics"]
        assert said in diagnostic
        started = daemon.log.wait_for("instance_started", server="odd")
        report = daemon.wait_judged(started["instance"])
        assert (report["reason"], report["outcome"]) == ("start_failed", "confirmed")
        server = daemon.server("odd")
        assert server["state"] == "failed"
        assert said in server["error"]
        # nothing was sent after the bad answer
        heard = [entry["heard"] for entry in on_stage["odd"].entries() if "heard" in entry]
        assert heard == ["server/discover", "initialize"]
        assert daemon.log.events("restart_scheduled", server="odd") == []
        assert on_stage["odd"].starts() == 1
        again = open_session(daemon, "s")
        assert (again["reused"], len(again["diagnostics"])) == (True, 1)
        for key in ("s", "other"):
            answer = daemon.api("GET", f"/v1/sessions/{key}/tools")
            assert answer["diagnostics"] == [diagnostic]
        assert on_stage["odd"].starts() == 1
        # whoever asks for it by hand has changed something, perhaps the program itself
        probe = daemon.mcpctl_json("probe", "odd", code=1)
        assert said in probe["error"]
        assert on_stage["odd"].starts() == 2
        daemon.start_server("odd", session="s")
        answer = daemon.api("GET", "/v1/sessions/s/tools")
        assert answer["diagnostics"] == [diagnostic]
        assert on_stage["odd"].starts() == 3


def test_a_short_limit_leaves_time_for_an_old_server_that_is_silent_first(
    on_stage: Stage,
) -> None:
    """The question for the newest revision may not use up the time of the handshake."""
    records = {
        "old": on_stage.record("old", "discover=silent", connectionTimeoutMs=1500),
        "mute": on_stage.record("mute", "discover=silent", "mute=yes", connectionTimeoutMs=1500),
    }
    with running_daemon(records) as daemon:
        open_session(daemon, "s")
        assert text_of(call(daemon, "s", "old__echo", {"text": "hi"})) == "hi"
        problem = call(daemon, "s", "mute__echo", status=504)
        assert (problem["limit_s"], problem["setting"]) == (1.5, "connectionTimeoutMs")
        assert "within 1.5 s; connectionTimeoutMs sets" in problem["detail"]
        started = daemon.log.wait_for("instance_started", server="mute")
        report = daemon.wait_judged(started["instance"])
        assert (report["reason"], report["outcome"]) == ("start_failed", "confirmed")


def test_names_that_fall_together_are_told_apart_and_reach_the_right_tool(
    on_stage: Stage,
) -> None:
    """A call that reaches the wrong server is worse than one that fails."""
    records = {
        name: on_stage.record(label, f"tools={TOOLS}")
        for name, label in zip(NAMES, ("dot", "underscore", "capital", "path"), strict=True)
    }
    with running_daemon(records) as daemon:
        open_session(daemon, "s")
        answer = daemon.api("GET", "/v1/sessions/s/tools")
        names = [tool["name"] for tool in answer["tools"]]
        assert len(names) == len({name.lower() for name in names}) == 3 * len(NAMES)
        assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzMS_-23") for name in names), names
        assert sum("read_file" in text and "2 times" in text for text in answer["diagnostics"]) == 4
        reached = {text_of(call(daemon, "s", name)) for name in names}
        wanted = {"read-file", "read_file", "read.file"}
        labels = ("dot", "underscore", "capital", "path")
        assert reached == {f"{label}:{tool}" for label in labels for tool in wanted}
        before = dict(zip(names, answer["tools"], strict=True))

        # no file of the daemon's lies outside its folders
        outside = {path.name for path in daemon.home.iterdir()}
        assert outside == {"config.json", "run", "state"}
        assert sorted(view["name"] for view in daemon.api("GET", "/v1/servers")["servers"]) == (
            sorted(NAMES)
        )

        # a neighbour that lists nothing any more does not pass its names on
        edit(daemon, **{"My.Server": {"command": "mcp-no-such-command"}})
        after = daemon.api("GET", "/v1/sessions/s/tools")
        left = [tool["name"] for tool in after["tools"]]
        assert len(left) == 9
        assert set(left) < set(before)
        assert {text_of(call(daemon, "s", name)) for name in left} == {
            f"{label}:{tool}" for label in labels if label != "capital" for tool in wanted
        }


def test_a_key_that_stands_twice_in_the_configuration_is_refused_by_name(
    on_stage: Stage,
) -> None:
    """JSON's readers keep the last one, silently; the first server would be gone."""
    with running_daemon({"files": on_stage.record("files")}) as daemon:
        open_session(daemon, "s")
        tool_names(daemon, "s")
        record = json.dumps(on_stage.record("files"))
        twice = f'{{"mcpServers": {{"files": {record}, "files": {record}}}}}'
        daemon.config_file.write_text(twice, "utf-8")
        problem = daemon.api("POST", "/v1/reload", status=409)
        assert problem["code"] == "config_invalid"
        assert "files" in problem["detail"]
        assert [view["server"] for view in daemon.instances()] == ["files"]
