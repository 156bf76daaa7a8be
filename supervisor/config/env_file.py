r"""Variables of a server from a file of `NAME=value` lines, as `docker run` and shells read them.

- Blank lines and lines that start with `#` say nothing; `export ` before a name is allowed.
- In single quotes a value is what stands there. In double quotes `\n`, `\t`, `\"`, `\$` and `\\`
  are what they are in most languages; another backslash stays. Nothing but a comment may follow.
- Without quotes a value ends at the line's end or before ` #`, without the space around it; a `#`
  right after the `=` belongs to the value, since no password should silently become nothing.
- References and `~` are not looked for: a value that holds `${` or starts with `~` is just that.

A value is one line. A name that stands there twice is a problem, as in the configuration.
No problem shows a text of the file, except names that are variables beyond doubt.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_NAME: Final = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=")
_SINGLE: Final = re.compile(r"'([^']*)'[ \t]*(?:#.*)?")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"[ \t]*(?:#.*)?')
_ESCAPE: Final = re.compile(r"""\\([nt"$\\])""")
_COMMENT: Final = re.compile(r"[ \t]#.*")
_ESCAPED: Final = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class EnvFile:
    """The variables of a file, and a clause for each line that is wrong."""

    variables: Mapping[str, str] = field(repr=False)
    problems: tuple[str, ...]


def parse_env_file(text: str) -> EnvFile:
    """Read the lines of an environment file."""
    variables, lines, problems = dict[str, str](), dict[str, int](), list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()  # noqa: PLW2901 - the line as it is meant
        if not line or line.startswith("#"):
            continue
        found = _NAME.match(line)
        value = None if found is None else _value(line[found.end() :])
        if found is None:
            problems.append(f'line {number} is no NAME=value; write one, or start it with "#"')
        elif value is None:
            problems.append(f"line {number} has a quote that does not end, or text after it")
        elif "\0" in value:
            problems.append(f"line {number} holds a NUL character, which no program can be given")
        elif found[1] in lines:
            first = lines[found[1]]
            problems.append(f"lines {first} and {number} both set {found[1]}; take one out")
        else:
            variables[found[1]], lines[found[1]] = value, number
    return EnvFile(variables, tuple(problems))


def _value(rest: str) -> str | None:
    """The value that `rest` (what follows the `=`) writes; None where a quote is wrong."""
    quoted = rest.lstrip()
    if quoted.startswith("'"):
        found = _SINGLE.fullmatch(quoted)
        return None if found is None else found[1]
    if quoted.startswith('"'):
        found = _DOUBLE.fullmatch(quoted)
        return None if found is None else _ESCAPE.sub(_unescape, found[1])
    return _COMMENT.sub("", rest).strip()


def _unescape(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1])
