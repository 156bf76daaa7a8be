"""A real daemon for the tests of the async client, with a server whose calls need patience."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from real_daemon.daemon_fixture import Daemon, record, running_daemon

HERE = Path(__file__).parent
DEMO_SERVER = HERE.parents[1] / "scripts" / "demo_server.py"
WITHIN_S = 15.0


class Notes:
    """What the patient server was told, in order."""

    def __init__(self, fifo: Path) -> None:
        self._fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self._rest = b""

    async def wait_for(self, method: str, name: str | None = None) -> dict[str, Any]:
        """The next message of this method, and of this `name` or `uri`; those before are gone."""
        with anyio.fail_after(WITHIN_S):
            while True:
                message = json.loads(await self._line())
                params = message.get("params") or {}
                if message["method"] == method and name in {None, *map(str, params.values())}:
                    return dict(message)

    async def _line(self) -> bytes:
        while b"\n" not in self._rest:
            await anyio.wait_readable(self._fd)
            self._rest += os.read(self._fd, 65536)
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        """Read no more."""
        os.close(self._fd)


@pytest.fixture(scope="module")
def fifo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The FIFO between the patient server and the tests of a module."""
    path = tmp_path_factory.mktemp("notes") / "fifo"
    os.mkfifo(path)
    return path


@pytest.fixture
def notes(fifo: Path) -> Iterator[Notes]:
    """What the patient server is told from now on."""
    found = Notes(fifo)
    yield found
    found.close()


@pytest.fixture(scope="module")
def daemon(fifo: Path) -> Iterator[Daemon]:
    """A daemon that the tests of a module share."""
    patient = (sys.executable, str(HERE / "patient_server.py"), str(fifo))
    records = {
        "demo": record(sys.executable, str(DEMO_SERVER)),
        "mute": record(*patient, "--mute"),
        "patient": {**record(*patient), "supportsParallelToolCalls": True},
    }
    with running_daemon(records) as running:
        yield running
