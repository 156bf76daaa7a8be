"""Starts the real daemon in folders of its own, talks to it, and proves that it leaves nothing.

with GroundTruth() as truth, Daemon(truth, home, {"git": record("cat")}) as daemon:
    assert daemon.mcpctl("start", "git").returncode == 0

What is alive is learnt from the kernel (`tests/ground_truth.py`), never from the daemon.
"""

import http.client
import json
import os
import signal
import socket
import subprocess  # noqa: TID251 - the programs are run as a user runs them
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest
from typing_extensions import override

from ground_truth import Alive, GroundTruth
from process_table import kill_pinned, pinned, wait_gone
from real_daemon.daemon_log import DaemonLog, Json

PROGRAMS: Final = Path(sys.executable).parent
MCPCTL: Final = str(PROGRAMS / "mcpctl")
SUPERVISORD: Final = str(PROGRAMS / "mcp-supervisord")

READY_WITHIN_S: Final = 30.0
"""It takes 0.5 s; the rest is for a machine that is busy with other things."""

COMMAND_WITHIN_S: Final = 30.0

BEYOND_BUDGET_S: Final = 3.0
"""How much longer than its own budget a stopping daemon may take on a loaded machine: closing the
API, leaving the interpreter."""

GONE_WITHIN_S: Final = 15.0
"""For what must be gone at once; a bound, not an expectation."""

DEFAULT_DEADLINE_MS: Final = 5000

SOON: Final[Mapping[str, int]] = {"deadlineMs": 1500, "termAfterMs": 300, "killAfterMs": 900}
"""A stop policy for tests that wait for its stages."""


