"""Schemas and values that are made to stop the daemon: each is refused, or checked in no time.

The checker holds the interpreter while it works. So what is measured is the longest stretch of
processor time between two turns of another task, which a loaded machine does not lengthen.
"""

import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic import JsonValue

from supervisor.core.ids import ServerName
from supervisor.core.tool_errors import ResultInvalidError, SchemaUnusableError
from supervisor.runtime.schema_patterns import BACKTRACKS, price_pattern, split_leading_looks
from supervisor.runtime.schemas import SchemaChecker, Unchecked

pytestmark = pytest.mark.anyio

MAX_STRETCH_S = 0.1

Case = Callable[[], tuple[JsonValue, JsonValue]]


def noise(length: int) -> str:
    """A string that no automaton has few states for."""
    return "".join(random.Random(1).choices("ab", k=length))  # noqa: S311 - no secret


def cut(text: str, length: int) -> list[JsonValue]:
    """Pieces of that length, all different: an automaton would know the second like the first."""
    return [text[at : at + length] for at in range(0, len(text), length)]


def nested(levels: int, wrap: Callable[[JsonValue], JsonValue], core: JsonValue) -> JsonValue:
    """`core`, wrapped so many times."""
    for _ in range(levels):
        core = wrap(core)
    return core


def doubling(levels: int) -> JsonValue:
    """Each part refers twice to the next: 2**levels visits."""
    parts: dict[str, JsonValue] = {
        f"p{n}": {"allOf": [{"$ref": f"#/$defs/p{n + 1}"}, {"$ref": f"#/$defs/p{n + 1}"}]}
        for n in range(levels)
    }
    return {"$defs": {**parts, f"p{levels}": {"type": "integer"}}, "$ref": "#/$defs/p0"}


def unevaluated(levels: int) -> JsonValue:
    """Each level looks at all levels below it again."""
    core: JsonValue = {"patternProperties": {f"k{n}": {"minLength": 1} for n in range(10)}}
    return nested(levels, lambda s: {"if": s, "then": s, "unevaluatedProperties": False}, core)


ROWS: list[JsonValue] = [{"id": n, "name": f"n{n}", "ok": True, "x": 1.5} for n in range(9000)]

