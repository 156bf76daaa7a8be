"""The MCP clients whose files are understood: where they are, and how each writes things.

Source: the clients' documentation as of November 2026: Claude Desktop, Claude Code (scopes),
Cursor (mcp.json, interpolation), VS Code (MCP configuration reference), Codex (config reference,
`RawMcpServerConfig`), Gemini CLI (mcp-server.md), OpenClaw 2026.9.6 (configuration).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

References = Literal["ours", "none", "editor", "gemini"]
"""How a client writes a reference to its environment: as we do (`${NAME}`); not at all; as
`${env:NAME}` beside other variables in braces; as `$NAME` or `${NAME}`."""

ClientName = Literal[
    "claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini", "openclaw", "other"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client.

    Attributes:
        name: what the command line calls it.
        title: what its maker calls it.
        maps: the keys that lead to its servers; the first that exists counts, the first of all
            is where new ones are written.
        references: how it refers to its environment.
    """

    name: ClientName
    title: str
    maps: tuple[tuple[str, ...], ...]
    references: References


_OURS: Final = ("mcpServers",)
_SERVERS: Final = ("servers",)
_NESTED: Final = ("mcp", "servers")

OTHER: Final = Client(
    name="other", title="a client's file", maps=(_OURS, _NESTED, _SERVERS), references="ours"
)
"""A file of which nothing is known but its content."""

CLIENTS: Final[Mapping[str, Client]] = {
    client.name: client
    for client in (
        Client(name="claude-code", title="Claude Code", maps=(_OURS,), references="ours"),
        Client(name="claude-desktop", title="Claude Desktop", maps=(_OURS,), references="none"),
        Client(name="codex", title="Codex", maps=(("mcp_servers",),), references="none"),
        Client(name="cursor", title="Cursor", maps=(_OURS,), references="editor"),
        Client(name="gemini", title="Gemini CLI", maps=(_OURS,), references="gemini"),
        Client(name="openclaw", title="OpenClaw", maps=(_NESTED,), references="ours"),
        Client(name="vscode", title="VS Code", maps=(_SERVERS, _NESTED), references="editor"),
    )
}


def places(client: Client, home: str, environ: Mapping[str, str], cwd: str) -> tuple[str, ...]:
    """Where the client's files would be: the user's own first, then those of a project in `cwd`."""
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    claude = environ.get("CLAUDE_CONFIG_DIR") or home
    codex = environ.get("CODEX_HOME") or f"{home}/.codex"
    openclaw = environ.get("OPENCLAW_STATE_DIR") or f"{home}/.openclaw"
    editors = [f"{config}/{kind}" for kind in ("Code", "Code - Insiders", "VSCodium")]
    files: dict[ClientName, tuple[str, ...]] = {
        "claude-desktop": (f"{config}/Claude/claude_desktop_config.json",),
        "claude-code": (f"{claude}/.claude.json", f"{cwd}/.mcp.json"),
        "cursor": (f"{home}/.cursor/mcp.json", f"{cwd}/.cursor/mcp.json"),
        "vscode": (
            *(f"{folder}/User/mcp.json" for folder in (*editors, f"{home}/.vscode-server/data")),
            f"{cwd}/.vscode/mcp.json",
        ),
        "codex": (f"{codex}/config.toml", f"{cwd}/.codex/config.toml"),
        "gemini": (f"{home}/.gemini/settings.json", f"{cwd}/.gemini/settings.json"),
        "openclaw": (environ.get("OPENCLAW_CONFIG_PATH") or f"{openclaw}/openclaw.json",),
    }
    return files.get(client.name, ())


def client_of(file: str) -> Client:
    """Whose file it is, by its name and its folder."""
    path = PurePosixPath(file)
    name = path.name
    folders = {".cursor": "cursor", ".vscode": "vscode", ".gemini": "gemini", ".codex": "codex"}
    names = {
        "claude_desktop_config.json": "claude-desktop",
        ".claude.json": "claude-code",
        ".mcp.json": "claude-code",
        "openclaw.json": "openclaw",
    }
    known = names.get(name) or folders.get(path.parent.name)
    if known is None and path.suffix == ".toml":
        known = "codex"
    if known is None and path.parent.name == "User":
        known = "vscode"
    return OTHER if known is None else CLIENTS[known]


def project_of(file: str, home: str) -> str | None:
    """The folder of the project that the file belongs to; None for a user's own file.

    Args:
        file: an absolute path.
        home: the user's home directory, whose hidden folders belong to no project.
    """
    path = PurePosixPath(file)
    if path.name == ".mcp.json":
        return str(path.parent)
    if path.parent.name in (".cursor", ".vscode", ".gemini", ".codex"):
        folder = str(path.parent.parent)
        return None if folder == home.rstrip("/") else folder
    return None
