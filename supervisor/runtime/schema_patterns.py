r"""How expensive one regular expression of a schema is, found by compiling it.

Patterns come from servers, so any of them may be made to take for ever. Most run on an engine that
is linear in the string; its factor grows with the size of the compiled program, so the smallest
size limit that a pattern fits tells what a character costs at most. Patterns that look around are
not linear. Where all of that stands at the beginning (`^(?!\.)(?!.*\.\.)[a-z.]+$`, as schema
generators write for e-mail addresses) each look is taken once, and the sum of the parts counts.
Others are priced for the worst case: short strings only.

Source: measured with jsonschema-rs 0.61 (regex 1.x, fancy-regex): at worst 0.11 ns a character for
each byte of the size limit; a look-around costs one such pass for each character and backtrack.
"""

import re
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import jsonschema_rs

SIZES_BYTES: Final = tuple(1 << bits for bits in (9, 10, 11, 12, 13, 14, 16, 18))
"""Size limits that are tried in turn. Ordinary patterns need the first four; the last is where
compiling one pattern takes 3 ms."""

BACKTRACKS: Final = 200
"""How often a pattern that looks around may go back, for one string."""

MAX_PATTERN_CHARS: Final = 2000

_BYTES_PER_STEP: Final = 180
"""A step of `schema_price` is 20 ns: what a character costs for so many bytes of the size limit."""

_LOOK: Final = re.compile(r"\(\?<?[=!]|\\[1-9k]")
_GROUP_PARTS: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|[()]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PatternPrice:
    """What matching costs, in steps.

    Attributes:
        char: for each character of the string.
        square: for each character, times the characters and `BACKTRACKS`.
        linear: whether the linear engine takes it.
        compile_s: processor time that compiling took.
    """

    char: int
    square: int
    linear: bool
    compile_s: float


@lru_cache(maxsize=2048)
def price_pattern(pattern: str) -> PatternPrice | None:
    """What `pattern` costs, or None where no engine takes it.

    Units: blocks for at most 25 ms, once for each pattern.
    """
    begun_s = time.thread_time()
    if len(pattern) > MAX_PATTERN_CHARS:
        return None
    if (size := _smallest_size(pattern)) is not None:
        return PatternPrice(_steps(size), 0, linear=True, compile_s=time.thread_time() - begun_s)
    size = _smallest_size(pattern, looks_around=True)
    if size is None:
        return None
    parts = split_leading_looks(pattern)
    sizes = [_smallest_size(part) for part in parts]
    whole = [size for size in sizes if size is not None]
    compile_s = time.thread_time() - begun_s
    if parts and len(whole) == len(sizes):
        return PatternPrice(sum(map(_steps, whole)), 0, linear=False, compile_s=compile_s)
    looks = max(1, len(_LOOK.findall(pattern)))
    return PatternPrice(0, looks * _steps(size), linear=False, compile_s=compile_s)


def options(*, linear: bool) -> jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions:
    """How a schema is compiled whose patterns all have a price."""
    return _options(SIZES_BYTES[-1], looks_around=not linear)


def split_leading_looks(pattern: str) -> list[str]:
    """`^(?!A)(?=B)C` as `^(?:A)`, `^(?:B)`, `^(?:C)`; nothing for any other form."""
    if not pattern.startswith("^"):
        return []
    at, parts = 1, list[str]()
    while pattern.startswith(("(?=", "(?!"), at):
        end = _group_end(pattern, at)
        if end is None:
            return []
        parts.append(f"^(?:{pattern[at + 3 : end - 1]})")
        at = end
    # `^a|b` is anchored in one half only: then the looks do not stand before everything
    if not parts or pattern[at : at + 1] in set("*+?{") or _has_bar(pattern[at:]):
        return []
    return [*parts, f"^(?:{pattern[at:]})"]


def _group_end(pattern: str, start: int) -> int | None:
    depth = 0
    for part in _GROUP_PARTS.finditer(pattern, start):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if depth == 0:
            return part.end()
    return None


def _has_bar(text: str) -> bool:
    """Whether an alternative stands outside all groups."""
    depth, at = 0, 0
    for part in _GROUP_PARTS.finditer(text):
        if depth == 0 and "|" in text[at : part.start()]:
            return True
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        at = part.end()
    return "|" in text[at:]


def _steps(size_bytes: int) -> int:
    return -(-size_bytes // _BYTES_PER_STEP)


def _smallest_size(pattern: str, *, looks_around: bool = False) -> int | None:
    for size in SIZES_BYTES:
        try:
            jsonschema_rs.Draft202012Validator(
                {"pattern": pattern},
                offline=True,
                validate_formats=False,
                pattern_options=_options(size, looks_around=looks_around),
            )
        except ValueError:
            continue
        return size
    return None


def _options(
    size: int, *, looks_around: bool
) -> jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions:
    if looks_around:
        return jsonschema_rs.FancyRegexOptions(
            backtrack_limit=BACKTRACKS, size_limit=size, dfa_size_limit=SIZES_BYTES[-1]
        )
    return jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=SIZES_BYTES[-1])