HOSTILE: dict[str, Case] = {
    "nested repetition": lambda: ({"pattern": "^(a+)+$"}, "a" * 500_000 + "b"),
    "large automaton": lambda: ({"pattern": "(?:a|b)*a(?:a|b){1000}c"}, noise(1_000_000)),
    "middling automaton": lambda: ({"pattern": "(?:a|b)*a(?:a|b){50}c"}, noise(50_000)),
    "small automata": lambda: (
        {"items": {"pattern": "(?:a|b)*a(?:a|b){20}c"}},
        cut(noise(90_000), 100),
    ),
    "look-ahead each character": lambda: (
        {"pattern": "^(?:(?!(?:a|b)*a(?:a|b){200}c)[ab])*$"},
        noise(4000),
    ),
    "look-ahead in many short strings": lambda: (
        {"items": {"pattern": "(?:(?=(?:a|b)*c?)[ab])*$"}},
        cut(noise(360_000), 40),
    ),
    "leading look-ahead": lambda: (
        {"pattern": "^(?!(?:a|b)*a(?:a|b){200}c)[ab]*$"},
        noise(100_000),
    ),
    "back reference": lambda: ({"pattern": r"^(a*)*(b*)*\1\2$"}, "ab" * 2000),
    "huge pattern": lambda: ({"pattern": r"(\p{L}{1000}){1000}"}, "a"),
    "thousand patterns": lambda: (
        {"properties": {f"p{n}": {"pattern": rf"(\d|\s|\w|\W|{n}){{9}}"} for n in range(1000)}},
        {},
    ),
    "patterns for names": lambda: (
        {"patternProperties": {f"(?:a|b)*a(?:a|b){{{n}}}c": {"const": 1} for n in range(40, 45)}},
        {str(name): 1 for name in cut(noise(200_000), 200)},
    ),
    "self reference": lambda: ({"$ref": "#"}, 1),
    "self reference through not": lambda: ({"not": {"anyOf": [{"$ref": "#"}]}}, 1),
    "doubling": lambda: (doubling(60), 1),
    "doubling, just affordable": lambda: (doubling(13), "x"),
    "doubling on the way down": lambda: (
        {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]},
        nested(60, lambda v: [v], 1),
    ),
    "unevaluated": lambda: (unevaluated(9), {f"k{n}": "a" for n in range(100)}),
    "unevaluated, fewer": lambda: (unevaluated(3), {f"k{n}": "a" for n in range(100)}),
    "unevaluated in a row": lambda: (
        nested(
            17,
            lambda s: {"allOf": [s], "unevaluatedProperties": False},
            {"properties": {"a": True}},
        ),
        {"a": 1},
    ),
    "remote reference": lambda: ({"$ref": "https://192.0.2.1/schema"}, 1),
    "ten megabytes": lambda: ({"description": "x" * 10_000_000}, 1),
    "ten megabytes in parts": lambda: (
        {"properties": {f"p{n}": {"type": "string"} for n in range(200_000)}},
        1,
    ),
    "as many parts as may be": lambda: (
        {"properties": {f"p{n}": {"minLength": n} for n in range(3000)}},
        {f"p{n}": "x" for n in range(3000)},
    ),
    "deep schema": lambda: (nested(50_000, lambda s: {"items": s}, {}), []),
    "deep value": lambda: ({"items": {"$ref": "#"}}, nested(50_000, lambda v: [v], 1)),
    "deeper than may be": lambda: ({"type": "object"}, nested(200, lambda v: [v], 1)),
    "deep chain at each level": lambda: (
        {
            "$defs": {
                "top": nested(40, lambda s: {"anyOf": [s]}, {"items": {"$ref": "#/$defs/top"}})
            },
            "$ref": "#/$defs/top",
        },
        nested(100, lambda v: [v], 1),
    ),
    "giant enum": lambda: ({"items": {"enum": list(range(200_000))}}, [-1] * 1000),
    "large enum": lambda: (
        {"items": {"enum": [[[0] * 20, n] for n in range(400)]}},
        [[[0] * 20, -1]] * 1000,
    ),
    "large value": lambda: ({"items": {}}, ["x"] * 10_000_000),
    "value as large as may be": lambda: ({"items": {"type": "object"}}, ROWS),
    "all rows wrong": lambda: ({"items": {"type": "string", "minLength": 1}}, ROWS),
    "many errors over one large value": lambda: (
        {"required": [f"q{n}" for n in range(1000)]},
        {"rows": ROWS},
    ),
    "errors that quote the schema": lambda: (
        {"items": {"not": {"title": "x", "examples": [0] * 9000}}},
        [1] * 4000,
    ),
    "equal items": lambda: ({"uniqueItems": True}, [[[0] * 40, n] for n in range(1000)]),
    "equal items, again and again": lambda: (
        {"allOf": [{"uniqueItems": True}] * 400},
        [n + 0.5 for n in range(20_000)],
    ),
    "equal long items": lambda: ({"uniqueItems": True}, ["x" * 3000 + str(n) for n in range(1000)]),
    "huge number": lambda: ({"multipleOf": 1e-300}, 10**100_000),
    "large numbers": lambda: (
        {"items": {"multipleOf": 1e-300}},
        [10**300 + n for n in range(3000)],
    ),
    "lone surrogate": lambda: ({"type": "string", "minLength": 3}, "\ud800"),
}


