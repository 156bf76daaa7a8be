"""A server's record for people: as written, with every secret hidden that announces itself.

References stay references, so no value of the environment can get out this way. Only keys that
are known appear: nobody knows what another program's own keys hold.
Source: design sections 10 (summary) and 17.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from supervisor.config.records import SERVER_KEYS
from supervisor.core.redaction import MASK, is_secret_name, redact_argv

_NO_SECRETS: Final = frozenset({"auth"})
"""Keys of a record that only sound like secrets; what they take is a fixed word."""

_AS_SECRET: Final = "TOKEN="  # noqa: S105 - a name without a secret
"""In front of a word it hides all of it, except references."""


def shown_record(record: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """What may be shown of the record, in the order in which it was written."""
    shown = {
        key: _shown(value, "" if key in _NO_SECRETS else key)
        for key, value in record.items()
        if key in SERVER_KEYS and value is not None
    }
    return MappingProxyType(shown)


def _shown(value: JsonValue, name: str) -> JsonValue:
    """The value of what is called `name`; inner keys are names as well."""
    secret = is_secret_name(name)
    match value:
        case dict():
            return {key: _shown(inner, name if secret else key) for key, inner in value.items()}
        case list() if all(isinstance(item, str) for item in value):
            return [*_words([str(item) for item in value], secret=secret)]
        case list():
            return [_shown(item, name) for item in value]
        case str():
            return _words([value], secret=secret)[0]
        case bool() | None:
            return value
        case int() | float():
            return MASK if secret else value


def _words(words: list[str], *, secret: bool) -> tuple[str, ...]:
    if not secret:
        return redact_argv(words)  # one argument list: a flag says what the word after it is
    hidden = redact_argv([_AS_SECRET + word for word in words])
    return tuple(word.removeprefix(_AS_SECRET) for word in hidden)
