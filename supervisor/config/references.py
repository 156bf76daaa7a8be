"""References to the daemon's environment inside configured texts: one rule for all fields.

- `${NAME}` is the variable's value; NAME is `[A-Za-z_][A-Za-z0-9_]*`. A variable that is set to
  nothing is nothing; one that is not set is reported, and never becomes an empty text by itself.
- `${NAME:-default}` is the default where the variable is not set or empty, as in the shell. The
  default runs to the next `}` and cannot hold a reference itself.
- `$${NAME}` is the text `${NAME}`, likewise with a default.
- Anything else is left as it is: `5$`, `$NAME`, `${x%y}`, `${}`.

Values are not looked at again: a `${` that comes out of a variable stays one.
Source: design section 11.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_REFERENCE: Final = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """A text after its references were replaced.

    Attributes:
        text: the result; references that could not be resolved stand in it unchanged.
        values: the variables that were used, with their values.
        missing: variables that are not set and have no default, in order.
        nested: variables whose default holds another reference, which is not supported.
    """

    text: str = field(repr=False)
    values: Mapping[str, str] = field(repr=False)
    missing: tuple[str, ...]
    nested: tuple[str, ...]


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Replace the references in `text` by what `environ` and their defaults say."""
    values, missing, nested = dict[str, str](), list[str](), list[str]()

    def replace(reference: re.Match[str]) -> str:
        escaped, name, default = reference.groups()
        if escaped:
            return reference[0][1:]
        value = environ.get(name)
        if default is not None and "${" in default:
            nested.append(name)
        elif value or (value is not None and default is None):
            values[name] = value
            return value
        elif default is not None:
            return str(default)
        else:
            missing.append(name)
        return reference[0]

    # without this cut, each of many `${A:-` that never close would search the whole rest
    end = text.rfind("}") + 1
    return Expanded(
        text=_REFERENCE.sub(replace, text[:end]) + text[end:],
        values=values,
        missing=tuple(dict.fromkeys(missing)),
        nested=tuple(dict.fromkeys(nested)),
    )


def expand_home(text: str, home: str) -> str:
    """Put `home` in place of a leading `~`: the whole text, or before a slash; `~user` stays.

    Call it before `expand`: a `~` that comes out of a variable is the variable's own.
    """
    if text == "~" or text.startswith("~/"):
        return home.rstrip("/") + text[1:] if text != "~" else home
    return text
