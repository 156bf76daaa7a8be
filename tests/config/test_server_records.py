"""One server out of one record: arguments, environment, identity, secrets, problems."""

import json
from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from supervisor.config.accounts import Account
from supervisor.config.load import read_configuration
from supervisor.config.models import Configuration, Server
from supervisor.config.records import SERVER_KEYS
from supervisor.config.servers import Surroundings
from supervisor.core.errors import ConfigError
from supervisor.core.ids import ServerName
from supervisor.core.launch import LaunchSpec, StopPolicy

ROOT = Account(name="root", uid=0, gid=0, home="/root", login_shell="/bin/bash")
APP = Account(name="app", uid=1000, gid=100, home="/home/app", login_shell="/bin/zsh")
ENVIRON = {
    "HOME": "/home/app",
    "PATH": "/usr/bin:/bin",
    "TERM": "xterm",
    "LANG": "C.UTF-8",
    "LC_TIME": "de_DE",
    "TZ": "UTC",
    "TMPDIR": "/private",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "FX_TOKEN": "tok1",
    "REGION": "eu-north",
    "PORT": "80",
    "MCP_SUPERVISOR_CONFIG": "/etc/x",
    "LD_PRELOAD": "/evil.so",
}


class TwoUsers:
    """The accounts of a machine where only `root` and `app` live."""

    def user(self, user: int | str) -> Account | None:
        """See `Accounts`."""
        return next((entry for entry in (ROOT, APP) if user in (entry.uid, entry.name)), None)

    def group(self, name: str) -> int | None:
        """See `Accounts`."""
        return {"users": 100}.get(name)

    def groups_of(self, name: str, gid: int) -> tuple[int, ...]:
        """See `Accounts`."""
        return (7, gid) if name == "app" else (gid,)


def read(
    records: Mapping[str, JsonValue], daemon: Account = APP, path: str | None = None
) -> Configuration:
    """The configuration of these records, for this daemon."""
    text = json.dumps({"mcpServers": dict(records), "supervisor": {"path": path}})
    around = Surroundings(environ=ENVIRON, daemon=daemon, accounts=TwoUsers())
    return read_configuration(text, "f.json", around)


def server_of(record: JsonValue, daemon: Account = APP) -> Server:
    """The one server of a configuration."""
    return read({"git": record}, daemon).servers[ServerName("git")]


def launch_of(record: JsonValue, daemon: Account = APP) -> LaunchSpec:
    """How the one server is started; it must have no problems."""
    server = server_of(record, daemon)
    assert server.problems == ()
    assert server.launch is not None
    return server.launch


def test_references_and_the_home_directory_work_in_every_field() -> None:
    """One rule for command, args, env and cwd; what is no reference is left alone."""
    launch = launch_of(
        {
            "command": "~/bin/${REGION}",
            "args": ["${HOME}/db", "~/db", "${UNSET:-fallback}", "5$", "$${REGION}", "--x=~/y"],
            "env": {"COPY": "${FX_TOKEN}", "CACHE": "~/cache", "PLAIN": "a b"},
            "cwd": "~",
        }
    )

    assert launch.argv == (
        "/home/app/bin/eu-north",
        "/home/app/db",
        "/home/app/db",
        "fallback",
        "5$",
        "${REGION}",
        "--x=~/y",
    )
    assert launch.cwd == "/home/app"
    own = {key: launch.env[key] for key in ("COPY", "CACHE", "PLAIN")}
    assert own == {"COPY": "tok1", "CACHE": "/home/app/cache", "PLAIN": "a b"}


def test_a_missing_variable_keeps_only_its_own_server_from_starting() -> None:
    """And the sentence says which server, field and variable."""
    record: JsonValue = {
        "command": "x",
        "args": ["${GONE}"],
        "env": {"A": "${LOST}", "B": "${X:-${REGION}}"},
    }
    servers = read({"bad": record, "good": {"command": "x"}}).servers

    bad, good = servers[ServerName("bad")], servers[ServerName("good")]
    assert good.launch is not None
    assert bad.launch is None
    assert [problem.partition("; ")[0] for problem in bad.problems] == [
        f"f.json, line 1: server 'bad', field {field}"
        for field in (
            "args[0]: the variable GONE is not set in the daemon's environment",
            "env.A: the variable LOST is not set in the daemon's environment",
            "env.B: the default of X holds a reference, which is not possible",
        )
    ]


def test_a_server_gets_a_small_environment_and_nothing_else_of_the_daemon_s() -> None:
    """The daemon's tokens, loader settings and private directories are not for servers."""
    assert launch_of({"command": "x"}).env == {
        "HOME": "/home/app",
        "LANG": "C.UTF-8",
        "LC_TIME": "de_DE",
        "LOGNAME": "app",
        "PATH": "/usr/bin:/bin:/home/app/.local/bin",
        "SHELL": "/bin/zsh",
        "TERM": "xterm",
        "TZ": "UTC",
        "USER": "app",
    }