def record(
    *argv: str, stop: Mapping[str, int] = SOON, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The configuration record of a server; it stops soon."""
    return {
        "command": argv[0],
        "args": list(argv[1:]),
        "stop": dict(stop),
        "env": dict(env or {}),
    }


class Daemon:
    """A daemon that is not started yet; as a context manager it is running.

    Args:
        truth: knows what is alive of it; at the end of the context nothing may be.
        home: directory for its configuration, sockets and state; a short path.
        records: `mcpServers`.
        wrapper: words in front of the program, such as `unshare`.
        program: how to run the daemon itself.
        environ: further environment of the daemon.
        settings: the `supervisor` block.
    """

    def __init__(  # noqa: PLR0913 - what a daemon is given
        self,
        truth: GroundTruth,
        home: Path,
        records: Mapping[str, Mapping[str, Any]],
        *,
        wrapper: Sequence[str] = (),
        program: Sequence[str] = (SUPERVISORD,),
        environ: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.truth = truth
        self.home = home
        self.runtime_dir = home / "run"
        self.state_dir = home / "state"
        self.config_file = home / "config.json"
        self.places = {
            "MCP_SUPERVISOR_CONFIG": str(self.config_file),
            "MCP_SUPERVISOR_STATE_DIR": str(self.state_dir),
            "MCP_SUPERVISOR_RUNTIME_DIR": str(self.runtime_dir),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.log = DaemonLog()
        self._environ = dict(environ or {})
        self._command = (*wrapper, *program, "run")
        deadlines = [given["stop"]["deadlineMs"] for given in records.values()]
        self.budget_s = max(deadlines, default=DEFAULT_DEADLINE_MS) / 1000
        # the mark lets the truth see servers even where there is no cgroup
        mark, _, token = truth.mark.partition("=")
        servers = {
            name: {**given, "env": {**given.get("env", {}), mark: token}}
            for name, given in records.items()
        }
        content = {"mcpServers": servers, "supervisor": dict(settings or {})}
        self.config_file.write_text(json.dumps(content), "utf-8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        problems = self.end()
        if problems and kind is None:
            pytest.fail("\n".join(problems), pytrace=False)

    # Its life

    @property
    def pid(self) -> int:
        """The process that was started: the daemon, unless a wrapper stays in front of it."""
        assert self.process is not None
        return self.process.pid

    def begin(self) -> None:
        """Start it and do not wait."""
        self.process = subprocess.Popen(  # noqa: S603 - the command is the test's own
            self.truth.join_argv(self._command),
            env={**os.environ, **self.places, **self._environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        self.log = DaemonLog()
        self.log.read(self.process.stderr)

    def start(self) -> None:
        """Start it and wait until its sockets answer."""
        self.begin()
        self.log.wait_for("daemon_ready", within_s=READY_WITHIN_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the daemon only."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, within_s: float) -> int:
        """Wait until it has ended; its exit code.

        Raises:
            subprocess.TimeoutExpired: it has not ended in `within_s` seconds.
        """
        assert self.process is not None
        code = self.process.wait(within_s)
        self.log.join()
        return code

    def stop(self) -> int:
        """SIGTERM, and its exit code; it must end within its own budget."""
        self.signal(signal.SIGTERM)
        return self.wait(self.budget_s + BEYOND_BUDGET_S)

    def kill(self) -> None:
        """SIGKILL to the daemon alone, and reap it."""
        self.signal(signal.SIGKILL)
        self.wait(GONE_WITHIN_S)

    def end(self) -> list[str]:
        """End whatever is left of it.

        Returns:
            What was not as it should be, one sentence each.
        """
        problems = []
        if self.process is not None and self.process.poll() is None:
            try:
                code = self.stop()
            except subprocess.TimeoutExpired:
                problems.append(f"the daemon did not end within {self.budget_s} s of SIGTERM")
            else:
                if code != 0:
                    problems.append(f"the daemon ended with exit code {code}: {self.log.text()}")
        left = self.truth.kill_all()
        problems += [f"left running: pid {p.pid} ({p.comm}, state {p.state})" for p in left]
        if self.process is not None:
            self.process.wait(GONE_WITHIN_S)
            self.log.join()
        return [*problems, *(f"a bug in the log: {line}" for line in self.log.bugs())]

    # What it is asked

    def mcpctl(
        self, *words: str, environ: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run one `mcpctl` command to its end."""
        return subprocess.run(  # noqa: S603 - the command is the test's own
            [MCPCTL, *words],
            env={**os.environ, **self.places, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_WITHIN_S,
        )

    def mcpctl_json(self, *words: str, code: int = 0) -> Json:
        """The JSON document that `mcpctl ... --json` prints; it must exit with `code`."""
        done = self.mcpctl(*words, "--json")
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        body: Json = json.loads(done.stdout)
        return body

    @contextmanager
    def mcpctl_running(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        """A command that goes on while the test does something else; killed at the end."""
        process = subprocess.Popen(  # noqa: S603 - the command is the test's own
            [MCPCTL, *words],
            env={**os.environ, **self.places},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def supervisord(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run `mcp-supervisord` with the same places; what it starts belongs to the truth."""
        return subprocess.run(  # noqa: S603 - the command is the test's own
            self.truth.join_argv([SUPERVISORD, *words]),
            env={**os.environ, **self.places},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_WITHIN_S,
        )

    @contextmanager
    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Iterator["UnixConnection"]:
        """A request that is sent and not yet answered."""
        text = None if body is None else json.dumps(body)
        with closing(self.connection()) as connection:
            connection.request(method, path, text, {"Content-Type": "application/json"})
            yield connection

    def connection(self) -> "UnixConnection":
        """A connection to the API, to be closed by the test."""
        return UnixConnection(self.runtime_dir / "control.sock")

    def api(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, status: int = 200
    ) -> Json:
        """One request over HTTP, by no code of the project; the answer's JSON."""
        with self.request(method, path, body) as connection:
            return connection.answer(status)

    def start_server(self, name: str, session: str | None = None) -> Json:
        """Start a server over the API; its instance."""
        body = {} if session is None else {"session": session}
        instance: Json = self.api("POST", f"/v1/servers/{name}/start", body)["instance"]
        return instance

    def stop_server(self, name: str, **body: bool | str) -> Json:
        """Stop a server over the API; its one report."""
        (report,) = self.api("POST", f"/v1/servers/{name}/stop", body)["reports"]
        return dict(report)

    def end_instances(self) -> list[Json]:
        """Force whatever a test has left running to stop, so that the next one has peace.

        Returns:
            What it was; the test that left it has failed.
        """
        left = self.instances()
        for instance in left:
            self.api("POST", f"/v1/instances/{instance['id']}/stop", {"force": True})
        return left

    def report(self, instance: str) -> Json:
        """The report of an instance that has been judged."""
        return self.api("GET", f"/v1/instances/{instance}/report")

    def instances(self) -> list[Json]:
        """All instances."""
        found: list[Json] = self.api("GET", "/v1/instances")["instances"]
        return found

    def server(self, name: str) -> Json:
        """The state of one server."""
        return self.api("GET", f"/v1/servers/{name}")

    def wait_judged(self, instance: str, *, within_s: float = GONE_WITHIN_S) -> Json:
        """Wait for the first verdict on an instance, whoever stopped it; its report."""
        line = self.log.wait_for(
            "cleanup_confirmed", "cleanup_unconfirmed", within_s=within_s, instance=instance
        )
        report: Json = line["report"]
        return report

    # What the kernel says

    def alive(self) -> list[Alive]:
        """Everything alive that this daemon, or its servers, started; and the daemon itself."""
        return self.truth.alive()

    def kill_process(self, pid: int) -> None:
        """SIGKILL to one process that is known to be of this daemon; wait for its end."""
        with pinned([pid]) as pidfds:
            for pidfd in pidfds.values():
                kill_pinned(pidfd)
            assert not wait_gone(pidfds.values(), GONE_WITHIN_S)

    def wait_all_gone(self, within_s: float) -> None:
        """Wait until nothing of it is left.

        Raises:
            TimeoutError: something lives on.
        """
        self.wait_gone([process.pid for process in self.alive()], within_s)

    def wait_gone(self, pids: Sequence[int], within_s: float) -> None:
        """Wait until these processes have ended.

        Raises:
            TimeoutError: one of them lives on.
        """
        with pinned(pids) as pidfds:
            left = set(wait_gone(pidfds.values(), within_s))
            if left:
                alive = [pid for pid, pidfd in pidfds.items() if pidfd in left]
                message = f"still alive after {within_s} s: {alive} of {self.alive()}"
                raise TimeoutError(message)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket, with nothing but the standard library."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=COMMAND_WITHIN_S)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(COMMAND_WITHIN_S)
        self.sock.connect(str(self._path))

    def answer(self, status: int = 200) -> Json:
        """Read the answer, which must have this status."""
        answer = self.getresponse()
        text = answer.read().decode()
        assert answer.status == status, (answer.status, text)
        body: Json = json.loads(text)
        return body


@contextmanager
def running_daemon(
    records: Mapping[str, Mapping[str, Any]],
    *,
    kind: type[Daemon] = Daemon,
    **options: Any,  # noqa: ANN401 - handed on
) -> Iterator[Daemon]:
    """A daemon with a truth and folders of its own, for the fixtures that a module shares."""
    with (
        tempfile.TemporaryDirectory(prefix="mcpd-") as home,
        GroundTruth() as truth,
        kind(truth, Path(home), records, **options) as daemon,
    ):
        yield daemon
