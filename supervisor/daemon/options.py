"""The flags that all commands share, and the places that follow from them; light to load."""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.places import Places, find_places
from supervisor.linux.runtime_home import with_runtime_home
from supervisor.telemetry.levels import LogLevel, LogStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags that the commands share; None where a flag was not given."""

    config: str | None = None
    state_dir: str | None = None
    runtime_dir: str | None = None
    log_level: LogLevel = "info"
    log_format: LogStream = "auto"


def locate(options: Options) -> Places:
    """The places by flags, environment and user, as absolute paths; nothing is created."""
    uid = os.geteuid()
    found = find_places(
        with_runtime_home(dict(os.environ), uid),
        uid,
        home(),
        config=options.config,
        state_dir=options.state_dir,
        runtime_dir=options.runtime_dir,
    )
    # a detached daemon works in `/`, and `..` must not change its meaning there
    paths = (found.config_file, found.state_dir, found.runtime_dir)
    return Places(*(str(Path(path).absolute()) for path in paths))


def home() -> str:
    """The home directory from the passwd entry; HOME only where there is no entry."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return os.environ.get("HOME", "/")
