"""A schema as a graph of its parts: which part looks at which place of a value.

Drawn before anything is compiled, so that what cannot be used is refused by its form: too large,
too deep, a reference that leaves the schema, parts that refer to each other without end. What
remains is the ground on which `schema_price` tells how long a check may take.

All dialects are read alike (the union of their keywords), which can only make a price too high.
A reference may point to `#`, `#/...` or an anchor; with a second `$id` inside, what `#` means would
depend on the place, so such a schema is refused.

Source: JSON Schema 2020-12 core, sections 8 and 10; drafts 4 to 2019-09 for what they had before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from pydantic import JsonValue

from supervisor.runtime.schema_patterns import PatternPrice

MAX_NODES: Final = 10_000
"""JSON values in one schema; compiling so many takes about 10 ms, and nothing else runs then."""

MAX_CHARS: Final = 256 * 1024
MAX_DEPTH: Final = 100
"""The compiler itself ends at 255; a chain of references is counted apart."""

MAX_CHAIN: Final = 500
"""Parts in a row for one value. The checker calls itself for each, at about 1 KB of C stack."""

UNEVALUATED_FACTOR: Final = 4
"""`unevaluated...` makes the checker look again at everything beside it; measured: up to 2.6 x."""

_SLICE: Final = 500
"""Parts drawn at once: about 8 ms."""

_ONE_HERE: Final = ("not", "if", "then", "else")
_LIST_HERE: Final = ("allOf", "anyOf", "oneOf")
_MAP_HERE: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties")
_ITEMS: Final = ("additionalItems", "unevaluatedItems", "contains")
_UNUSED: Final = ("$defs", "definitions")
_LISTS: Final = ("enum", "const", "required", "dependentRequired")


class UnusableError(Exception):
    """The schema cannot be used; the text is a clause that says why."""


@dataclass(slots=True)
class Part:
    """One (sub)schema.

    Attributes:
        visit: steps for each value that it looks at.
        error: values that descriptions of its errors quote of the schema.
        member: steps for each member of an object.
        text: patterns that a string has to match.
        key_text: patterns that the names of members are compared with.
        unique: whether items are compared with each other.
        factor: how often the checker may go through what is beside `unevaluated...`.
        here: parts that look at the same value.
        named, members, names: parts for the member of that name, all members, all names.
        first, items: parts for the item at that index, for all items.
    """

    visit: int
    error: int
    member: int = 1
    text: list[str] = field(default_factory=list)
    key_text: list[str] = field(default_factory=list)
    unique: bool = False
    factor: int = 1
    here: list[int] = field(default_factory=list)
    named: dict[str, int] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    first: list[int | None] = field(default_factory=list)
    items: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Graph:
    """All parts of a schema; the first is the schema itself.

    Attributes:
        parts: as found.
        order: for each part its place in an order in which nobody comes before who refers to it.
        chain: for each part how many follow one another for the same value.
        patterns: every pattern, as often as it stands there.
        prices: of the patterns; filled in by who compiles.
    """

    parts: list[Part] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    chain: list[int] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)
    prices: Mapping[str, PatternPrice] = field(default_factory=dict)


def draw(schema: JsonValue, graph: Graph) -> Iterator[None]:
    """Fill in the graph of a schema, in slices.

    Args:
        schema: from a listing.
        graph: an empty one.

    Yields:
        None, after each slice.

    Raises:
        UnusableError: it is too large or too deep, leaves itself, or refers to itself without end.

    Units: a slice takes at most about 20 ms, at the limits above.
    """
    if not isinstance(schema, dict | bool):
        message = "it has to be an object, true or false"
        raise UnusableError(message)
    measure(schema)
    yield
    drawing = _Drawing(schema if isinstance(schema, dict) else {}, graph)
    yield
    while drawing.advance():
        yield
    yield
    _put_in_order(graph)


def measure(schema: JsonValue) -> None:
    """Refuse a schema beyond the limits, without reading on.

    Raises:
        UnusableError: with the limit.
    """
    nodes = chars = 0
    waiting: list[tuple[JsonValue, int]] = [(schema, 0)]
    while waiting:
        value, depth = waiting.pop()
        nodes += 1
        chars += size_chars(value)
        inside = len(value) if isinstance(value, dict | list) else 0
        if nodes + len(waiting) + inside > MAX_NODES:
            message = f"it has more than {MAX_NODES} parts"
            raise UnusableError(message)
        if isinstance(value, dict):
            chars += sum(map(len, value))
            waiting += [(below, depth + 1) for below in value.values()]
        elif isinstance(value, list):
            waiting += [(below, depth + 1) for below in value]
        if chars > MAX_CHARS:
            message = f"it is larger than {MAX_CHARS // 1024} KiB"
            raise UnusableError(message)
        if depth > MAX_DEPTH:
            message = f"it is nested more than {MAX_DEPTH} levels deep"
            raise UnusableError(message)


def size_chars(value: JsonValue) -> int:
    """How long one value is without what it holds, in characters, roughly."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int):
        return 1 + value.bit_length() // 3
    return 1


