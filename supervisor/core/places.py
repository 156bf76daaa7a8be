"""Where the daemon's files are: one pure function, for the daemon, `mcpctl` and the shim alike.

No import at all, since the shim pays for each one at every start.
Source: design section 2; systemd.exec(5) RuntimeDirectory=; XDG Base Directory Specification 0.8.
"""

CONFIG_NAME = "config.json"
CONTROL_SOCKET = "control.sock"
MCP_SOCKET = "mcp.sock"
LOCK_NAME = "daemon.lock"
INSTANCES_NAME = "instances"
MAX_SOCKET_PATH_BYTES = 107
"""sockaddr_un holds 108 bytes with the final NUL, unix(7)."""


class Places:
    """The three directories and what lies in them; all paths are strings.

    Attributes:
        config_file: the main configuration file.
        state_dir: what outlives a reboot.
        runtime_dir: sockets, lock and instance records; gone after a reboot.
    """

    __slots__ = ("config_file", "runtime_dir", "state_dir")

    def __init__(self, config_file: str, state_dir: str, runtime_dir: str) -> None:
        self.config_file = config_file
        self.state_dir = state_dir
        self.runtime_dir = runtime_dir

    @property
    def control_socket(self) -> str:
        """Path of the HTTP control socket."""
        return f"{self.runtime_dir}/{CONTROL_SOCKET}"

    @property
    def mcp_socket(self) -> str:
        """Path of the socket that speaks newline JSON-RPC."""
        return f"{self.runtime_dir}/{MCP_SOCKET}"

    @property
    def lock_file(self) -> str:
        """Path of the file whose flock is the daemon's identity."""
        return f"{self.runtime_dir}/{LOCK_NAME}"

    @property
    def instances_dir(self) -> str:
        """Directory of the records that the next start sweeps."""
        return f"{self.runtime_dir}/{INSTANCES_NAME}"


def find_places(
    environ: "dict[str, str]",
    uid: int,
    home: str,
    *,
    config: "str | None" = None,
    state_dir: "str | None" = None,
    runtime_dir: "str | None" = None,
) -> Places:
    """Decide the places; the first match wins: flag, environment, systemd, root, XDG.

    Args:
        environ: the process environment.
        uid: the effective user id.
        home: the home directory from the passwd entry.
        config: `--config`, the path of a file.
        state_dir: `--state-dir`.
        runtime_dir: `--runtime-dir`.

    Returns:
        The places. Nothing is created or looked at.
    """

    def first(flag: "str | None", variable: str, systemd: str, root: str, xdg: str) -> str:
        # systemd joins several directories with colons; ours is the first
        given = flag or environ.get(variable) or environ.get(systemd, "").split(":")[0]
        return given or (root if uid == 0 else xdg)

    config_home = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    state_home = environ.get("XDG_STATE_HOME") or f"{home}/.local/state"
    state = first(
        state_dir,
        "MCP_SUPERVISOR_STATE_DIR",
        "STATE_DIRECTORY",
        "/var/lib/mcp-supervisor",
        f"{state_home}/mcp-supervisor",
    )
    runtime_home = environ.get("XDG_RUNTIME_DIR")
    runtime = first(
        runtime_dir,
        "MCP_SUPERVISOR_RUNTIME_DIR",
        "RUNTIME_DIRECTORY",
        "/run/mcp-supervisor",
        f"{runtime_home}/mcp-supervisor" if runtime_home else f"{state}/run",
    )
    config_dir = first(
        None,
        "",
        "CONFIGURATION_DIRECTORY",
        "/etc/mcp-supervisor",
        f"{config_home}/mcp-supervisor",
    )
    file = config or environ.get("MCP_SUPERVISOR_CONFIG") or f"{config_dir}/{CONFIG_NAME}"
    return Places(file, state, runtime)
