"""How many steps checking one value against one schema takes at most, before it is checked.

The checker holds the interpreter while it works and cannot be interrupted, so nothing is given to
it that may take long. Its time is not bounded by the sizes: thirty parts that each refer twice to
the next mean 2**30 visits. So a walk over the value counts them. At each place it knows which parts
look there and how often (a state); the same state at another place has the same price, so a list of
ten thousand rows costs one look-up a row.

A step is about 20 ns. The walk is pure Python and in slices, so that other tasks run in between.

Source: measured with jsonschema-rs 0.61 on two cores; the test of the worst cases repeats it.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from supervisor.runtime.schema_graph import MAX_CHAIN, Graph, size_chars
from supervisor.runtime.schema_patterns import BACKTRACKS

BUDGET_STEPS: Final = 1_000_000
"""For one check: 20 ms."""

BUDGET_MATCHING: Final = 1_200_000
"""Steps for patterns, 25 to 50 ms at worst. Ordinary patterns take a fiftieth of their price."""

BUDGET_COPIES: Final = 100_000
"""Values that descriptions of errors may copy: 30 ms. Each holds a copy of what it is about."""

MAX_NODES: Final = 50_000
MAX_CHARS: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 128

SLICE: Final = 1_000
"""Work between two looks at the event loop: about 2 ms."""

_MAX_STATES: Final = 2_000
_MAX_WORK: Final = 200_000
"""Of the walk itself: half a second in slices."""

_TOO_MUCH: Final = BUDGET_STEPS + 1
_SORT: Final = 16
"""Comparisons of an item when a list is looked through for equal ones."""

_TOO_LARGE: Final = f"the value is larger than {MAX_NODES} parts or {MAX_CHARS // 1024 // 1024} MiB"

Counts = dict[int, int]


class TooCostlyError(Exception):
    """The check could take too long; the text is a clause that says why."""


@dataclass(slots=True)
class _State:
    """Which parts look at a place, each how often, and what that costs.

    Attributes:
        counts: by the number of the part, those that look at the same value included.
        error: values that errors quote, see `Part`.
        visit, member, char, square, key_char, key_square: steps, as in `Part` and `PatternPrice`.
        unique: how often items are compared.
        chain: how deep the checker calls itself for this place.
        named, members, names, first, items: states of the places below, as far as known.
    """

    counts: Counts
    visit: int = 0
    error: int = 0
    member: int = 0
    char: int = 0
    square: int = 0
    key_char: int = 0
    key_square: int = 0
    unique: int = 0
    chain: int = 0
    keys: frozenset[str] = frozenset()
    firsts: int = 0
    named: dict[str, "_State"] = field(default_factory=dict)
    first: dict[int, "_State"] = field(default_factory=dict)
    members: "_State | None" = None
    names: "_State | None" = None
    items: "_State | None" = None


class Meter:
    """The states of one schema, made as values need them. Used by one task at a time or several."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[tuple[tuple[int, int], ...], _State] = {}
        self.work = 0

    def start(self) -> _State:
        """The state at the top of a value."""
        if len(self._known) > _MAX_STATES:
            self._known.clear()
        return self._state([(0, 1)] if self._graph.parts else [])

    def named(self, state: _State, name: str) -> _State:
        """The state at the member of that name."""
        if name not in state.keys:
            return self.member(state)
        if (below := state.named.get(name)) is None:
            parts = self._graph.parts
            more = [(parts[at].named.get(name), count) for at, count in state.counts.items()]
            below = state.named[name] = self._state([*self._members(state), *more])
        return below

    def member(self, state: _State) -> _State:
        """The state at any other member."""
        if state.members is None:
            state.members = self._state(self._members(state))
        return state.members

    def name(self, state: _State) -> _State:
        """The state at the name of a member."""
        if state.names is None:
            parts = self._graph.parts
            state.names = self._state(
                (below, count) for at, count in state.counts.items() for below in parts[at].names
            )
        return state.names

    def item(self, state: _State, index: int) -> _State:
        """The state at the item with that index."""
        if index >= state.firsts:
            if state.items is None:
                state.items = self._state(self._items(state))
            return state.items
        if (below := state.first.get(index)) is None:
            parts = self._graph.parts
            more = [
                (parts[at].first[index], count)
                for at, count in state.counts.items()
                if index < len(parts[at].first)
            ]
            below = state.first[index] = self._state([*self._items(state), *more])
        return below

    def _members(self, state: _State) -> Iterable[tuple[int, int]]:
        parts = self._graph.parts
        return ((below, count) for at, count in state.counts.items() for below in parts[at].members)

    def _items(self, state: _State) -> Iterable[tuple[int, int]]:
        parts = self._graph.parts
        return ((below, count) for at, count in state.counts.items() for below in parts[at].items)

    def _state(self, entered: Iterable[tuple[int | None, int]]) -> _State:
        counts: Counts = {}
        for at, count in entered:
            self.work += 1
            if at is not None:
                counts[at] = min(_TOO_MUCH, counts.get(at, 0) + count)
        key = tuple(sorted(counts.items()))
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._priced(self._spread(counts), counts)
        return known

    def _spread(self, entered: Counts) -> Counts:
        """Add the parts that look at the same value, in an order that visits each once."""
        parts, order = self._graph.parts, self._graph.order
        counts = dict(entered)
        waiting = [(order[at], at) for at in counts]
        heapq.heapify(waiting)
        while waiting:
            _, at = heapq.heappop(waiting)
            count = min(_TOO_MUCH, counts[at] * parts[at].factor)
            self.work += 1 + len(parts[at].here)
            for below in parts[at].here:
                if below not in counts:
                    heapq.heappush(waiting, (order[below], below))
                counts[below] = min(_TOO_MUCH, counts.get(below, 0) + count)
        return counts

    def _priced(self, counts: Counts, entered: Counts) -> _State:
        graph = self._graph
        state = _State(
            counts, visit=1, error=1, chain=max((graph.chain[at] for at in entered), default=0)
        )
        keys = set[str]()
        for at, count in counts.items():
            part = graph.parts[at]
            state.visit += count * part.visit
            state.error += count * part.error
            # what stands beside `unevaluated...` is looked at again, members and all
            state.member += count * part.member * part.factor
            state.char += count * sum(graph.prices[text].char for text in part.text)
            state.square += count * sum(graph.prices[text].square for text in part.text)
            state.key_char += count * sum(graph.prices[text].char for text in part.key_text)
            state.key_square += count * sum(graph.prices[text].square for text in part.key_text)
            state.unique += count * part.unique
            state.firsts = max(state.firsts, len(part.first))
            keys.update(part.named)
            self.work += 1 + len(part.named)
        state.keys = frozenset(keys)
        return state


