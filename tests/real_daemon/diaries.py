"""Records of `servers/session_server.py`, and what those servers wrote into their diaries.

stage = Stage(folder)
with running_daemon({"a": stage.record("a")}) as daemon:
    open_session(daemon, "s")
    assert stage["a"].starts() == 0
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from real_daemon.daemon_fixture import SOON, Daemon, record
from real_daemon.daemon_log import Json
from real_daemon.staging import Gate

SERVER: Final = Path(__file__).parents[1] / "servers" / "session_server.py"
PYTHON: Final = ("python3", "-S", "-E")


class Diary:
    """What the processes of one server heard and did, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Json]:
        """All lines so far."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    def starts(self) -> int:
        """How many processes there were."""
        return sum(entry.get("did") == "start" for entry in self.entries())

    def heard(self, method: str) -> list[Json]:
        """The messages of that method."""
        return [json.loads(e["line"]) for e in self.entries() if e.get("heard") == method]

    def count(self, method: str) -> int:
        """How many messages of that method came."""
        return len(self.heard(method))

    def calls(self, tool: str) -> list[Json]:
        """The calls of one tool."""
        return [call for call in self.heard("tools/call") if call["params"]["name"] == tool]


class Stage:
    """Servers that keep diaries in one folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Diary:
        return Diary(self.folder / f"{name}.diary")

    def record(self, name: str, *options: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """The configuration record of one of them, with further fields."""
        given = record(*PYTHON, str(SERVER), str(self[name].path), *options, stop=SOON)
        return {**given, **fields}


@contextmanager
def stage() -> Iterator[Stage]:
    """A stage in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as folder:
        yield Stage(Path(folder))


class Held:
    """A call of `hold` or `look`: tells that it has reached the server, and is let go."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._entered = Gate(folder / f"{name}.entered")
        self._gate = Gate(folder / f"{name}.gate")
        self.arguments: Final[dict[str, Any]] = {
            "entered": str(self._entered.path),
            "gate": str(self._gate.path),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for gate in (self._entered, self._gate):
            gate.__exit__(kind, error, trace)
            gate.path.unlink()

    def wait_entered(self) -> None:
        """Wait until the server has the call."""
        self._entered.line()

    def release(self) -> None:
        """Let the server answer."""
        with self._gate.path.open("w") as gate:
            gate.write("go\n")


def open_session(daemon: Daemon, key: str, *servers: str, **body: Any) -> Json:  # noqa: ANN401 - JSON
    """`PUT` a session with these servers; none named means all."""
    wanted = {"servers": list(servers) or None, **body}
    return daemon.api("PUT", f"/v1/sessions/{key}", wanted)


def tool_names(daemon: Daemon, key: str) -> list[str]:
    """The full names of a session's tools; no server may have anything to complain about."""
    answer = daemon.api("GET", f"/v1/sessions/{key}/tools")
    assert answer["diagnostics"] == [], answer["diagnostics"]
    return [tool["name"] for tool in answer["tools"]]


def call(
    daemon: Daemon,
    key: str,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    status: int = 200,
) -> Json:
    """Call a tool over the API."""
    body = {"arguments": dict(arguments or {})}
    return daemon.api("POST", f"/v1/sessions/{key}/tools/{tool}", body, status=status)


def text_of(result: Json) -> str:
    """The text of a result that has just one."""
    (block,) = result["content"]
    return str(block["text"])


def processes(daemon: Daemon, key: str) -> dict[str, tuple[int, str]]:
    """Server to pid and start of its instance in a session."""
    return {
        one["server"]: (one["pid"], one["started_at_utc"])
        for one in daemon.instances()
        if one["session"] == key
    }


def edit(daemon: Daemon, **servers: Mapping[str, Any] | None) -> Json:
    """Change records in the configuration file, and reload it; None removes one.

    Given fields replace those of the record.
    """
    content = json.loads(daemon.config_file.read_text("utf-8"))
    for name, given in servers.items():
        if given is None:
            del content["mcpServers"][name]
        else:
            content["mcpServers"].setdefault(name, {}).update(given)
    fresh = daemon.config_file.with_suffix(".new")
    fresh.write_text(json.dumps(content), "utf-8")
    fresh.replace(daemon.config_file)
    return daemon.api("POST", "/v1/reload")
