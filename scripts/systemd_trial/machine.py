"""A systemd of our own: PID 1 of its namespaces, in a cgroup of its own, gone at the end.

The machine's systemd, if there is one, is neither asked nor touched. The end is a SIGKILL to the
nested PID 1, upon which the kernel kills everything in its pid namespace.
"""

import json
import os
import select
import shutil
import signal
import subprocess  # noqa: TID251 - programs are run as an operator runs them
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from scripts.systemd_trial.allowed import (
    COMMAND_S,
    NAMESPACES,
    REPO,
    TrialError,
    needed,
    read,
    run,
)
from scripts.systemd_trial.daemon_log import DaemonLog

UNIT: Final = "mcp-supervisord.service"
PROGRAMS: Final = Path(sys.executable).parent
CONFIGURATION: Final = "/etc/mcp-supervisor/config.json"

MANAGERS_SOCKET: Final = "/run/systemd/private"
"""Where systemctl reaches PID 1 without D-Bus."""

LOOK_AGAIN_S: Final = 0.05
"""A systemd that starts has no place where one could wait for it."""


class Machine:
    """A nested systemd that knows our unit; a context manager.

    Args:
        cgroup: our own one, of version 2.
        servers: `mcpServers` of the configuration.
    """

    def __init__(self, cgroup: Path, servers: Mapping[str, Mapping[str, Any]]) -> None:
        self._cgroup = cgroup / f"mcps-trial-{os.getpid()}"
        self._stage = Path(tempfile.mkdtemp(prefix="mcps-"))
        self._process: subprocess.Popen[str] | None = None
        self._complaints = -1
        self.log = DaemonLog(self._stage / "log")
        self._write_stage(servers)

    def __enter__(self) -> Self:
        try:
            self._boot()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._end()

    # What is inside

    def run(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        """Run a command inside, as root, to its end."""
        return run(["nsenter", f"--target={self._pid1()}", "--mount", "--pid", "--net", *argv])

    def systemctl(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Ask the nested systemd."""
        return self.run("systemctl", "--no-pager", *words)

    def property(self, name: str) -> str:
        """A property of the unit."""
        return self.systemctl("show", "--value", f"--property={name}", UNIT).stdout.strip()

    def mcpctl(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Ask the daemon, as root does without any flag."""
        return self.run(str(PROGRAMS / "mcpctl"), *words)

    def pids(self) -> set[int]:
        """Every process in the unit's cgroup and below, by its pid outside."""
        unit = self._cgroup / "system.slice" / UNIT
        lists = [read(file) for file in unit.glob("**/cgroup.procs")]
        return {int(pid) for text in lists for pid in text.split()}

    def main_pid(self) -> int:
        """The daemon, by its pid outside; it exists."""
        inside = self.property("MainPID")
        for pid in self.pids():
            status = read(Path(f"/proc/{pid}/status"))
            spaces = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
            if spaces and spaces[0][-1] == inside:
                return pid
        message = f"the unit's main process (pid {inside} inside) is not in its cgroup"
        raise TrialError(message)

    def configure(self, text: str) -> None:
        """Overwrite the configuration."""
        (self._stage / "config.json").write_text(text, "utf-8")
        # the file keeps its owner and mode
        self.run("cp", "/run/stage/config.json", CONFIGURATION)

    def last_words(self) -> str:
        """The unit and the end of the daemon's log, for a trial that failed."""
        unit = self.systemctl("status", "--full", UNIT).stdout
        return "\n".join([unit, *self.log.tail()])

    # Its beginning and its end

    def _write_stage(self, servers: Mapping[str, Mapping[str, Any]]) -> None:
        self._stage.chmod(0o755)
        (self._stage / "config.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
        units = self._stage / "units"
        changes = units / f"{UNIT}.d"
        changes.mkdir(parents=True)
        shutil.copy(REPO / "systemd" / UNIT, units)
        # what an operator with a virtual environment writes, and a log that we can read
        (changes / "trial.conf").write_text(
            "[Service]\nExecStart=\n"
            f"ExecStart={PROGRAMS}/mcp-supervisord run --log-format json\n"
            "StandardOutput=file:/run/stage/log\nStandardError=inherit\n"
            # PrivateTmp hides sources that lie below /tmp
            + "".join(f"BindReadOnlyPaths={path}\n" for path in needed()),
            "utf-8",
        )
        for name in ("default", "basic", "sysinit", "shutdown", "umount", "local-fs", "network"):
            text = f"[Unit]\nDescription={name}\nDefaultDependencies=no\nAllowIsolate=yes\n"
            (units / f"{name}.target").write_text(text, "utf-8")

    def _boot(self) -> None:
        self._cgroup.mkdir()
        join = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
        # whoever is killed on the way from us to PID 1 takes the rest along
        chain = ["setpriv", "--pdeathsig=KILL", "unshare", "--fork", "--kill-child=KILL"]
        inner = ["--propagation=private", "bash", str(Path(__file__).with_name("pid1.sh"))]
        kept = "\n".join(str(path) for path in needed())
        self._complaints, complaints = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            ["/bin/sh", "-c", join, "sh", str(self._cgroup), *chain, *NAMESPACES, *inner],
            env={**os.environ, "STAGE": str(self._stage), "REPO": str(REPO), "KEEP": kept},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            text=True,
        )
        os.close(complaints)
        self._wait_for_manager()

    def _wait_for_manager(self) -> None:
        """PID 1 becomes systemd, and then answers.

        Raises:
            TrialError: it ended before that, or took too long.
        """
        said = ""
        # systemd puts its own stderr elsewhere; until then each process has this pipe
        while not self._answers():
            if select.select([self._complaints], [], [], LOOK_AGAIN_S)[0]:
                chunk = os.read(self._complaints, 4096)
                said += chunk.decode("utf-8", "replace")
                if not chunk:  # nobody is left who could become systemd
                    message = f"the nested systemd did not start: {said.strip()}"
                    raise TrialError(message)

    def _answers(self) -> bool:
        try:
            pid1 = self._pid1()
        except TrialError:
            return False
        return Path(f"/proc/{pid1}/root{MANAGERS_SOCKET}").exists()

    def _pid1(self) -> int:
        outer = 0 if self._process is None else self._process.pid
        children = read(Path(f"/proc/{outer}/task/{outer}/children")).split()
        if not children:
            message = "the nested systemd is not running"
            raise TrialError(message)
        return int(children[0])

    def _end(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)  # and with it, its child: PID 1
            self._process.wait()
            _wait_empty(self._cgroup)
        if self._complaints >= 0:
            os.close(self._complaints)
        self.log.close()
        shutil.rmtree(self._stage)
        if self._cgroup.exists():
            below = [path for path in self._cgroup.glob("**/") if path != self._cgroup]
            for directory in (*sorted(below, reverse=True), self._cgroup):
                directory.rmdir()


def _wait_empty(cgroup: Path) -> None:
    """Wait until the kernel has ended what was in there. Source: cgroup-v2, cgroup.events."""
    with (cgroup / "cgroup.events").open() as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while "populated 1" in events.read():
            if not poll.poll(COMMAND_S * 1000):
                return
            events.seek(0)
