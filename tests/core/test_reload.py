"""A reload moves only what differs, whatever the file looks like."""

import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import JsonValue

from supervisor.config.load import load_configuration
from supervisor.config.states import state_of
from supervisor.core.ids import ServerName
from supervisor.core.reload import ReloadPlan, ServerState, plan_reload

KEY = bytes(32)
States = dict[ServerName, ServerState]

NAMES = st.sampled_from([ServerName(name) for name in ("a", "b", "c", "d", "B")])
STATES = st.builds(
    ServerState, fingerprint=st.sampled_from([None, "1", "2"]), settings=st.sampled_from([1, 2])
)
MAPS = st.dictionaries(NAMES, STATES)


def groups(plan: ReloadPlan) -> dict[str, tuple[ServerName, ...]]:
    """The plan by name of its groups."""
    return {name: getattr(plan, name) for name in ReloadPlan.__slots__}


@given(MAPS, MAPS)
def test_every_server_is_in_exactly_one_group(before: States, after: States) -> None:
    """One in none would keep old arguments, one in two would be started twice."""
    found = groups(plan_reload(before, after))

    names = [name for group in found.values() for name in group]
    assert sorted(names) == sorted(before.keys() | after.keys())
    assert all(list(group) == sorted(group) for group in found.values())
    assert set(found["added"]) == after.keys() - before.keys()
    assert set(found["removed"]) == before.keys() - after.keys()


@given(MAPS, MAPS)
def test_what_differs_decides_about_what_stands_in_both(before: States, after: States) -> None:
    """Its processes move with the fingerprint alone."""
    plan = plan_reload(before, after)

    for name in before.keys() & after.keys():
        same = before[name].fingerprint == after[name].fingerprint
        assert (name in plan.changed) == (not same)
        assert (name in plan.retuned) == (same and before[name] != after[name])


@given(MAPS)
def test_nothing_differs_between_equals(states: States) -> None:
    """A reload of the same file starts and ends nothing, in whatever order it is read."""
    again = dict(reversed(list(states.items())))

    assert plan_reload(states, again) == ReloadPlan(
        unchanged=tuple(sorted(states)), changed=(), retuned=(), added=(), removed=()
    )


def test_settings_are_not_shown() -> None:
    """They hold the secrets to mask."""
    assert "CANARY" not in repr(ServerState(fingerprint=None, settings="CANARY"))


ALPHA: dict[str, JsonValue] = {
    "command": "python3",
    "args": ["server.py", "alpha"],
    "env": {"A": "1", "B": "2"},
}
BETA: dict[str, JsonValue] = {"command": "python3", "args": ["server.py", "beta", "old"]}


