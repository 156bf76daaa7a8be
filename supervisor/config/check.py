"""Checks a document against the records: every wrong type and every unknown key at once."""

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from supervisor.config.document import Document, KeyPath, Problem, describe
from supervisor.config.records import (
    ITEM_RULES,
    OTHER_SPELLINGS,
    OUT_OF_ORDER,
    Record,
)

_OBJECT: Final = "an object, such as {}, belongs"

R = TypeVar("R", bound=Record)


def validate(
    document: Document, path: KeyPath, value: JsonValue, record: type[R]
) -> tuple[R | None, list[Problem]]:
    """Read the object at `path`.

    Returns:
        The record and no problems, or None and the problem of each wrong field; a union repeats
        it for each of its types.
    """
    if not isinstance(value, dict):
        return None, [document.problem(path, f"{describe(value, path)} where {_OBJECT}.")]
    try:
        return record.model_validate(value), []
    except ValidationError as error:
        found = list[Problem]()
        for detail in error.errors(include_url=False, include_input=False):
            inner, wrong = _follow(value, detail["loc"])
            if detail["type"] == OUT_OF_ORDER:
                text = detail["msg"]
            else:
                text = f"{describe(wrong, path + inner)} where {_rule(record, inner)} belongs."
            found.append(document.problem(path + inner, text))
        return None, found


def unknown_keys(
    document: Document, path: KeyPath, value: JsonValue, known: Collection[str]
) -> Iterator[Problem]:
    """Yield a warning for each key that nothing will ever read, naming the nearest known one."""
    for key in value if isinstance(value, dict) else ():
        if key not in known:
            nearest = OTHER_SPELLINGS.get(key) or _nearest(key, known)
            hint = f"; did you mean {nearest}?" if nearest in known else "."
            yield document.problem((*path, key), f"this key is not known and is ignored{hint}")


def _nearest(key: str, known: Iterable[str]) -> str | None:
    by_lower = {name.lower(): name for name in sorted(known)}
    matches = get_close_matches(key.lower().replace("_", ""), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def _follow(value: JsonValue, location: tuple[int | str, ...]) -> tuple[KeyPath, JsonValue]:
    """The part of pydantic's location that exists in the file, and the value there.

    The rest of it names the member of a union or the key of a dictionary.
    """
    path: KeyPath = ()
    for part in location:
        match value:
            case dict() if isinstance(part, str) and part in value:
                value = value[part]
            case list() if isinstance(part, int) and part < len(value):
                value = value[part]
            case _:
                break
        path = (*path, part)
    return path, value


def _rule(record: type[BaseModel], path: KeyPath) -> str:
    """What belongs at `path` of `record`, by the description of the deepest field on it."""
    first, *rest = path
    name, field = next(
        (name, field) for name, field in record.model_fields.items() if field.alias == first
    )
    if rest and name in ITEM_RULES:
        return ITEM_RULES[name]
    if rest:
        nested = next(
            kind
            for kind in getattr(field.annotation, "__args__", ())
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        )
        return _rule(nested, tuple(rest))
    return field.description or "another value"
