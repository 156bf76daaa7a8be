"""What a measurement gives: rows, as a table for people and as JSON for programs.

A row compares medians. Its bound is for what the row is about (`judged`): our own value, ours
less the peer's, or ours over the peer's.
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

Unit = Literal["us", "ms", "s", "MiB", "%", "count"]
Judged = Literal["ours", "difference", "ratio"]

P90: Final = 0.9
DIGITS: Final[dict[Unit, int]] = {"us": 1, "ms": 2, "s": 3, "MiB": 2, "%": 2, "count": 0}
HEADINGS: Final = ("measurement", "ours", "p90", "peer", "its", "compared", "bound", "within")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; the field names are the JSON keys.

    Attributes:
        name: what was measured.
        unit: of all values but a ratio.
        count: how many samples of ours there are.
        lowest: our smallest sample: what is left of the time when nobody disturbs.
        median: ours, `p90` likewise.
        peer: what stands beside it, or None.
        peer_median: the peer's, or how long it was waited for where it never happened.
        peer_never: whether what was waited for did not happen to the peer in that time.
        judged: what the bound is for.
        bound: the largest allowed value, or None where there is none.
    """

    name: str
    unit: Unit
    count: int
    lowest: float
    median: float
    p90: float
    peer: str | None = None
    peer_median: float | None = None
    peer_never: bool = False
    judged: Judged = "ours"
    bound: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the peer's, in `unit`."""
        return None if self.peer_median is None else self.median - self.peer_median

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's."""
        return self.median / self.peer_median if self.peer_median else None

    @property
    def value(self) -> float | None:
        """What the bound is compared with."""
        match self.judged:
            case "ours":
                return self.median
            case "difference":
                return self.difference
            case "ratio":
                return self.ratio

    @property
    def within(self) -> bool | None:
        """Whether the bound is kept; None where there is nothing to compare."""
        if self.bound is None or self.value is None:
            return None
        return self.value <= self.bound

    def as_json(self) -> dict[str, Any]:
        """The row as plain JSON values, with what follows from its fields."""
        return {
            **asdict(self),
            "difference": self.difference,
            "ratio": self.ratio,
            "within": self.within,
        }


@dataclass(frozen=True, slots=True)
class Peer:
    """Samples of something that people use today, or of what the kernel needs by itself.

    Attributes:
        never: whether it did not happen; the samples then say how long it was waited for.
    """

    name: str
    samples: Sequence[float]
    never: bool = False


def row(
    name: str,
    samples: Sequence[float],
    *,
    unit: Unit = "ms",
    peer: Peer | None = None,
    judged: Judged = "ours",
    bound: float | None = None,
) -> Row:
    """Make a row of samples in `unit`; a peer without samples is left out."""
    has_peer = peer is not None and bool(peer.samples)
    return Row(
        name=name,
        unit=unit,
        count=len(samples),
        lowest=min(samples),
        median=statistics.median(samples),
        p90=p90(samples),
        peer=peer.name if peer and has_peer else None,
        peer_median=statistics.median(peer.samples) if peer and has_peer else None,
        peer_never=peer.never if peer and has_peer else False,
        judged=judged,
        bound=bound,
    )


def p90(samples: Sequence[float]) -> float:
    """The smallest sample that 90 % of all do not exceed (nearest rank)."""
    return sorted(samples)[math.ceil(P90 * len(samples)) - 1]


def table(rows: Sequence[Row]) -> str:
    """The rows for people, columns aligned."""
    cells = [HEADINGS, *(_cells(each) for each in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return "\n".join(_line(line, widths) for line in cells)


def _line(cells: tuple[str, ...], widths: Sequence[int]) -> str:
    words = {0, 3, 7}  # the columns that hold words; numbers stand at the right
    padded = (
        cell.ljust(width) if column in words else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    within = {True: "yes", False: "NO", None: "-"}[row.within]
    return (
        row.name,
        _number(row.median, row.unit),
        _number(row.p90, row.unit),
        row.peer or "-",
        _its(row),
        _compared(row),
        _bound(row),
        within,
    )


def _its(row: Row) -> str:
    if row.peer_median is None:
        return "-"
    if row.peer_never:
        in_seconds = row.peer_median / (1000 if row.unit == "ms" else 1)
        return f"never in {in_seconds:.1f} s"
    return _number(row.peer_median, row.unit)


def _compared(row: Row) -> str:
    if row.judged == "difference" and row.difference is not None:
        return f"{row.difference:+.{DIGITS[row.unit]}f} {_name(row.unit)}".rstrip()
    if row.ratio is None:
        return "-"
    return f"{'< ' if row.peer_never else ''}x {row.ratio:.3g}"


def _bound(row: Row) -> str:
    if row.bound is None:
        return "-"
    text = f"{row.bound:g}"
    match row.judged:
        case "ours":
            return f"{text} {_name(row.unit)}".rstrip()
        case "difference":
            return f"+{text} {_name(row.unit)}".rstrip()
        case "ratio":
            return f"x {text}"


def _number(value: float, unit: Unit) -> str:
    return f"{value:.{DIGITS[unit]}f} {_name(unit)}".rstrip()


def _name(unit: Unit) -> str:
    return "" if unit == "count" else unit


def write_json(file: Path, machine: str, rows: Sequence[Row]) -> None:
    """Write everything to a file, as a whole.

    Raises:
        OSError: it cannot be written.
    """
    body = {"machine": machine, "rows": [each.as_json() for each in rows]}
    file.write_text(json.dumps(body, indent=2) + "\n", "utf-8")


def read_json(file: Path) -> tuple[Row, ...]:
    """The rows of a file that `write_json` wrote."""
    fields = Row.__dataclass_fields__
    rows = json.loads(file.read_text("utf-8"))["rows"]
    return tuple(Row(**{name: each[name] for name in fields}) for each in rows)
