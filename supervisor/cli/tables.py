"""Tables and spans for people: aligned by hand, safe on a terminal, no trailing blanks."""

from collections.abc import Iterable, Sequence
from typing import Final

from supervisor.cli.ending import plain

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86400
NONE: Final = "-"
"""What a cell shows where there is nothing to show."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a table, columns two blanks apart.

    Args:
        head: the names of the columns.
        rows: one sequence of cells each, as long as `head`; None becomes a dash.
    """
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(head))]
    return [_line(row, widths) for row in cells]


def span(seconds: float) -> str:
    """A span in the two units that matter: `42 s`, `3 min 2 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"


def _cell(value: object) -> str:
    return NONE if value is None else plain(str(value)) or NONE


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(row, widths, strict=True)
    return "  ".join(cell + " " * (width - _width(cell)) for cell, width in pairs).rstrip()


def _width(text: str) -> int:
    """Columns on a terminal: East Asian wide characters take two (Unicode UAX 11)."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 - 1 MiB, seldom needed

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
