"""Starts the misbehaving servers of `tests/servers` from a test, and waits until they stand.

scenario = Scenario("setsid", tmp_path)
process = groups.start(truth.join_argv(scenario.argv))
assert scenario.wait_ready() == 2
"""

import os
import select
import shutil
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

LIVING: Final = {
    "polite": 1,
    "plain": 2,
    "setsid": 2,
    "setpgid": 2,
    "daemonize": 2,
    "daemonize_closeall": 2,
    "daemonize_cleanenv": 2,
    "nohup_envi": 2,
    "closefds": 2,
    "stopped": 2,
    "root_stopped": 2,
    "ign_term": 2,
    "zombies": 1,
    "zombies_ign": 1,
    "vfork_d": 3,
    "setuid_drop": 2,
    "py_subprocess": 2,
    "py_subprocess_session": 2,
    "node_child": 3,
    "node_detached": 3,
    "sh_leader_exit": 2,
    "leader_exit": 1,
    "bash_jobctl": 3,
    "nested_subreaper": 3,
    "hold_stdout": 1,
    "respawn_group": 3,
    "respawn_escape": 3,
    "hop": 2,
    "bulk500": 501,
    "crash": 1,
    "exec_chain": 2,
}
"""Every scenario, with the number of processes that are alive when it is ready."""

_PROGRAM: Final = Path(__file__).parent / "servers" / "misbehave.py"
_READY_WITHIN_S: Final = 30.0


def why_not(scenario: str) -> str | None:
    """What this machine lacks for a scenario, or None."""
    match scenario:
        case "node_child" | "node_detached" if shutil.which("node") is None:
            return "node is not installed"
        case "setuid_drop" if os.geteuid() != 0:
            return "only root can drop to another user"
        case "bash_jobctl" if not Path("/bin/bash").exists():
            return "bash is not installed"
        case "vfork_d" if os.uname().machine not in {"x86_64", "aarch64"}:
            return f"the number of clone(2) on {os.uname().machine} is not known here"
        case _:
            return None


class Scenario:
    """One start of `misbehave.py`, with its files in `directory`.

    Attributes:
        argv: the command to start.
        pid_file: the pids that the scenario's processes noted.
        state: directory with the file `events`.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.pid_file = directory / f"{name}.pids"
        self.state = directory
        self._gate_path = directory / f"{name}.ready"
        os.mkfifo(self._gate_path)
        self._gate = self._open_gate()
        self._heard = b""
        # -S: site packages are not needed and cost more than the server itself
        self.argv = [sys.executable, "-S", "-E", str(_PROGRAM), name]
        self.argv += ["--pids", str(self.pid_file), "--state", str(directory)]
        self.argv += ["--ready-fd-path", str(self._gate_path)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        os.close(self._gate)
        self._gate_path.unlink()

    def wait_ready(self, within_s: float = _READY_WITHIN_S) -> int:
        """Wait until all processes of the scenario are in place.

        Returns:
            How many of them are alive.

        Raises:
            TimeoutError: nothing was announced in `within_s` seconds.
        """
        deadline_at = time.monotonic() + within_s
        while True:
            left_s = max(0.0, deadline_at - time.monotonic())
            if not select.select([self._gate], [], [], left_s)[0]:
                message = f"{self.argv[4]} was not ready within {within_s} s"
                raise TimeoutError(message)
            # read to EOF: who has spoken must also have closed the gate, or a test would find it
            # among the descriptors of a process that should have none
            chunk = os.read(self._gate, 4096)
            self._heard += chunk
            if not chunk:
                self._reopen_gate()
                if b"\n" not in self._heard:
                    continue  # one that inherited the gate left before the one that speaks
                line, _, self._heard = self._heard.partition(b"\n")
                return int(line.removeprefix(b"ready "))

    def pids(self) -> list[int]:
        """The noted pids, the root's first."""
        return [int(pid) for pid in self.pid_file.read_text("ascii").split()]

    def events(self) -> list[str]:
        """What the root saw so far: `start PID`, `eof`, `SIGTERM`."""
        return (self.state / "events").read_text("ascii").splitlines()

    def _open_gate(self) -> int:
        return os.open(self._gate_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _reopen_gate(self) -> None:
        # a FIFO that has seen its writer leave reports EOF until the next one comes; one opened
        # afresh waits. Opened before the old one is closed, so that no line can be lost
        old, self._gate = self._gate, self._open_gate()
        os.close(old)
