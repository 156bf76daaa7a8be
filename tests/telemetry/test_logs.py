"""Log lines: for machines or for people, and never a reason to fail."""

import errno
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator

import pytest
import structlog

from supervisor.telemetry.logs import configure_logs


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:  # type: ignore[explicit-override] # of typing, from 3.12 on
        """Yes."""
        return True


class FullDisk(io.StringIO):
    """A stream that takes nothing."""

    def write(self, _: str) -> int:  # type: ignore[explicit-override] # as above
        """Refuse."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(autouse=True)
def logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a test configured."""
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = before


def to(stream: io.TextIOBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let standard error be `stream`."""
    monkeypatch.setattr(sys, "stderr", stream)


def test_a_file_gets_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """One object each, with level and an instant in UTC."""
    stream = io.StringIO()
    to(stream, monkeypatch)
    configure_logs(stream="auto", level="info")

    structlog.get_logger().info("server_started", pid=7)
    structlog.get_logger().debug("step_taken")

    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["pid"]) == ("server_started", "info", 7)
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("journal", [False, True])
def test_a_terminal_gets_readable_lines_unless_it_is_the_journal(
    monkeypatch: pytest.MonkeyPatch, *, journal: bool
) -> None:
    """A service may have a terminal too; journald wants fields, not colours."""
    stream = Terminal()
    to(stream, monkeypatch)
    if journal:
        monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    configure_logs(stream="auto", level="info")

    structlog.get_logger().info("server_started")

    assert stream.getvalue().startswith("{") == journal


def test_libraries_take_the_same_way_from_warnings_upwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stray plain line would break whoever parses the log; chatter at info stays out."""
    stream = io.StringIO()
    to(stream, monkeypatch)
    configure_logs(stream="json", level="debug")
    configure_logs(stream="json", level="debug")

    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    logging.getLogger("asyncio").warning("slow by %d", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["logger"] for line in lines] == ["asyncio", "py.warnings"]
    assert (lines[0]["event"], lines[0]["level"]) == ("slow by 3", "warning")


def test_a_log_that_cannot_be_written_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk and a closed terminal are not worth a server."""
    closed = io.StringIO()
    closed.close()
    for stream in (FullDisk(), closed):
        to(stream, monkeypatch)
        configure_logs(stream="json", level="info")
        structlog.get_logger().info("server_started")
        logging.getLogger("asyncio").warning("slow")
