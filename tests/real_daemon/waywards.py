"""The servers of `tests/servers/wayward.py` in a daemon's configuration, and what came of it."""

import json
import sys
from pathlib import Path
from typing import Any, Final

from real_daemon.daemon_fixture import Daemon, record
from real_daemon.daemon_log import Json
from real_daemon.staging import SERVERS

WAYWARD: Final = SERVERS.parents[1] / "servers" / "wayward.py"
PYTHON: Final = (sys.executable, "-S", "-E")
MEBIBYTE: Final = 1048576

AT_ONCE_S: Final = 5.0
"""What is done at once takes milliseconds; the rest is for a busy machine."""


def wayward(state: Path, *options: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """The record of one misbehaving server."""
    state.mkdir(exist_ok=True)
    made = record(*PYTHON, str(WAYWARD), "--state", str(state), *options)
    return {**made, "requestTimeoutMs": 20000, **more}


def only(daemon: Daemon, name: str) -> Json:
    """The one instance of a server."""
    (found,) = [one for one in daemon.instances() if one["server"] == name]
    return dict(found)


def state_of(daemon: Daemon, name: str) -> Path:
    """The directory of a server's events."""
    args = json.loads(daemon.config_file.read_text("utf-8"))["mcpServers"][name]["args"]
    return Path(args[args.index("--state") + 1])


def dropped(daemon: Daemon, name: str) -> dict[str, float]:
    """How many messages of a server were dropped, by kind."""
    with daemon.request("GET", "/metrics") as connection:
        text = connection.getresponse().read().decode()
    found = {}
    for line in text.splitlines():
        if line.startswith("mcp_supervisor_dropped_messages_total{") and f'server="{name}"' in line:
            labels, _, value = line.rpartition(" ")
            found[labels.split('kind="')[1].split('"')[0]] = float(value)
    return found


def stop_all(daemon: Daemon) -> None:
    """Stop whatever runs of named sessions; an instance may be on its way by itself."""
    for name in {one["server"] for one in daemon.instances()}:
        daemon.api("POST", f"/v1/servers/{name}/stop", {"force": True})
