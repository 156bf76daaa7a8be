"""The thread behind the server logs: all that touches the disk, in the order of its queue.

It shares no lock with the event loop: each counter has one writer, and what is for the loop is
handed over by a call in the loop's own thread.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import structlog

from supervisor.core.ids import InstanceId, ServerName
from supervisor.telemetry.events import utc_now
from supervisor.telemetry.log_files import LogFile
from supervisor.telemetry.log_lines import LineMaker

BATCH_ITEMS: Final = 64
"""How many pieces are written at once: 4 MiB at the most, since a pipe gives 64 KiB."""

TAIL_BYTES: Final = 4 * 1024 * 1024
"""The most that is read for one tail."""

FOLLOWER_LINES: Final = 10000
"""How far a follower may be behind before it misses lines: some megabytes."""

_Given = TypeVar("_Given")

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Source:
    """The stderr of one instance, and how much of it is where."""

    server: ServerName
    instance: InstanceId
    maker: LineMaker  # the worker's
    taken_bytes: int = 0  # written by the event loop
    dropped_bytes: int = 0  # likewise
    done_bytes: int = 0  # written by the worker
    noted_bytes: int = 0  # likewise: of the dropped ones

    @property
    def waiting_bytes(self) -> int:
        """What is queued."""
        return self.taken_bytes - self.done_bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """What a server wrote at one moment; `data` is None at the end.

    Attributes:
        weight_bytes: what it counts in the queue.
        dropped_bytes: how much of this source had been dropped before.
    """

    source: Source
    at_utc: str
    data: bytes | None
    weight_bytes: int
    dropped_bytes: int


class Follower:
    """Lines for one reader, who may be slow. Used by the event loop's thread."""

    def __init__(self) -> None:
        self.closed = False  # read by the worker too, which then forgets the follower
        self._lines: deque[str] = deque()
        self._missed = 0
        self._news = anyio.Event()

    def add(self, lines: list[str]) -> None:
        """Take lines, as many as there is room for."""
        taken = lines[: FOLLOWER_LINES - len(self._lines)]
        self._lines.extend(taken)
        self._missed += len(lines) - len(taken)
        self._news.set()

    def close(self) -> None:
        """End the reader once it has what is here."""
        self.closed = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        """The lines, as they come."""
        while True:
            while self._lines:
                yield self._lines.popleft()
            if self._missed:
                missed, self._missed = self._missed, 0
                yield _note("-", f"{missed} lines are not shown: this reader was too slow")
            elif self.closed:
                return
            else:
                self._news = anyio.Event()
                await self._news.wait()


@dataclass(slots=True)
class Request:
    """Asks for the last lines of a server, and to hand on what comes after them."""

    server: ServerName
    count: int
    follower: Follower | None
    lines: tuple[str, ...] = ()
    answered: anyio.Event = field(default_factory=anyio.Event)

    def answer(self, lines: tuple[str, ...]) -> None:
        """Here they are. Called by the event loop's thread."""
        self.lines = lines
        self.answered.set()


class Worker:
    """What the thread does.

    Attributes:
        items: what is to be done, in this order; None ends it.
        done_bytes: the weight of all pieces that are done with.
        lost: bytes that the disk did not take, by server.
    """

    def __init__(self, directory: str, rotate_bytes: int) -> None:
        self.items: Final = queue.SimpleQueue[Piece | Request | None]()
        self.done_bytes = 0
        self.lost: Final[dict[ServerName, int]] = {}
        self._directory = Path(directory)
        self._rotate_bytes = rotate_bytes
        self._token: anyio.lowlevel.EventLoopToken | None = None
        self._lines: dict[ServerName, list[str]] = {}  # made, not yet written
        self._followers: dict[ServerName, list[Follower]] = {}
        self._missing: dict[ServerName, int] = {}  # lost bytes that no file tells of yet

    def run(self, token: anyio.lowlevel.EventLoopToken) -> None:
        """Work until None comes; `token` is of the loop that is told."""
        self._token = token
        pause = threading.Event()
        while True:
            batch = self._next_batch()
            began_s = time.thread_time()
            for item in batch:
                self._do(item)
            self._flush()
            self._count(batch)
            if batch[-1] is None:
                return
            # a server that floods gets half a core at most: the loop needs the interpreter
            pause.wait(time.thread_time() - began_s)

    def _next_batch(self) -> list[Piece | Request | None]:
        batch = [self.items.get()]
        with suppress(queue.Empty):
            while len(batch) < BATCH_ITEMS and batch[-1] is not None:
                batch.append(self.items.get_nowait())
        return batch

    def _count(self, batch: list[Piece | Request | None]) -> None:
        for item in batch:
            if isinstance(item, Piece):
                item.source.done_bytes += item.weight_bytes
                self.done_bytes += item.weight_bytes

    def _do(self, item: Piece | Request | None) -> None:
        match item:
            case Piece():
                self._lines.setdefault(item.source.server, []).extend(_lines_of(item))
            case Request():
                self._flush()
                self._answer(item)
            case None:
                pass

    def _flush(self) -> None:
        lines_of, self._lines = self._lines, {}
        for server, lines in lines_of.items():
            if lines:
                self._write(server, lines)
                self._hand_out(server, lines)

    def _write(self, server: ServerName, lines: list[str]) -> None:
        missing = self._missing.pop(server, 0)
        note = [_note("-", f"up to {missing} bytes are missing here: they could not be written")]
        encoded = [f"{line}\n".encode() for line in (note if missing else []) + lines]
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file(server).append(encoded)
        except OSError as error:
            lost = sum(map(len, encoded))
            self.lost[server] = self.lost.get(server, 0) + lost
            self._missing[server] = missing + lost
            if not missing:  # once, until it works again
                _log.warning("server_log_failed", server=server, reason=str(error))

    def _hand_out(self, server: ServerName, lines: list[str]) -> None:
        followers = [each for each in self._followers.pop(server, ()) if not each.closed]
        if followers:
            self._followers[server] = followers
        for follower in followers:
            self._in_loop(follower.add, lines)

    def _answer(self, request: Request) -> None:
        found = self._file(request.server).last_lines(request.count, at_most_bytes=TAIL_BYTES)
        lines = tuple(line.decode("utf-8", "replace").rstrip("\n") for line in found)
        if request.follower is not None:
            self._followers.setdefault(request.server, []).append(request.follower)
        self._in_loop(request.answer, lines)

    def _in_loop(self, call: Callable[[_Given], None], argument: _Given) -> None:
        with suppress(RuntimeError):  # the loop is gone, and with it whoever wanted to know
            anyio.from_thread.run_sync(call, argument, token=self._token)

    def _file(self, server: ServerName) -> LogFile:
        return LogFile(str(self._directory), server, rotate_bytes=self._rotate_bytes)


def _lines_of(piece: Piece) -> list[str]:
    source, lines = piece.source, list[str]()
    stamp = f"{piece.at_utc} {source.instance}"
    more = piece.dropped_bytes - source.noted_bytes
    if more:
        lines += [f"{stamp} {line}" for line in source.maker.end()]  # its rest is lost
        lines.append(
            _note(source.instance, f"{more} bytes are missing here: the disk was too slow")
        )
        source.noted_bytes = piece.dropped_bytes
    made = source.maker.end() if piece.data is None else source.maker.feed(piece.data)
    return lines + [f"{stamp} {line}" for line in made]


def _note(instance: str, text: str) -> str:
    return f"{utc_now()} {instance} [mcp-supervisord: {text}]"
