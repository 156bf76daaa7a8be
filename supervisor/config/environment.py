"""The environment of a server: a small base, its own `env`, and nothing else of the daemon's.

Whatever the daemon was started with (tokens, display, agent sockets, its own MCP_SUPERVISOR_*)
stays with the daemon. TMPDIR and XDG_* are not handed on either: under systemd they may name
directories that are private to the daemon.
Source: design section 11.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from supervisor.config.accounts import Account

DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""Where the daemon itself has no PATH."""

_HANDED_ON: Final = ("TERM", "LANG", "TZ")
_LOADER_HOOKS: Final = frozenset(
    {
        "BASH_ENV",
        "IFS",
        "JAVA_TOOL_OPTIONS",
        "NODE_OPTIONS",
        "PERL5OPT",
        "PS4",
        "PYTHONHOME",
        "PYTHONPATH",
        "RUBYOPT",
        "SHELLOPTS",
    }
)
_LOADER_PREFIXES: Final = ("BASH_FUNC_", "DYLD_", "LD_")


def is_loader_hook(name: str) -> bool:
    """Whether the variable `name` makes an interpreter or the loader run other code."""
    return name in _LOADER_HOOKS or name.startswith(_LOADER_PREFIXES)


def loader_hooks(names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that are loader hooks, sorted."""
    return tuple(sorted(filter(is_loader_hook, names)))


def base_environment(
    account: Account, environ: Mapping[str, str], path: str | None
) -> dict[str, str]:
    """What every server of `account` starts with.

    Args:
        account: who it runs as; HOME, LOGNAME, USER and SHELL come from there.
        environ: the daemon's environment, for terminal type, language, time zone and PATH.
        path: `supervisor.path`, or None for the daemon's PATH and `~/.local/bin`.
    """
    base = {
        "HOME": account.home,
        "PATH": _default_path(account, environ) if path is None else path,
        "SHELL": account.login_shell,
    }
    if account.name is not None:
        base |= {"LOGNAME": account.name, "USER": account.name}
    for name, value in environ.items():
        if name in _HANDED_ON or name.startswith("LC_"):
            base[name] = value
    return base


def _default_path(account: Account, environ: Mapping[str, str]) -> str:
    path = environ.get("PATH") or DEFAULT_PATH
    own = f"{account.home.rstrip('/')}/.local/bin"
    return path if own in path.split(":") else f"{path}:{own}"


def environment_text(value: str | float) -> str:
    """A value of `env` as text; numbers look as in the JavaScript clients that write them."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)