class _Drawing:
    """Goes through one schema, part after part."""

    def __init__(self, root: dict[str, JsonValue], graph: Graph) -> None:
        self._root = root
        own = root.get("$id", root.get("id"))
        self._own_id = own.rstrip("#") if isinstance(own, str) else ""
        self._anchors = _find_anchors(root)
        self._numbers: dict[int, int] = {}
        self._waiting: list[tuple[int, dict[str, JsonValue]]] = []
        self._graph = graph
        self._number(root)

    def advance(self) -> bool:
        """Draw some parts; whether there are more."""
        now, self._waiting = self._waiting[:_SLICE], self._waiting[_SLICE:]
        for number, schema in now:
            self._draw_part(self._graph.parts[number], schema)
        return bool(self._waiting)

    def _number(self, schema: dict[str, JsonValue]) -> int:
        known = self._numbers.get(id(schema))
        if known is not None:
            return known
        number = self._numbers[id(schema)] = len(self._graph.parts)
        visit = _visit_steps(schema)
        # an error of `not` quotes all that it must not match
        error = visit + (_nodes([schema["not"]]) if "not" in schema else 0)
        self._graph.parts.append(Part(visit, error))
        self._waiting.append((number, schema))
        return number

    def _all(self, *schemas: JsonValue) -> list[int]:
        return [self._number(schema) for schema in schemas if isinstance(schema, dict)]

    def _draw_part(self, part: Part, schema: dict[str, JsonValue]) -> None:
        self._refuse_second_id(schema)
        for name in _REFERENCES:
            if isinstance(reference := schema.get(name), str):
                part.here += self._all(self._target(reference))
        part.here += self._all(*(schema.get(name) for name in _ONE_HERE))
        for name in _LIST_HERE:
            part.here += self._all(*_list(schema.get(name)))
        for name in _MAP_HERE:
            part.here += self._all(*_map(schema.get(name)).values())
        for name in _UNUSED:
            self._all(*_map(schema.get(name)).values())
        self._draw_members(part, schema)
        self._draw_items(part, schema)
        if isinstance(pattern := schema.get("pattern"), str):
            part.text.append(pattern)
        self._graph.patterns += part.text + part.key_text
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            part.factor = UNEVALUATED_FACTOR

    def _draw_members(self, part: Part, schema: dict[str, JsonValue]) -> None:
        for name, below in _map(schema.get("properties")).items():
            part.named.update((name, number) for number in self._all(below))
        patterns = _map(schema.get("patternProperties"))
        part.key_text += patterns
        part.members += self._all(*patterns.values(), *(schema.get(name) for name in _MEMBERS))
        part.names += self._all(schema.get("propertyNames"))
        part.member += len(patterns) + len(part.names)

    def _draw_items(self, part: Part, schema: dict[str, JsonValue]) -> None:
        items = schema.get("items")
        for below in (*_list(schema.get("prefixItems")), *_list(items)):
            part.first += self._all(below) or [None]
        part.items += self._all(items, *(schema.get(name) for name in _ITEMS))
        part.unique = schema.get("uniqueItems") is True

    def _refuse_second_id(self, schema: dict[str, JsonValue]) -> None:
        if schema is self._root:
            return
        old = "draft-04" in str(self._root.get("$schema"))
        for name in ("$id", "id") if old else ("$id",):
            if isinstance(own := schema.get(name), str) and not own.startswith("#"):
                message = f"a part of it has an {name} of its own, which is not supported"
                raise UnusableError(message)

    def _target(self, reference: str) -> JsonValue:
        place = reference
        if self._own_id and (reference + "#").startswith(self._own_id + "#"):
            place = reference[len(self._own_id) :]
        if place and not place.startswith("#"):
            message = (
                f"it refers to {_quoted(reference)}, and nothing outside a schema is ever fetched; "
                "the server has to put what it refers to under $defs"
            )
            raise UnusableError(message)
        place = unquote(place[1:])
        found = self._follow(place) if place[:1] in {"", "/"} else self._anchor(place)
        if isinstance(found, dict | bool):
            return found
        message = f"it refers to {_quoted(reference)}, and there is no schema"
        raise UnusableError(message)

    def _follow(self, pointer: str) -> JsonValue:
        found: JsonValue = self._root
        for escaped in pointer.split("/")[1:]:
            step = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and step.isascii() and step.isdigit():
                found = found[int(step)] if len(step) < 6 and int(step) < len(found) else None  # noqa: PLR2004 - more digits than MAX_NODES has
            else:
                return None
        return found

    def _anchor(self, name: str) -> JsonValue:
        targets = self._anchors.get(name, [])
        if len(targets) > 1:
            message = f"it has the anchor {_quoted(name)} more than once"
            raise UnusableError(message)
        return targets[0] if targets else None


