"""Log files of servers: complete, in order, harmless, and never a reason to wait."""

import re
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.ids import InstanceId, ServerName
from supervisor.telemetry import masking
from supervisor.telemetry.log_files import KEPT_FILES, LogFile, safe_name
from supervisor.telemetry.log_lines import LINE_BYTES, LineMaker
from supervisor.telemetry.log_worker import FOLLOWER_LINES
from supervisor.telemetry.server_logs import INSTANCE_BYTES, ServerLogs, StderrLog

pytestmark = pytest.mark.anyio

GIT: Final = ServerName("git")
ONE: Final = InstanceId("0123456789abcdef")
TWO: Final = InstanceId("fedcba9876543210")
NONE: Final = frozenset[str]()
STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ([0-9a-f]{16}|-) (.*)")


@asynccontextmanager
async def logging(directory: Path, rotate_bytes: int = 1 << 20) -> AsyncIterator[ServerLogs]:
    """Logs in `directory`, within seconds."""
    logs = ServerLogs(str(directory), rotate_bytes=rotate_bytes)
    with anyio.fail_after(20):
        async with logs.running():
            yield logs


def files_in(directory: Path) -> list[Path]:
    """All files below it, sorted."""
    return sorted(path for path in directory.rglob("*") if path.is_file())


def texts(lines: tuple[str, ...] | list[str]) -> list[str]:
    """The lines without time and instance, which must be there."""
    matches = [STAMP.fullmatch(line) for line in lines]
    assert None not in matches, lines
    return [match[2] for match in matches if match is not None]


async def test_lines_say_when_and_of_which_instance(tmp_path: Path) -> None:
    """One file holds all instances of a server; lines may come in pieces."""
    async with logging(tmp_path / "logs") as logs:
        one, two = logs.open(GIT, ONE, NONE), logs.open(GIT, TWO, NONE)
        one.feed(b"fir")
        two.feed(b"other\n")
        one.feed(b"st\nlast")
        one.end()
        lines = await logs.tail(GIT, 10)

    assert texts(lines) == ["other", "first", "last"]
    assert [line.split()[1] for line in lines] == [TWO, ONE, ONE]
    assert (tmp_path / "logs" / "git.log").read_text() == "".join(f"{line}\n" for line in lines)


async def test_directory_and_files_are_for_us_alone(tmp_path: Path) -> None:
    """Servers print secrets that nobody announced."""
    directory = tmp_path / "logs"
    async with logging(directory) as logs:
        logs.open(GIT, ONE, NONE).feed(b"line\n")

    file = directory / "git.log"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    async with logging(directory) as logs:
        logs.open(GIT, ONE, NONE).feed(b"line\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_secrets_and_control_characters_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads a log with `cat` must not have the terminal driven by a server."""
    monkeypatch.setattr(masking, "_secrets", frozenset())  # as before, at the end
    async with logging(tmp_path) as logs:
        log = logs.open(GIT, ONE, frozenset({"hunter22"}))
        log.feed("a\x1b[2Jb\x9bc\u202ed\r\n\xff token=hunt".encode() + b"\xfe\n")
        log.feed(b"hunt")
        log.feed(b"er22!\n")
        lines = await logs.tail(GIT, 10)

    raw = (tmp_path / "git.log").read_bytes()
    assert texts(lines) == ["a\ufffd[2Jb\ufffdc\ufffdd", "ÿ token=hunt\ufffd", "***!"]
    assert b"hunter22" not in raw
    assert b"\x1b" not in raw


@given(before=st.integers(min_value=LINE_BYTES - 20, max_value=LINE_BYTES + 20))
def test_a_long_line_is_not_cut_inside_a_secret(before: int) -> None:
    """Two halves would both be shown."""
    hidden = "correct-horse"
    maker = LineMaker(frozenset({hidden}))

    lines = [*maker.feed(b"x" * before + hidden.encode() + b"y" * LINE_BYTES), *maker.end()]

    whole = b"".join(line.encode() for line in lines)
    assert len(lines) > 1
    assert whole.count(b"x") == before
    # what is masked are the known secrets of the process; this is none of them, and so is whole
    assert any(hidden in line for line in lines)


@given(st.text(max_size=30), st.text(max_size=30))
def test_two_servers_never_share_a_file(one: str, other: str) -> None:
    """Names come from a file that people write."""
    assert (safe_name(one) == safe_name(other)) == (one == other)


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/abs",
        ".",
        "..",
        ".hidden",
        "",
        "a\x00b",
        "x" * 4000,
        "ü" * 300,
        "\ud800",
    ],
)
async def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    """Names from configuration never become paths unchecked (design section 17)."""
    directory = tmp_path / "deep" / "logs"
    async with logging(directory) as logs:
        logs.open(ServerName(name), ONE, NONE).feed(b"line\n")
        assert len(await logs.tail(ServerName(name), 5)) == 1

    files = files_in(tmp_path)
    assert [file.parent for file in files] == [directory]
    assert not files[0].name.startswith(".")


