"""Log lines: one JSON object each for machines, one readable line each on a terminal.

Everything goes to standard error, as it is when `configure_logs` is called. What libraries log
with the standard library takes the same way, from warnings upwards. A line that cannot be
written is dropped: a full disk or a closed terminal does not stop a supervisor.
"""

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog
from typing_extensions import override

from supervisor.telemetry.levels import LogLevel, LogStream
from supervisor.telemetry.masking import add_secrets, printable

__all__ = ["add_secrets", "configure_logs"]

_NUMBERS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

_FIRST: Final = ("timestamp", "level", "event")

# structlog's own words for the dictionary of one line; its values are whatever was logged
_Line = MutableMapping[str, Any]


def configure_logs(*, stream: LogStream, level: LogLevel) -> None:
    """Set up all logging of the process; a later call replaces an earlier one.

    Args:
        stream: "auto" is JSON under systemd (JOURNAL_STREAM) and wherever standard error is no
            terminal, and readable lines elsewhere.
        level: the least severe level that is written.
    """
    lines = _Lines(sys.stderr)
    as_json = stream == "json" or (stream == "auto" and not _is_for_people(sys.stderr))
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _mask_line,  # last before the renderer, so that tracebacks are masked too
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,  # a later call must reach loggers that exist already
    )
    _take_over_standard_logging(lines, shared, renderer, level)


class _Lines:
    """Writes finished lines; structlog calls the method named after the level."""

    def __init__(self, target: TextIO) -> None:
        self._target = target

    def write(self, line: str) -> None:
        try:
            self._target.write(line + "\n")
            self._target.flush()
        except (OSError, ValueError):  # full disk, closed pipe; ValueError: closed file object
            return

    debug = info = warning = error = critical = msg = write


class _ToLines(logging.Handler):
    def __init__(self, lines: _Lines) -> None:
        super().__init__()
        self._lines = lines

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._lines.write(self.format(record))


def _take_over_standard_logging(
    lines: _Lines,
    shared: list[structlog.typing.Processor],
    renderer: structlog.typing.Processor,
    level: LogLevel,
) -> None:
    handler = _ToLines(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, _ToLines):
            root.removeHandler(old)
    root.addHandler(handler)
    # libraries chatter at info; their debug lines may hold bodies, so ours never turns them on
    root.setLevel(max(_NUMBERS[level], logging.WARNING))
    logging.captureWarnings(capture=True)


def _is_for_people(stream: TextIO) -> bool:
    return "JOURNAL_STREAM" not in os.environ and stream.isatty()


def _mask_line(_logger: object, _method: str, line: _Line) -> _Line:
    """Mask the known secrets in every string of a line, and put first what people look for."""
    ordered = {key: line[key] for key in _FIRST if key in line} | dict(line)
    return {
        key: value if key.startswith("_") else printable(value) for key, value in ordered.items()
    }
