"""Counters of what happens at each message: adding to one costs a tenth of the library's.

The library finds the row by its labels, checks the kind of metric and goes through a histogram's
buckets one by one. Here the caller keeps the row, and the rows become metrics when somebody asks.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override


class Tally:
    """One row of a counter; any thread may add to it.

    Attributes:
        value: what was added so far.
    """

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self.value = 0
        self._lock = Lock()

    def add(self, count: int) -> None:
        """Add `count`."""
        with self._lock:
            self.value += count


class Tallies(Collector):
    """The rows of one counter.

    Args:
        name: with its prefix, without `_total`.
        what: in a sentence.
        labels: their names.
    """

    def __init__(self, name: str, what: str, labels: Sequence[str]) -> None:
        self._about: Final = name, what
        self._labels: Final = tuple(labels)
        self._rows: dict[tuple[str, ...], Tally] = {}

    def row(self, *values: str) -> Tally:
        """The row of these label values."""
        return self._rows.setdefault(values, Tally())

    @override
    def collect(self) -> Iterator[Metric]:
        counter = CounterMetricFamily(*self._about, labels=self._labels)
        for values, tally in tuple(self._rows.items()):
            counter.add_metric(values, tally.value)
        yield counter


class SpanTally:
    """One row of a histogram of seconds; any thread may add to it."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum_s = 0.0
        self._lock = Lock()

    def observe(self, seconds: float) -> None:
        """Count one span in the first bucket whose bound it does not exceed."""
        bucket = bisect_left(self._bounds, seconds)
        with self._lock:
            self._counts[bucket] += 1
            self._sum_s += seconds

    def state(self) -> tuple[list[tuple[str, float]], float]:
        """The buckets as they are exposed, each with all below it, and the sum in seconds."""
        with self._lock:
            counts, sum_s = list(self._counts), self._sum_s
        names = [f"{bound}" for bound in self._bounds] + ["+Inf"]
        return list(zip(names, map(float, accumulate(counts)), strict=True)), sum_s


class SpanTallies(Collector):
    """The rows of one histogram.

    Args:
        name: with its prefix and `_seconds`.
        what: in a sentence.
        labels: their names.
        bounds: upper bounds of the buckets, ascending, without infinity.
    """

    def __init__(
        self, name: str, what: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._about: Final = name, what
        self._labels: Final = tuple(labels)
        self._bounds: Final = tuple(bounds)
        self._rows: dict[tuple[str, ...], SpanTally] = {}

    def row(self, *values: str) -> SpanTally:
        """The row of these label values."""
        return self._rows.setdefault(values, SpanTally(self._bounds))

    @override
    def collect(self) -> Iterator[Metric]:
        histogram = HistogramMetricFamily(*self._about, labels=self._labels)
        for values, tally in tuple(self._rows.items()):
            buckets, sum_s = tally.state()
            histogram.add_metric(values, buckets, sum_s)
        yield histogram