def test_long_names_that_begin_alike_stay_apart() -> None:
    """They are cut."""
    assert safe_name("x" * 300) != safe_name("x" * 301)
    assert len(safe_name("ü" * 300)) <= 200
    assert safe_name("io.github.a/tool") == "io.github.a%2Ftool"


async def test_files_rotate_and_the_oldest_goes(tmp_path: Path) -> None:
    """A chatty server must not fill the disk."""
    async with logging(tmp_path, rotate_bytes=1000) as logs:
        log = logs.open(GIT, ONE, NONE)
        for n in range(200):
            log.feed(b"line %d\n" % n)
        lines = await logs.tail(GIT, 1000)
        few = await logs.tail(GIT, 30)

    files = files_in(tmp_path)
    assert [file.name for file in files] == [
        "git.log",
        *(f"git.log.{n}" for n in range(1, KEPT_FILES + 1)),
    ]
    assert all(file.stat().st_size <= 1000 for file in files)
    kept = texts(lines)
    assert kept == [f"line {n}" for n in range(200 - len(kept), 200)]
    assert 40 < len(kept) < 100
    assert few == lines[-30:]


async def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """What is lost meanwhile is counted, and told once the file can be written."""
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "git.log").symlink_to(tmp_path / "elsewhere")
    async with logging(directory) as logs:
        log = logs.open(GIT, ONE, NONE)
        log.feed(b"lost\n")
        assert await logs.tail(GIT, 5) == ()
        lost = logs.dropped_bytes()[GIT]
        (directory / "git.log").unlink()
        log.feed(b"kept\n")
        lines = await logs.tail(GIT, 5)

    assert not (tmp_path / "elsewhere").exists()
    assert lost > 0
    assert texts(lines)[1:] == ["kept"]
    assert f"up to {lost} bytes are missing here" in lines[0]


class SlowDisk:
    """Lets appends wait until the test allows them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.allowed = threading.Event()
        append: Callable[[LogFile, list[bytes]], None] = LogFile.append

        def slow(file: LogFile, lines: list[bytes]) -> None:
            self.reached.set()
            assert self.allowed.wait(10)
            append(file, lines)

        monkeypatch.setattr(LogFile, "append", slow)

    async def wait_reached(self) -> None:
        """Until the worker is held up."""
        assert await anyio.to_thread.run_sync(self.reached.wait, 5)


def flood(log: StderrLog, pieces: int) -> int:
    """Feed more than there is room for; returns the bytes."""
    line = b"x" * 1023 + b"\n"
    for _ in range(pieces):
        log.feed(line * 64)
    return pieces * 65536


async def test_a_slow_disk_costs_lines_and_nobodys_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Feeding never waits; the gap stands in the file, and another server is not affected."""
    disk = SlowDisk(monkeypatch)
    async with logging(tmp_path, rotate_bytes=1 << 24) as logs:
        log, other = logs.open(GIT, ONE, NONE), logs.open(ServerName("docs"), TWO, NONE)
        log.feed(b"first\n")
        await disk.wait_reached()
        fed = flood(log, 40)
        other.feed(b"beside it\n")
        log.end()
        dropped = logs.dropped_bytes()
        disk.allowed.set()
        lines = await logs.tail(GIT, 5000)
        beside = await logs.tail(ServerName("docs"), 5)

    written = sum(len(text) + 1 for text in texts(lines) if text.startswith("x"))
    assert texts(lines)[0] == "first"
    assert set(dropped) == {GIT}
    assert written + dropped[GIT] == fed
    assert written <= INSTANCE_BYTES
    assert texts(lines)[-1] == (
        f"[mcp-supervisord: {dropped[GIT]} bytes are missing here: the disk was too slow]"
    )
    assert texts(beside) == ["beside it"]