def test_the_search_path_can_be_set_for_all_servers_and_for_one() -> None:
    """Under systemd the daemon's own PATH finds neither npx nor uvx."""
    records: dict[str, JsonValue] = {
        "a": {"command": "x"},
        "b": {"command": "x", "env": {"PATH": "/own:${PATH}"}},
    }
    paths = [
        server.launch.env["PATH"]
        for server in read(records, path="/opt/bin").servers.values()
        if server.launch is not None
    ]

    assert paths == ["/opt/bin", "/own:/usr/bin:/bin"]


def test_numbers_and_booleans_become_text() -> None:
    """As the JavaScript clients that write such files hand them on."""
    record: JsonValue = {
        "command": "x",
        "env": {"A": 1, "B": True, "C": False, "D": 1.5, "E": 1e5, "F": -0.25, "G": ""},
    }
    env = launch_of(record).env

    assert [env[key] for key in "ABCDEFG"] == ["1", "true", "false", "1.5", "100000", "-0.25", ""]


LOADER_ENV: JsonValue = {
    "LD_PRELOAD": "${GONE}", "NODE_OPTIONS": "CANARY", "BASH_FUNC_x%%": "() { :; }", "LDAP": "y",
}  # fmt: skip


def test_loader_hooks_are_left_out_with_one_warning() -> None:
    """A record that is allowed to set variables is not thereby allowed to replace libraries."""
    configuration = read({"git": {"command": "x", "env": LOADER_ENV}})
    launch = configuration.servers[ServerName("git")].launch

    assert launch is not None
    assert not launch.env.keys() & {"LD_PRELOAD", "NODE_OPTIONS", "BASH_FUNC_x%%"}
    assert launch.env["LDAP"] == "y"
    (warning,) = configuration.warnings
    assert "server 'git', field env: 'BASH_FUNC_x%%', 'LD_PRELOAD', 'NODE_OPTIONS'" in warning
    assert "CANARY" not in warning


def test_loader_hooks_are_handed_on_when_the_record_says_so() -> None:
    """PYTHONPATH has honest uses."""
    record: JsonValue = {"command": "x", "env": {"PYTHONPATH": "~/lib"}, "allowLoaderEnv": True}

    assert launch_of(record).env["PYTHONPATH"] == "/home/app/lib"
    assert read({"git": record}).warnings == ()


def test_a_server_of_another_user_gets_that_user_s_home_and_groups() -> None:
    """`~`, HOME, USER, PATH and the default directory all belong to who runs it."""
    record: JsonValue = {"command": "~/s", "uid": "app", "noNewPrivileges": True}
    launch = launch_of(record, daemon=ROOT)

    assert (launch.uid, launch.gid, launch.groups) == (1000, 100, (7, 100))
    assert (launch.argv, launch.cwd) == (("/home/app/s",), "/home/app")
    assert (launch.env["USER"], launch.env["HOME"]) == ("app", "/home/app")
    assert launch.env["PATH"].endswith(":/home/app/.local/bin")
    assert launch.no_new_privileges


def test_a_daemon_that_is_not_root_cannot_start_a_server_of_another_user() -> None:
    """Better said when the file is read than when the kernel refuses."""
    problems = server_of({"command": "x", "uid": 0}).problems

    assert len(problems) == 1
    assert "server 'git', field uid: 0 is not the daemon's own (1000)" in problems[0]


def test_a_root_daemon_warns_of_servers_that_would_run_as_root() -> None:
    """A server off the internet should not own the machine by default."""
    record: JsonValue = {"command": "x"}
    disabled: JsonValue = {"command": "x", "enabled": False}
    user: JsonValue = {"command": "x", "uid": "app"}

    warnings = read({"a": record, "b": user, "c": disabled, "d": record}, daemon=ROOT).warnings

    assert len(warnings) == 1
    assert "'a', 'd'" in warnings[0]
    assert read({"b": user}, daemon=ROOT).warnings == ()


@pytest.mark.parametrize(
    ("stop", "instants"),
    [
        (None, (5.0, 2.0, 4.0)),
        ({}, (5.0, 2.0, 4.0)),
        ({"deadlineMs": 10000}, (10.0, 4.0, 8.0)),
        ({"deadlineMs": 1000, "termAfterMs": 0, "killAfterMs": 0}, (1.0, 0.0, 0.0)),
        ({"deadlineMs": 1000, "termAfterMs": 900}, (1.0, 0.9, 0.9)),
        ({"deadlineMs": 1000, "killAfterMs": 100}, (1.0, 0.1, 0.1)),
        ({"killAfterMs": 4999.5}, (5.0, 2.0, 4.9995)),
    ],
)
def test_the_stages_of_a_stop_follow_each_other(
    stop: JsonValue, instants: tuple[float, float, float]
) -> None:
    """What is not given makes room for what is."""
    deadline_s, term_after_s, kill_after_s = instants

    assert launch_of({"command": "x", "stop": stop}).stop == StopPolicy(
        deadline_s=deadline_s, term_after_s=term_after_s, kill_after_s=kill_after_s
    )


