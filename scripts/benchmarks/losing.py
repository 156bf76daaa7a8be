"""A daemon that is killed: how soon its servers are gone, and those of a host without an owner."""

import json
import os
import select
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import open_daemon, record
from scripts.benchmarks.peers import PATIENCE_S, READ_BYTES, Bare
from scripts.benchmarks.programs import BARE_PYTHON, CAT, DEAF
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.surroundings import TooLateError, directory, open_pidfd, wait_readable
from supervisor.linux.signals import signal_pidfd

POLITE_GONE_MS: Final = 50.0
"""Source: design section 21; what is stubborn has until its deadline."""

HOST: Final = "bare host's servers"
_HOST: Final = """\
import json, signal, subprocess, sys
print(json.dumps([
    subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE).pid
    for argv in json.loads(sys.argv[1])
]), flush=True)
signal.pause()
"""


def measure_daemon_losses(counts: Counts) -> list[Row]:
    """Time from a daemon's SIGKILL until its polite families are gone, and until all are."""
    ours = [_lose_daemon(counts) for _ in range(counts.losses)]
    bare_polite_s, bare_all_s = _lose_bare_host(counts)
    return [
        row(
            "daemon killed, polite families gone",
            [polite_s * 1000 for polite_s, _ in ours],
            peer=Peer(HOST, [bare_polite_s * 1000]),
            bound=POLITE_GONE_MS,
        ),
        row(
            f"daemon killed, all gone, deadline {counts.deadline_s:g} s",
            [all_s for _, all_s in ours],
            unit="s",
            peer=Peer(
                HOST,
                [_patience_s(counts) if bare_all_s is None else bare_all_s],
                never=bare_all_s is None,
            ),
            bound=counts.deadline_s,
        ),
    ]


def _patience_s(counts: Counts) -> float:
    """How long a host's stubborn servers are watched that nobody ends."""
    return counts.deadline_s + counts.patience_s


def _lose_daemon(counts: Counts) -> tuple[float, float]:
    """Seconds until the polite families are gone, helpers included, and until all are.

    Raises:
        TooLateError: some never went.
    """
    polite = [f"polite-{number}" for number in range(counts.lost_each)]
    deaf = [f"deaf-{number}" for number in range(counts.lost_each)]
    with ExitStack() as stack:
        ready = stack.enter_context(_ready_pipe())
        deaf_record = record([*DEAF, ready.path], deadline_s=counts.deadline_s)
        records = dict.fromkeys(polite, record(CAT)) | dict.fromkeys(deaf, deaf_record)
        daemon = stack.enter_context(open_daemon(records))
        polite_pids = [pid for name in polite for pid in daemon.start(name)]
        deaf_pids = [pid for name in deaf for pid in daemon.start(name)]
        ready.wait(len(deaf))
        ends = stack.enter_context(_watch(polite_pids + deaf_pids))
        began_at = perf_counter()
        daemon.process.kill()
        ends.wait(counts.deadline_s + PATIENCE_S)
        polite_s, all_s = (ends.last(pids, began_at) for pids in (polite_pids, deaf_pids))
    if polite_s is None or all_s is None:
        message = "a killed daemon's servers did not go"
        raise TooLateError(message)
    return polite_s, max(polite_s, all_s)


def _lose_bare_host(counts: Counts) -> tuple[float, float | None]:
    """The same for a host that has started them with `subprocess`; None where they stay."""
    with ExitStack() as stack:
        ready = stack.enter_context(_ready_pipe())
        commands = [CAT] * counts.lost_each + [(*DEAF, ready.path)] * counts.lost_each
        host = Bare([*BARE_PYTHON, _HOST, json.dumps(commands)])
        stack.callback(host.release)
        wait_readable(host.stdout, PATIENCE_S)
        pids: list[int] = json.loads(os.read(host.stdout, READ_BYTES))
        ready.wait(counts.lost_each)
        ends = stack.enter_context(_watch(pids))
        began_at = perf_counter()
        host.kill()
        ends.wait(_patience_s(counts))
        polite_s = ends.last(pids[: counts.lost_each], began_at)
        all_s = ends.last(pids, began_at)
        ends.kill()
    if polite_s is None:
        message = "a killed host's polite servers did not go"
        raise TooLateError(message)
    return polite_s, all_s


@dataclass(frozen=True, slots=True)
class _ReadyPipe:
    """A named pipe to which each server that is ready writes one byte."""

    path: str
    fd: int

    def wait(self, count: int) -> None:
        """Wait until so many are ready."""
        while count > 0:
            wait_readable(self.fd, PATIENCE_S)
            count -= len(os.read(self.fd, count))


@contextmanager
def _ready_pipe() -> Iterator[_ReadyPipe]:
    with directory() as found:
        path = str(Path(found) / "ready")
        os.mkfifo(path)
        fd = os.open(path, os.O_RDWR)  # both ends are ours too, so that no open has to wait
        try:
            yield _ReadyPipe(path, fd)
        finally:
            os.close(fd)


class _Ends:
    """When each of several processes ended."""

    def __init__(self, pidfds: dict[int, int]) -> None:
        self._pidfds = pidfds
        self._ended_at: dict[int, float] = {}

    def wait(self, within_s: float) -> None:
        """Wait until all have ended, or until the time is over."""
        poll = select.poll()
        for pidfd in self._pidfds.values():
            poll.register(pidfd, select.POLLIN)
        give_up_at = perf_counter() + within_s
        while len(self._ended_at) < len(self._pidfds) and perf_counter() < give_up_at:
            for pidfd, _ in poll.poll(max(0.0, give_up_at - perf_counter()) * 1000):
                self._ended_at[pidfd] = perf_counter()
                poll.unregister(pidfd)

    def last(self, pids: Iterable[int], began_at: float) -> float | None:
        """Seconds until the last of these ended; None when one has not."""
        pidfds = [self._pidfds[pid] for pid in pids]
        if any(pidfd not in self._ended_at for pidfd in pidfds):
            return None
        return max(self._ended_at[pidfd] for pidfd in pidfds) - began_at

    def kill(self) -> None:
        """SIGKILL those that have not ended."""
        for pidfd in self._pidfds.values():
            if pidfd not in self._ended_at:
                signal_pidfd(pidfd, signal.SIGKILL)
                wait_readable(pidfd, PATIENCE_S)


@contextmanager
def _watch(pids: Sequence[int]) -> Iterator[_Ends]:
    with ExitStack() as stack:
        yield _Ends({pid: stack.enter_context(open_pidfd(pid)) for pid in pids})