@dataclass(slots=True)
class _Inside:
    """A container that the walk is in.

    Attributes:
        members, items: what is left to visit; one of them is None.
        state: of the container.
        depth: how many containers are around its contents.
        chain: how deep the checker calls itself, with its contents still to come.
        errors: what errors about this container and those around it may quote, in values.
        compared: how often its contents are compared with others.
    """

    members: Iterator[tuple[str, JsonValue]] | None
    items: Iterator[tuple[int, JsonValue]] | None
    state: _State
    depth: int = 0
    chain: int = 0
    errors: int = 0
    compared: int = 0


class Walk:
    """Goes through one value and adds up what its check costs.

    Attributes:
        steps: of the check, without patterns.
        matching: steps for patterns.
        copies: values that descriptions of all possible errors could hold.
    """

    def __init__(self, meter: Meter, value: JsonValue) -> None:
        self.steps = 0
        self.matching = 0
        self.copies = 0
        self._meter = meter
        self._work = 0
        self._nodes = 0
        self._chars = 0
        # as the only item of a list that no part looks at
        self._path = [_Inside(None, iter(()), _State({}))]
        self._enter(value, meter.start(), self._path[0])

    def advance(self) -> bool:
        """Do one slice.

        Returns:
            Whether the walk is over.

        Raises:
            TooCostlyError: the value is too large, or its check could take too long.
        """
        self._meter.work = 0
        until = self._nodes + SLICE
        while self._path and self._nodes + self._meter.work < until:
            self._visit_next(self._path[-1])
            self._refuse_excess()
        self._work += self._meter.work
        return not self._path

    @property
    def may_describe(self) -> bool:
        """Whether all errors may be listed: that is slower than looking, and copies values."""
        return self.copies + self.steps // 10 + self.matching // 30 <= BUDGET_COPIES

    def _visit_next(self, inside: _Inside) -> None:
        if inside.members is not None:
            for name, value in inside.members:
                self._price_name(name, inside.state)
                self._enter(value, self._meter.named(inside.state, name), inside)
                return
        elif inside.items is not None:
            for index, value in inside.items:
                self._enter(value, self._meter.item(inside.state, index), inside)
                return
        self._path.pop()

    def _price_name(self, name: str, state: _State) -> None:
        chars, names = len(name), self._meter.name(state)
        self._chars += chars
        self.steps += names.visit + state.member
        self.matching += (names.char + state.key_char) * chars
        self.matching += (names.square + state.key_square) * chars * (chars + BACKTRACKS)

    def _enter(self, value: JsonValue, state: _State, around: _Inside) -> None:
        chars = size_chars(value)
        size = 1 + chars // 32
        errors = min(_TOO_MUCH, around.errors + state.error)
        self._nodes += 1
        self._chars += chars
        self.copies += errors * size
        self.steps += state.visit + around.compared * size * _SORT
        match value:
            case str():
                self.matching += state.char * chars + state.square * chars * (chars + BACKTRACKS)
            case int():
                self.steps += chars * chars // 32  # digits: numbers are divided by `multipleOf`
            case dict() | list():
                inside = _Inside(None, None, state, around.depth + 1, errors=errors)
                inside.chain = around.chain + state.chain + 1
                inside.compared = min(_TOO_MUCH, around.compared + state.unique)
                if isinstance(value, dict):
                    inside.members = iter(value.items())
                else:
                    inside.items = iter(enumerate(value))
                self._refuse_large(len(value), inside)
                self._path.append(inside)
            case _:
                pass

    def _refuse_large(self, length: int, inside: _Inside) -> None:
        if inside.depth > MAX_DEPTH or inside.chain > MAX_CHAIN:
            message = "the value is nested too deep for this schema"
            raise TooCostlyError(message)
        if self._nodes + length > MAX_NODES:
            raise TooCostlyError(_TOO_LARGE)

    def _refuse_excess(self) -> None:
        if self._nodes > MAX_NODES or self._chars > MAX_CHARS:
            raise TooCostlyError(_TOO_LARGE)
        too_long = self.steps > BUDGET_STEPS or self.matching > BUDGET_MATCHING
        if too_long or self._work + self._meter.work > _MAX_WORK:
            message = "checking it against this schema could take too long"
            raise TooCostlyError(message)
