"""Takes the measurements one after the other; one that fails does not keep the others from it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from scripts.benchmarks.calling import measure_call_cpu, measure_calls
from scripts.benchmarks.conversing import measure_conversations
from scripts.benchmarks.counts import Counts
from scripts.benchmarks.crowd import measure_crowd
from scripts.benchmarks.exits import measure_exits
from scripts.benchmarks.gateways import measure_gateway
from scripts.benchmarks.idling import measure_idling
from scripts.benchmarks.lines import measure_lines, measure_lost_calls
from scripts.benchmarks.losing import measure_daemon_losses
from scripts.benchmarks.results import Row
from scripts.benchmarks.spawning import measure_memory, measure_spawns
from scripts.benchmarks.starting import measure_programs
from scripts.benchmarks.staying import measure_cycles
from scripts.benchmarks.stopping import (
    measure_polite_stops,
    measure_stubborn_stops,
    measure_unconfirmed_stops,
)
from scripts.benchmarks.surroundings import nothing_left

Measurement = Callable[[Counts], list[Row]]

MEASUREMENTS: Final[Mapping[str, Measurement]] = MappingProxyType(
    {
        "spawn": measure_spawns,
        "memory": measure_memory,
        "crowd": measure_crowd,
        "polite": measure_polite_stops,
        "stubborn": measure_stubborn_stops,
        "unconfirmed": measure_unconfirmed_stops,
        "exit": measure_exits,
        "loss": measure_daemon_losses,
        "cycles": measure_cycles,
        "programs": measure_programs,
        "calls": measure_calls,
        "cpu": measure_call_cpu,
        "sdk": measure_conversations,
        "gateway": measure_gateway,
        "lines": measure_lines,
        "lost": measure_lost_calls,
        "idle": measure_idling,
    }
)
"""By the name that `--only` takes, in the order of the table."""


def run(
    counts: Counts, names: Sequence[str], on_begin: Callable[[str], None]
) -> tuple[list[Row], list[str]]:
    """Take measurements.

    Args:
        counts: how often everything is repeated.
        names: keys of `MEASUREMENTS`.
        on_begin: called with the name of each measurement before it begins.

    Returns:
        The rows of those that worked, and a sentence for each that did not.
    """
    rows: list[Row] = []
    failures: list[str] = []
    for name in (each for each in MEASUREMENTS if each in names):
        on_begin(name)
        try:
            with nothing_left():
                rows += MEASUREMENTS[name](counts)
        except Exception as error:  # noqa: BLE001 - one that fails is reported; the rest goes on
            failures.append(f"{name}: {_cause(error)}")
    return rows, failures


def _cause(error: BaseException) -> str:
    """The first of what a task group has collected, as one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
