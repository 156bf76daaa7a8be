"""Which tools of a server are offered: `toolFilter` of its record, or of a session.

A pattern is a whole name in which `*` stands for anything, also nothing; all else is literal.
`include` comes first: where it is given, only what it matches is left; then `exclude` takes away.
Patterns see the server's own names.

Source: design section 10; OpenClaw 2026.9.6, tool filters.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_KEPT_PATTERNS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFilter:
    """What passes; with neither list, everything.

    Attributes:
        include: patterns, or None for all.
        exclude: patterns.
    """

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()

    def allows(self, tool: str) -> bool:
        """Whether a tool of this name is offered."""
        included = self.include is None or any(_matches(p, tool) for p in self.include)
        return included and not any(_matches(p, tool) for p in self.exclude)

    def as_json(self) -> dict[str, list[str] | None]:
        """As the configuration spells it."""
        return {
            "include": None if self.include is None else list(self.include),
            "exclude": list(self.exclude),
        }


def _matches(pattern: str, tool: str) -> bool:
    return _compiled(pattern).fullmatch(tool) is not None


@lru_cache(_KEPT_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str]:
    # possessive, so that a pattern of stars costs no more than its length times the name's
    parts = [re.escape(part) for part in re.split(r"\*+", pattern)]
    if len(parts) == 1:
        return re.compile(parts[0], re.DOTALL)
    first, *middle, last = parts
    # each piece is taken at its first place, which never rules out a later match
    inner = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.compile(f"{first}{inner}.*{last}", re.DOTALL)