def _find_anchors(root: dict[str, JsonValue]) -> dict[str, list[dict[str, JsonValue]]]:
    """Every object that could be meant by an anchor, wherever it stands: also where none may."""
    found: dict[str, list[dict[str, JsonValue]]] = {}
    waiting: list[JsonValue] = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
            for name in set(_anchors_of(value)):
                found.setdefault(name, []).append(value)
    return found


def _anchors_of(schema: dict[str, JsonValue]) -> Iterator[str]:
    for name in ("$anchor", "$dynamicAnchor"):
        if isinstance(anchor := schema.get(name), str):
            yield anchor
    for name in ("$id", "id"):
        if isinstance(own := schema.get(name), str) and own.startswith("#"):
            yield own[1:]


def _put_in_order(graph: Graph) -> None:
    """Kahn's order over `here`; what is left over goes round in circles."""
    parts = graph.parts
    graph.order, graph.chain = [0] * len(parts), [1] * len(parts)
    waits_for = [0] * len(parts)
    for part in parts:
        for below in part.here:
            waits_for[below] += 1
    free = [number for number, waits in enumerate(waits_for) if waits == 0]
    sequence = list[int]()
    while free:
        number = free.pop()
        graph.order[number] = len(sequence)
        sequence.append(number)
        for below in parts[number].here:
            waits_for[below] -= 1
            if waits_for[below] == 0:
                free.append(below)
    if len(sequence) < len(parts):
        message = "a part of it refers to itself without end"
        raise UnusableError(message)
    for number in reversed(sequence):
        graph.chain[number] += max((graph.chain[at] for at in parts[number].here), default=0)
    if graph.chain and max(graph.chain) > MAX_CHAIN:
        message = f"more than {MAX_CHAIN} parts of it follow one another for one value"
        raise UnusableError(message)


def _visit_steps(schema: dict[str, JsonValue]) -> int:
    lists = [schema[name] for name in _LISTS if name in schema]
    return 2 + 2 * len(schema) + len(_map(schema.get("properties"))) + _nodes(lists)


def _nodes(waiting: list[JsonValue]) -> int:
    """How many values these hold, long ones counted by their length."""
    nodes = 0
    while waiting:
        value = waiting.pop()
        nodes += 1 + size_chars(value) // 32
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return nodes


def _map(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")  # noqa: PLR2004 - one line of text
