"""Servers for the configuration of a real daemon, and when they are in place.

with staged({"tree": "setsid"}) as on_stage, running_daemon(on_stage.records) as daemon:
    daemon.start_server("tree")
    on_stage["tree"].wait_ready()
"""

import os
import select
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from typing_extensions import override

from misbehaving import Scenario
from real_daemon.daemon_fixture import SOON, record

SERVERS: Final = Path(__file__).parent / "servers"
READY_WITHIN_S: Final = 20.0


class StagedScenario(Scenario):
    """A scenario that is started several times while its gate keeps its descriptor.

    The number must stay: servers outlive a test here, and each test is checked for descriptors
    that it leaves.
    """

    @override
    def _reopen_gate(self) -> None:
        fresh = self._open_gate()
        os.dup2(fresh, self._gate, inheritable=False)
        os.close(fresh)


class OnStage:
    """Scenarios of `tests/servers`, each with a directory of its own, by server name."""

    def __init__(self, scenarios: Mapping[str, Scenario], stop: Mapping[str, int]) -> None:
        self._scenarios = scenarios
        self.records: dict[str, dict[str, Any]] = {
            name: record(*scenario.argv, stop=stop) for name, scenario in scenarios.items()
        }

    def __getitem__(self, name: str) -> Scenario:
        return self._scenarios[name]


@contextmanager
def staged(scenarios: Mapping[str, str], *, stop: Mapping[str, int] = SOON) -> Iterator[OnStage]:
    """Make scenarios ready to be started: server name to scenario."""
    with ExitStack() as stack:
        made = {}
        for name, scenario in scenarios.items():
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpd-"))
            made[name] = stack.enter_context(StagedScenario(scenario, Path(directory)))
        yield OnStage(made, stop)


class Gate:
    """A FIFO into which a server of a test writes lines, such as the pids of its processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # held open for writing as well, so that it never reports an end between two writers
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._heard = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def line(self, within_s: float = READY_WITHIN_S) -> str:
        """The next line.

        Raises:
            TimeoutError: none came.
        """
        while b"\n" not in self._heard:
            if not select.select([self._fd], [], [], within_s)[0]:
                message = f"nobody wrote into {self.path} for {within_s} s"
                raise TimeoutError(message)
            self._heard += os.read(self._fd, 4096)
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()
