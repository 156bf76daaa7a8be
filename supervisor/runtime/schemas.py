"""Checks the arguments of tool calls and the structured results against the schemas of the tools.

2020-12 unless `$schema` names an older draft. `format` is an annotation, as 2020-12 has it. Nothing
outside a schema is fetched, ever.

Schemas come from servers, so each of them may be an attack. The checker (Rust) is fast, but holds
the interpreter and cannot be interrupted; so `schema_graph` refuses by form, `schema_price` bounds
the time before a check begins, and a value that may take longer than some 50 ms is not checked:
`Unchecked` says so, and the call goes on. The check is a service to the caller; the server remains
the judge of its arguments, and who declares a schema can as well declare none.

Nothing here starts a thread or a process.

Source: design sections 10 and 16; JSON Schema 2020-12 core, section 9.3.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import jsonschema_rs
from anyio.lowlevel import checkpoint
from pydantic import JsonValue

from supervisor.core.ids import ServerName
from supervisor.core.tool_errors import (
    ArgumentsInvalidError,
    ResultInvalidError,
    SchemaField,
    SchemaUnusableError,
)
from supervisor.runtime.mismatches import SHOWN, describe
from supervisor.runtime.schema_graph import Graph, UnusableError, draw
from supervisor.runtime.schema_patterns import PatternPrice, options, price_pattern
from supervisor.runtime.schema_price import Meter, TooCostlyError, Walk

MAX_KEPT: Final = 256
"""Compiled schemas for one connection; the ones not used for longest are compiled again."""

PATTERNS_S: Final = 0.03
"""Processor time that the patterns of one schema may take to compile: the rest waits for it."""

_DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
}
_DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


_GAVE_UP: Final = (
    jsonschema_rs.ValidationErrorKind.BacktrackLimitExceeded,
    jsonschema_rs.ValidationErrorKind.RegexEngineFailure,
)


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A value was passed on unchecked.

    Attributes:
        server: whose tool it is.
        tool: its name at that server.
        field: the schema that it was not checked against.
        why: a clause: `the value is larger than ...`.
    """

    server: str
    tool: str
    field: SchemaField
    why: str


@dataclass(frozen=True, slots=True)
class _Ready:
    """A compiled schema.

    Attributes:
        schema: what it was made of; compared by identity, so a new listing compiles anew.
        meter: prices a value before the validator sees it.
    """

    schema: JsonValue
    validator: jsonschema_rs.Validator
    meter: Meter


@dataclass(frozen=True, slots=True)
class _Unusable:
    schema: JsonValue
    why: str


@dataclass(frozen=True, slots=True)
class _Mismatch:
    errors: tuple[str, ...]
    more: int