class Folder:
    """A folder with a configuration that is written again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(
        self, servers: JsonValue, *, more: JsonValue = None, name: str = "config.json"
    ) -> Path:
        """Write a file with these servers."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        top = more if isinstance(more, dict) else {}
        file.write_text(json.dumps({**top, "mcpServers": servers}), "utf-8")
        return file

    def states(self) -> States:
        """The states of what stands there now."""
        environ = {"OLD": "old", "PATH": "/bin"}
        configuration = load_configuration(str(self.path / "config.json"), environ, home="/")
        return {name: state_of(server, KEY) for name, server in configuration.servers.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with alpha and beta."""
    folder = Folder(tmp_path)
    folder.write({"alpha": ALPHA, "beta": BETA})
    return folder


def test_a_file_that_only_looks_different_changes_nothing(folder: Folder) -> None:
    """Order of keys, notes, line breaks, written-down defaults and empty objects."""
    before = folder.states()
    beta: JsonValue = {
        "//": "a note",
        "description": "a description",
        "env": {},
        "restart": {"policy": "transient"},
        "requestTimeoutMs": 60000,
        "stop": {"deadlineMs": 5000},
        "enabled": True,
        **dict(reversed(BETA.items())),
    }
    alpha: JsonValue = {"env": {"B": "2", "A": "1"}, **dict(reversed(ALPHA.items())), "cwd": None}
    file = folder.write({"beta": beta, "alpha": alpha}, more={"$schema": "x"})
    file.write_text(json.dumps(json.loads(file.read_text()), indent=7))

    plan = plan_reload(before, folder.states())

    assert plan.unchanged == ("alpha", "beta")


def test_a_server_that_moves_to_a_drop_in_stays_as_it_is(folder: Folder) -> None:
    """Whoever tidies up should not end anybody's work."""
    before = folder.states()
    folder.write({"alpha": ALPHA})
    folder.write({"beta": BETA}, name="config.d/beta.json")

    assert plan_reload(before, folder.states()).unchanged == ("alpha", "beta")


def test_only_what_differs_moves(folder: Folder) -> None:
    """New arguments replace beta; gamma comes, and goes on the way back; alpha is left alone."""
    before = folder.states()
    new: JsonValue = {**BETA, "args": ["server.py", "beta", "new"]}
    folder.write({"alpha": ALPHA, "beta": new, "gamma": BETA})
    after = folder.states()

    assert groups(plan_reload(before, after)) == {
        "unchanged": ("alpha",),
        "changed": ("beta",),
        "retuned": (),
        "added": ("gamma",),
        "removed": (),
    }
    assert plan_reload(after, before).removed == ("gamma",)


@pytest.mark.parametrize(
    "more",
    [
        {"requestTimeoutMs": 5000},
        {"restart": "temporary"},
        {"idleTimeoutMs": 0},
        {"autostart": True},
        {"maxLineBytes": 5000},
        {"stop": {"deadlineMs": 100}},
    ],
)
def test_limits_and_policies_apply_without_a_restart(
    folder: Folder, more: dict[str, JsonValue]
) -> None:
    """A longer time limit is no reason to end a session's browser."""
    before = folder.states()
    folder.write({"alpha": ALPHA, "beta": {**BETA, **more}})

    plan = plan_reload(before, folder.states())

    assert (plan.retuned, plan.unchanged) == (("beta",), ("alpha",))


def test_a_limit_of_all_servers_retunes_those_without_their_own(folder: Folder) -> None:
    """The daemon's setting is part of what a server without one has."""
    folder.write({"alpha": ALPHA, "beta": {**BETA, "maxLineBytes": 5000}})
    before = folder.states()
    folder.write(
        {"alpha": ALPHA, "beta": {**BETA, "maxLineBytes": 5000}},
        more={"supervisor": {"maxLineBytes": 6000}},
    )

    assert plan_reload(before, folder.states()).retuned == ("alpha",)


@pytest.mark.parametrize(
    "more",
    [{"protocol": "modern"}, {"cwd": "/srv"}, {"env": {"A": "1"}}, {"enabled": False},
     {"scope": "shared"}, {"args": ["${GONE}"]}],
)  # fmt: skip
def test_what_a_process_sees_or_forbids_it_replaces_it(
    folder: Folder, more: dict[str, JsonValue]
) -> None:
    """A server that is switched off, or can no longer start, does not stay either."""
    before = folder.states()
    folder.write({"alpha": ALPHA, "beta": {**BETA, **more}})

    assert plan_reload(before, folder.states()).changed == ("beta",)


def test_a_reference_in_place_of_its_value_restarts_nothing(folder: Folder) -> None:
    """What the process sees is the same; only what is masked is new."""
    before = folder.states()
    folder.write({"alpha": ALPHA, "beta": {**BETA, "args": ["server.py", "beta", "${OLD}"]}})

    assert plan_reload(before, folder.states()).changed == ()


def test_variables_of_an_environment_file_count_and_its_comments_do_not(folder: Folder) -> None:
    """The process sees them; who changes a token there wants it used."""
    folder.write({"alpha": ALPHA, "beta": {**BETA, "envFile": "x.env"}})
    variables = folder.path / "x.env"
    variables.write_text("A=1\nB=2\n")
    before = folder.states()

    variables.write_text("# a comment\nexport B='2'\n\nA=1 # another\n")
    assert plan_reload(before, folder.states()).unchanged == ("alpha", "beta")
    variables.write_text("A=1\nB=3\n")
    assert plan_reload(before, folder.states()).changed == ("beta",)


def test_a_broken_server_stays_unchanged_while_it_is_broken(folder: Folder) -> None:
    """Its sentence names another line now, which moves nothing."""
    folder.write({"alpha": {"args": ["${GONE}"], "command": "x"}})
    before = folder.states()
    file = folder.write({"alpha": {"args": ["${GONE}"], "command": "x"}})
    file.write_text("\n\n\n" + file.read_text())

    assert plan_reload(before, folder.states()).unchanged == ("alpha",)