def test_secrets_are_known_by_origin_by_name_and_by_place() -> None:
    """These are masked in logs; short values and what everybody knows are not."""
    record: JsonValue = {
        "command": "x",
        "args": [
            "--api-key=arg-1",
            "--token",
            "arg-2",
            "http://u:arg-3@h/?sig=arg-4&page=page-1",
            "--region=${REGION}",
            "--home=${HOME}",
        ],
        "env": {
            "COPY": "a ${FX_TOKEN}",
            "PORT": "${PORT}",
            "DIFY_KEY": "env-1",
            "DATABASE_URL": "postgres://app:env-2@db/app",
            "STAGE": "production",
            "CACHE": "${HOME}/cache",
            "SHORT_KEY": "abc",
        },
    }

    assert launch_of(record).secrets == {
        "arg-1", "arg-2", "u:arg-3", "arg-3", "arg-4", "eu-north",
        "a tok1", "tok1", "env-1", "app:env-2", "env-2",
    }  # fmt: skip


@pytest.mark.parametrize("key", sorted(SERVER_KEYS - {"command"}))
def test_no_field_can_make_a_secret_appear(key: str) -> None:
    """Whatever is wrong with it: errors, problems, warnings and displays are free of it."""
    wrong: tuple[JsonValue, ...] = ("CANARY", ["--token", "CANARY"], {"TOKEN": "CANARY"})
    for value in (*wrong, {"A": wrong[1]}, "http://u:CANARY@h/?key=CANARY"):
        try:
            shown = repr(read({"git": {"command": "x", key: value}}, daemon=ROOT))
            shown += repr(read({"git": {"url": "http://h/", key: value}}))
        except ConfigError as error:
            shown = str(error)
        # an address without any sign of a secret stays readable
        assert "CANARY" not in shown.replace("command='CANARY'", "")


def test_the_command_is_shown_as_written_and_without_secrets() -> None:
    """References stay references, so no value of the environment can get out this way."""
    record: JsonValue = {
        "command": "~/x",
        "args": ["--token", "CANARY", "${REGION}", "a b", "", "\u001b[1m"],
    }

    server = server_of(record)

    assert server.command == "~/x --token *** ${REGION} 'a b' '' \\x1b[1m"


def test_a_directory_is_absolute_and_its_absence_is_known() -> None:
    """Without one, the directory of a connecting client may be used instead."""
    assert server_of({"command": "x", "cwd": "/srv"}).cwd_given
    assert not server_of({"command": "x"}).cwd_given
    assert not server_of({"command": "x", "cwd": ""}).cwd_given
    assert "field cwd:" in server_of({"command": "x", "cwd": "srv"}).problems[0]


def test_a_variable_without_a_possible_name_is_a_problem() -> None:
    """It would silently become another variable."""
    assert len(server_of({"command": "x", "env": {"A=B": "1", "": "2"}}).problems) == 2


@pytest.mark.parametrize(
    ("record", "transport", "words"),
    [
        ({"url": "http://u:CANARY@h/"}, "streamable-http", "field url: remote servers come with a"),
        (
            {"url": "http://h", "type": "http"},
            "streamable-http",
            "remote servers come with a later",
        ),
        ({"url": "http://h", "type": "http", "transport": "SSE"}, "sse", "remote servers come"),
        ({"url": "http://h", "transport": "carrier-pigeon"}, "unknown", "field transport:"),
        ({"url": "http://h", "type": "ws"}, "unknown", "field type:"),
        ({"url": "http://h", "transport": "stdio"}, "stdio", "there is no command"),
        ({"command": " ", "url": ""}, "stdio", "there is no command"),
        ({}, "stdio", "there is no command"),
    ],
)
def test_what_is_no_stdio_server_has_a_problem_and_harms_nobody(
    record: JsonValue, transport: str, words: str
) -> None:
    """Its sentence says why, and no secret of its address is shown."""
    server = server_of(record)

    assert (server.transport, server.launch) == (transport, None)
    assert words in server.problems[0]
    assert "CANARY" not in repr(server)


def test_a_command_wins_over_an_address() -> None:
    """As in every client that writes both."""
    assert launch_of({"command": "x", "url": "http://h", "transport": "sse"}).argv == ("x",)


def test_a_disabled_server_keeps_its_record() -> None:
    """It is listed, and whoever enables it learns then what is wrong with it."""
    server = server_of({"command": "x", "enabled": False})

    assert not server.enabled
    assert server.launch is not None
    off: JsonValue = {"command": "x", "enabled": False, "env": LOADER_ENV}
    assert read({"git": off}).warnings == ()
