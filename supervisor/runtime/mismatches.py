"""Says where a value does not match its schema and what was expected, without showing the value.

What is expected comes from the schema and is shown short; under a name that looks like a secret's
it is not shown at all. Names of members are shown: people need them to find the place.
"""

import re
from collections.abc import Sequence
from typing import Final

import jsonschema_rs

from supervisor.core.redaction import is_secret_name, mask, secrets_in_text

SHOWN: Final = 3
"""Errors in one message; the first ones usually explain the others."""

MAX_EXPECTED_CHARS: Final = 120
MAX_NAME_CHARS: Final = 60
MAX_MEMBERS: Final = 4
MAX_OPTIONS: Final = 20
MAX_STEPS: Final = 12

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

_LIMITS: Final = {
    "minimum": "has to be at least {}",
    "maximum": "has to be at most {}",
    "exclusiveMinimum": "has to be more than {}",
    "exclusiveMaximum": "has to be less than {}",
    "multipleOf": "has to be a multiple of {}",
    "minLength": "has to have at least {} characters",
    "maxLength": "may have at most {} characters",
    "minItems": "has to have at least {} items",
    "maxItems": "may have at most {} items",
    "minProperties": "has to have at least {} members",
    "maxProperties": "may have at most {} members",
    "additionalItems": "may have at most {} items",
    "const": "has to be {}",
    "enum": "has to be one of {}",
    "pattern": "has to match the pattern {}",
    "contentEncoding": "has to be encoded as {}",
    "contentMediaType": "has to contain {}",
}

_FIXED: Final = {
    "anyOf": "matches none of the allowed forms (anyOf)",
    "not": "has a form that is not allowed (not)",
    "uniqueItems": "has equal items, which is not allowed",
    "contains": "has too few or too many items of the form that it has to contain",
    "falseSchema": "is not allowed",
    "propertyNames": "has a member whose name is not allowed",
    "unevaluatedItems": "has more items than are allowed",
}


def describe(error: jsonschema_rs.ValidationError) -> str:
    """One error as a clause: `$.rows[2].id has to be integer`."""
    path = error.instance_path
    return (
        f"{json_path(path)} {_expectation(error.kind, error.schema_path, secret=_is_secret(path))}"
    )


def json_path(steps: Sequence[str | int]) -> str:
    """A place in a value as JSON path, shortened in the middle where it is long."""
    if len(steps) > MAX_STEPS:
        half = MAX_STEPS // 2
        return f"{json_path(steps[:half])}...{json_path(steps[-half:])[1:]}"
    return "$" + "".join(map(_step, steps))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return (
        f".{step}" if _PLAIN.fullmatch(step) and len(step) <= MAX_NAME_CHARS else f"[{_name(step)}]"
    )


def _name(name: str) -> str:
    return repr(name if len(name) <= MAX_NAME_CHARS else name[: MAX_NAME_CHARS - 3] + "...")


def _is_secret(path: Sequence[str | int]) -> bool:
    return any(isinstance(step, str) and is_secret_name(step) for step in path)


def _expectation(
    kind: jsonschema_rs.ValidationErrorKind, schema_path: Sequence[str | int], *, secret: bool
) -> str:
    if kind.name == "falseSchema" and schema_path[-1:] == ["additionalProperties"]:
        return "has unknown members"  # without `properties` beside it, the checker names none
    sentence = _member_problem(kind.name, kind.value) or _FIXED.get(kind.name)
    if sentence is None and kind.name in _LIMITS and not secret:
        sentence = _LIMITS[kind.name].format(_shortened(_literal(kind.value)))
    if sentence is None:
        keyword = next((s for s in reversed(schema_path) if isinstance(s, str)), kind.name)
        sentence = f"does not fit the schema's {_name(keyword)}"
    return sentence


def _member_problem(name: str, value: object) -> str | None:
    """The errors whose facts are lists: of types, of members, of forms."""
    match name, value:
        case "type", list(types):
            return f"has to be {' or '.join(sorted(map(str, types)))}"
        case "required", str(member):
            return f"lacks the member {_name(member)}"
        case (("additionalProperties" | "unevaluatedProperties"), list(members)):
            shown = ", ".join(_name(str(member)) for member in members[:MAX_MEMBERS])
            return f"has unknown members: {_shortened(shown)}"
        case "oneOf", list(forms):
            many = any(not form for form in forms)
            return f"matches {'more than one' if many else 'none'} of the allowed forms (oneOf)"
        case _:
            return None


def _literal(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_literal, value[:MAX_OPTIONS]))
    text = repr(value)[: 4 * MAX_EXPECTED_CHARS]
    return mask(text, secrets_in_text(text))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_EXPECTED_CHARS else text[: MAX_EXPECTED_CHARS - 3] + "..."