class SchemaChecker:
    """The schemas of one connection's tools, compiled when they are first needed."""

    def __init__(self, server: ServerName) -> None:
        self._server = server
        self._kept: OrderedDict[tuple[SchemaField, str], _Ready | _Unusable] = OrderedDict()

    async def check_arguments(
        self, tool: str, schema: JsonValue, arguments: JsonValue
    ) -> Unchecked | None:
        """Check what a caller wants to send.

        Args:
            tool: its name at the server.
            schema: its `inputSchema`, the object of the listing itself: it is the key of what was
                compiled, and nobody may change it.
            arguments: of the call.

        Returns:
            None: they match. `Unchecked`: that could not be found out in time.

        Raises:
            ArgumentsInvalidError: they do not match.
            SchemaUnusableError: of this tool; the call may go on without a check.

        Units: at most about 50 ms without a checkpoint, commonly 0.02. Cancel-safe: yes.
        """
        found = await self._check(tool, "inputSchema", schema, arguments)
        if isinstance(found, _Mismatch):
            raise ArgumentsInvalidError(self._server, tool, found.errors, found.more)
        return found

    async def check_result(
        self, tool: str, schema: JsonValue, structured: JsonValue
    ) -> Unchecked | None:
        """Check the `structuredContent` that a server answered with; the rest as above.

        Raises:
            ResultInvalidError: it does not match the `outputSchema`.
            SchemaUnusableError: of this tool.
        """
        found = await self._check(tool, "outputSchema", schema, structured)
        if isinstance(found, _Mismatch):
            raise ResultInvalidError(self._server, tool, found.errors, found.more)
        return found

    def close(self) -> None:
        """Forget all schemas."""
        self._kept.clear()

    async def _check(
        self, tool: str, field: SchemaField, schema: JsonValue, value: JsonValue
    ) -> Unchecked | _Mismatch | None:
        ready = await self._compiled(tool, field, schema)
        if isinstance(ready, _Unusable):
            raise SchemaUnusableError(self._server, tool, field, ready.why)
        try:
            walk = Walk(ready.meter, value)
            while not walk.advance():
                await checkpoint()
            if ready.validator.is_valid(value):
                return None
            await checkpoint()
            return _mismatch(ready.validator, value, in_full=walk.may_describe)
        except TooCostlyError as error:
            return Unchecked(self._server, tool, field, str(error))
        except ValueError:  # a lone surrogate: JSON may have one, a string for the checker may not
            return Unchecked(self._server, tool, field, "the value holds text that is no Unicode")

    async def _compiled(
        self, tool: str, field: SchemaField, schema: JsonValue
    ) -> _Ready | _Unusable:
        kept = self._kept.get((field, tool))
        if kept is None or kept.schema is not schema:
            try:
                kept = await _compile(schema)
            except UnusableError as error:
                kept = _Unusable(schema, str(error))
            self._kept[field, tool] = kept
        self._kept.move_to_end((field, tool))
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return kept


async def _compile(schema: JsonValue) -> _Ready:
    """Make a validator, or raise `UnusableError`."""
    graph = Graph()
    for _ in draw(schema, graph):
        await checkpoint()
    graph.prices = await _price_patterns(graph)
    linear = all(price.linear for price in graph.prices.values())
    make = _dialect(schema)
    try:
        validator = make(
            schema,  # type: ignore[arg-type] # draw() refused what is no object, true or false
            offline=True,
            validate_formats=False,
            pattern_options=options(linear=linear),
        )
    except jsonschema_rs.ValidationError as error:
        message = f"it is no valid JSON Schema: {describe(error)}"
        raise UnusableError(message) from error
    except ValueError as error:
        message = "it holds text or numbers that cannot be read"
        raise UnusableError(message) from error
    return _Ready(schema, validator, Meter(graph))


async def _price_patterns(graph: Graph) -> dict[str, PatternPrice]:
    prices: dict[str, PatternPrice] = {}
    for pattern in dict.fromkeys(graph.patterns):
        price = price_pattern(pattern)
        if price is None:
            message = "it has a pattern that is too large, or no regular expression"
            raise UnusableError(message)
        prices[pattern] = price
        await checkpoint()
    if sum(prices[pattern].compile_s for pattern in graph.patterns) > PATTERNS_S:
        message = "its patterns take too long to compile"
        raise UnusableError(message)
    return prices


def _dialect(schema: JsonValue) -> type[jsonschema_rs.Validator]:
    name = schema.get("$schema", _DEFAULT_DIALECT) if isinstance(schema, dict) else _DEFAULT_DIALECT
    known = _DIALECTS.get(name.rstrip("#")) if isinstance(name, str) else None
    if known is None:
        message = (
            "its $schema names no dialect that is known here (2020-12, 2019-09, draft-07, "
            "draft-06, draft-04)"
        )
        raise UnusableError(message)
    return known


def _mismatch(validator: jsonschema_rs.Validator, value: JsonValue, *, in_full: bool) -> _Mismatch:
    """Describe what does not match.

    Args:
        validator: that found the value wrong.
        value: the same value.
        in_full: whether all errors may be listed: each holds a copy of what it is about.
    """
    if not in_full:
        return _Mismatch(("$ does not match (too large to say where)",), 0)
    errors = list(validator.iter_errors(value))
    for error in errors:
        if isinstance(error.kind, _GAVE_UP):
            message = "a pattern of the schema takes too long for this value"
            raise TooCostlyError(message)
    first = tuple(map(describe, errors[:SHOWN]))
    return _Mismatch(first, len(errors) - len(first))
