"""Reads and writes the few lines of JSON that the shim needs, without the json package.

`import json` costs 9 ms of a shim that starts in 15; its C scanner is there without it.

Source: CPython's `_json.c` (`make_scanner`), the parser behind `json.loads`.
"""

from _json import encode_basestring_ascii, make_scanner


class _Defaults:
    """What `json.JSONDecoder()` sets; the scanner reads these attributes."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: "dict[str, str]" = {}  # noqa: RUF012 - the scanner's, shared by design


_scan = make_scanner(_Defaults())  # type: ignore[arg-type] # a stand-in for JSONDecoder


def parse(text: bytes) -> object:
    """The first JSON value in `text`; what follows it is not looked at.

    Raises:
        ValueError: there is none.
    """
    decoded = text.decode().lstrip()
    try:
        value, _ = _scan(decoded, 0)
    except StopIteration:
        message = "no JSON value"
        raise ValueError(message) from None
    return value


def quoted(text: str) -> str:
    """`text` as a JSON string, ASCII only; bytes that were no UTF-8 stay lone surrogates."""
    return encode_basestring_ascii(text)


def member(value: object, *keys: str) -> object:
    """What stands at `keys` in nested objects, or None where one of them is missing."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
