"""Where the daemon's files are: both programs and the shim find the same places."""

import pytest

from supervisor.core.places import MAX_SOCKET_PATH_BYTES, Places, find_places

HOME = "/home/ada"


def places(environ: dict[str, str] | None = None, uid: int = 1000, **flags: str) -> Places:
    """The places of a user."""
    return find_places(environ or {}, uid, HOME, **flags)


def all_of(found: Places) -> tuple[str, str, str]:
    """Configuration, state and runtime."""
    return found.config_file, found.state_dir, found.runtime_dir


def test_a_user_without_xdg_variables_gets_the_specifications_defaults() -> None:
    """Without a runtime home the sockets go below the state."""
    assert all_of(places()) == (
        "/home/ada/.config/mcp-supervisor/config.json",
        "/home/ada/.local/state/mcp-supervisor",
        "/home/ada/.local/state/mcp-supervisor/run",
    )


def test_a_users_xdg_variables_count() -> None:
    """XDG Base Directory Specification."""
    xdg = {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/run/user/1000"}
    assert all_of(places(xdg)) == (
        "/c/mcp-supervisor/config.json",
        "/s/mcp-supervisor",
        "/run/user/1000/mcp-supervisor",
    )


def test_root_has_the_systems_places_whatever_its_xdg_variables_say() -> None:
    """A root shell from `sudo -E` brings a user's along."""
    assert all_of(places({"XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"}, uid=0)) == (
        "/etc/mcp-supervisor/config.json",
        "/var/lib/mcp-supervisor",
        "/run/mcp-supervisor",
    )


SYSTEMD = {
    "CONFIGURATION_DIRECTORY": "/etc/one:/etc/two",
    "STATE_DIRECTORY": "/var/lib/one:/var/lib/two",
    "RUNTIME_DIRECTORY": "/run/one:/run/two",
}
VARIABLES = {
    "MCP_SUPERVISOR_CONFIG": "/v/config.json",
    "MCP_SUPERVISOR_STATE_DIR": "/v/state",
    "MCP_SUPERVISOR_RUNTIME_DIR": "/v/run",
}
FLAGS = {"config": "/f/config.json", "state_dir": "/f/state", "runtime_dir": "/f/run"}


@pytest.mark.parametrize("uid", [0, 1000])
def test_the_first_match_wins_flag_environment_systemd(uid: int) -> None:
    """Each place is decided alone (design section 2); of several directories the first is ours."""
    assert all_of(places(SYSTEMD, uid)) == (
        "/etc/one/config.json",
        "/var/lib/one",
        "/run/one",
    )
    assert all_of(places(SYSTEMD | VARIABLES, uid)) == tuple(VARIABLES.values())
    assert all_of(places(SYSTEMD | VARIABLES, uid, **FLAGS)) == tuple(FLAGS.values())
    assert places(SYSTEMD, uid, state_dir="/f/state").runtime_dir == "/run/one"


def test_an_empty_variable_is_no_answer() -> None:
    """`XDG_RUNTIME_DIR=` in a cron job must not put sockets into the root directory."""
    emptied = dict.fromkeys([*SYSTEMD, *VARIABLES, "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"], "")
    assert all_of(places(emptied)) == all_of(places())


def test_a_state_flag_moves_the_runtime_of_a_user_that_has_no_runtime_home() -> None:
    """Two daemons with two state directories must not share their sockets."""
    assert places(state_dir="/f/state").runtime_dir == "/f/state/run"


def test_sockets_lock_and_records_lie_in_the_runtime_directory() -> None:
    """They mean nothing after a reboot."""
    found = places(runtime_dir="/r")
    names = (found.control_socket, found.mcp_socket, found.lock_file, found.instances_dir)
    assert names == ("/r/control.sock", "/r/mcp.sock", "/r/daemon.lock", "/r/instances")
    assert MAX_SOCKET_PATH_BYTES == 107