@pytest.fixture(autouse=True)
def _no_garbage_of_others() -> Iterator[None]:
    """Keep the collector from going through what other tests left: that is not what is measured."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


async def longest_stretch_s(check: Callable[[], object]) -> float:
    """Run `check` beside a task that always wants its turn; how long it waited, in CPU seconds."""
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        while True:
            before_s = time.thread_time()
            await checkpoint()
            longest_s = max(longest_s, time.thread_time() - before_s)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await checkpoint()
        await checkpoint()
        outcome = check()
        assert hasattr(outcome, "__await__")
        await outcome
        await checkpoint()
        tasks.cancel_scope.cancel()
    return longest_s


@pytest.mark.parametrize("name", HOSTILE)
async def test_nothing_holds_up_the_event_loop(name: str) -> None:
    """One hostile server would else stop the calls, pings and stops of all others."""
    schema, value = HOSTILE[name]()
    checker = SchemaChecker(ServerName("hostile"))

    async def check() -> None:
        with anyio.fail_after(60):
            with suppress(ResultInvalidError, SchemaUnusableError):
                await checker.check_result("tool", schema, value)

    first_s = await longest_stretch_s(check)
    again_s = await longest_stretch_s(check)

    assert max(first_s, again_s) < MAX_STRETCH_S


async def test_a_schema_that_doubles_itself_is_not_worked_off() -> None:
    """2**60 visits: a bound on its size alone would let it through."""
    checker = SchemaChecker(ServerName("hostile"))
    found = await checker.check_arguments("tool", doubling(60), 1)
    assert isinstance(found, Unchecked)
    assert "too long" in found.why


@pytest.mark.parametrize("name", ["deep value", "deeper than may be", "deep chain at each level"])
async def test_a_value_that_would_overflow_the_stack_is_not_looked_at(name: str) -> None:
    """Whether it does depends on the stack of the thread; so the bound stands far below."""
    schema, value = HOSTILE[name]()
    found = await SchemaChecker(ServerName("hostile")).check_arguments("tool", schema, value)
    assert isinstance(found, Unchecked)
    assert "nested too deep" in found.why


async def test_a_chain_that_would_overflow_the_stack_is_refused() -> None:
    """The checker calls itself for each part in the chain; a full stack kills the daemon."""
    parts: dict[str, JsonValue] = {
        f"p{n}": {"anyOf": [{"$ref": f"#/$defs/p{n + 1}"}]} for n in range(1500)
    }
    schema: JsonValue = {"$defs": {**parts, "p1500": {}}, "$ref": "#/$defs/p0"}
    with pytest.raises(SchemaUnusableError, match="follow one another"):
        await SchemaChecker(ServerName("hostile")).check_arguments("tool", schema, 1)


async def test_a_pattern_that_gives_up_is_no_mismatch() -> None:
    """That it took too many steps says nothing about the string."""
    schema: JsonValue = {"pattern": r"^(?=a)(a*)*\1$"}
    checker = SchemaChecker(ServerName("hostile"))
    found = await checker.check_arguments("tool", schema, "a" * (BACKTRACKS + 50) + "b")
    assert isinstance(found, Unchecked)


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (r"^(?!\.)(?=[)(]a)x$", [r"^(?:\.)", r"^(?:[)(]a)", r"^(?:x$)"]),
        (r"^(?!a)(b|c)$", ["^(?:a)", "^(?:(b|c)$)"]),
        (r"^(?!a)b|c", []),
        (r"^(?!a)*b", []),
        (r"(?!a)b", []),
        (r"^(?!a", []),
        (r"^abc", []),
    ],
)
def test_looks_at_the_beginning_are_told_from_others(pattern: str, parts: list[str]) -> None:
    """Only where each is taken once may the sum of the parts be the price."""
    assert split_leading_looks(pattern) == parts


def test_a_pattern_with_looks_in_the_middle_costs_the_square() -> None:
    """It may look from each character to the end."""
    leading, middle = price_pattern(r"^(?!b)[ab]*$"), price_pattern(r"^(?:(?!b)a)*$")
    assert leading is not None
    assert middle is not None
    assert (leading.square, leading.linear) == (0, False)
    assert middle.square > 0