async def test_what_is_written_makes_room(tmp_path: Path) -> None:
    """The bounds are for what waits, not for what a server may write in its life."""
    async with logging(tmp_path, rotate_bytes=1 << 24) as logs:
        log = logs.open(GIT, ONE, NONE)
        for _ in range(20):
            flood(log, 8)
            while log._source.waiting_bytes:
                await anyio.lowlevel.checkpoint()

        assert logs.dropped_bytes() == {}
        assert logs._taken_bytes == logs._worker.done_bytes > 8 * INSTANCE_BYTES


async def test_pieces_of_one_byte_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them costs far more than its byte."""
    disk = SlowDisk(monkeypatch)
    async with logging(tmp_path) as logs:
        log = logs.open(GIT, ONE, NONE)
        log.feed(b"first\n")
        await disk.wait_reached()
        for _ in range(10000):
            log.feed(b"x")
        dropped = logs.dropped_bytes()[GIT]
        disk.allowed.set()

    assert dropped > 10000 - INSTANCE_BYTES / 256


async def test_a_disk_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks is told so; the daemon itself ends without the thread."""
    disk = SlowDisk(monkeypatch)
    monkeypatch.setattr("supervisor.telemetry.server_logs.PATIENCE_S", 0.05)
    async with logging(tmp_path) as logs:
        logs.open(GIT, ONE, NONE).feed(b"first\n")
        await disk.wait_reached()
        with pytest.raises(TimeoutError):
            await logs.tail(GIT, 1)
        with pytest.raises(TimeoutError):
            await logs.follow(GIT, 1)
    disk.allowed.set()  # now the thread can end


async def test_a_follower_gets_each_line_once_and_in_order(tmp_path: Path) -> None:
    """From the tail to what comes, without a gap, until the logs end."""
    async with logging(tmp_path) as logs:
        log = logs.open(GIT, ONE, NONE)
        log.feed(b"1\n2\n3\n")
        follower = await logs.follow(GIT, 2)
        log.feed(b"4\n5\n")
        logs.open(ServerName("docs"), TWO, NONE).feed(b"of another server\n")
        seen = [await anext(follower) for _ in range(4)]
        logs.end_follows()
        rest = [line async for line in follower]

    assert texts(seen) == ["2", "3", "4", "5"]
    assert rest == []


async def test_a_slow_follower_is_told_what_it_missed(tmp_path: Path) -> None:
    """And costs no more memory than that."""
    async with logging(tmp_path, rotate_bytes=1 << 24) as logs:
        log = logs.open(GIT, ONE, NONE)
        follower = await logs.follow(GIT)
        log.feed(b"x\n" * (FOLLOWER_LINES + 7))
        await logs.tail(GIT, 1)  # after this, all has been handed out
        logs.end_follows()
        lines = [line async for line in follower]

    assert len(lines) == FOLLOWER_LINES + 1
    assert "7 lines are not shown" in lines[-1]


async def test_what_is_queued_at_the_end_is_still_written(tmp_path: Path) -> None:
    """The last words of a server are those that are looked for."""
    async with logging(tmp_path) as logs:
        log = logs.open(GIT, ONE, NONE)
        for n in range(1000):
            log.feed(b"%d\n" % n)
        log.feed(b"the very last")
        log.end()

    written = (tmp_path / "git.log").read_text().splitlines()
    assert texts(written) == [*map(str, range(1000)), "the very last"]


@given(st.lists(st.text(alphabet="ab\r", max_size=40), max_size=60), st.integers(0, 70))
def test_the_last_lines_are_the_last_lines(lines: list[str], count: int) -> None:
    """Read backwards, in blocks smaller than a line."""
    import tempfile  # noqa: PLC0415 - fixtures are not made anew for each example

    from supervisor.telemetry import log_files  # noqa: PLC0415 - its block size is changed

    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "_READ_BYTES", 7)
        file = LogFile(directory, "git", rotate_bytes=300)
        raw = [f"{line}\n".encode() for line in lines]
        file.append(raw)

        found = file.last_lines(count, at_most_bytes=1 << 20)

    kept = raw[len(raw) - len(found) :]
    assert found == kept
    assert len(found) == min(count, len(raw)) or sum(map(len, raw)) > 300


def descriptors() -> set[str]:
    """What this process has open, without the listing itself."""
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}


async def test_nothing_is_held_open(tmp_path: Path) -> None:
    """Hundreds of servers would be hundreds of descriptors."""
    async with logging(tmp_path) as logs:
        before = descriptors()
        for n in range(20):
            logs.open(ServerName(f"s{n}"), ONE, NONE).feed(b"line\n")
        await logs.tail(GIT, 1)
        assert descriptors() == before
