"""Finds the secrets in names, argument lists and URLs, and shows texts without them.

Two rules. What may be a secret is hidden even where that hides a harmless word, and whatever
`redact_*` hides, `secrets_in_*` returns, so that what a record hides is masked in logs as well.
A reference (`${NAME}`) is no secret: it is what an operator should write.

Not found here: a secret that nothing announces, such as a bare argument or a segment of a path.
Source: design section 17; what counts as a secret name or parameter follows OpenClaw 2026.9.6.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote

MASK: Final = "***"

SHORTEST_SECRET: Final = 4
"""In characters. Masking every `no` or `80` would make logs unreadable and protect nothing."""

_MAX_DECODES: Final = 8
"""How often a nested URL is percent-decoded; what is still encoded then is hidden unread."""

_LONG_LINE: Final = 8
"""In characters: of a secret of several lines (a PEM key), lines from here on are masked alone."""

_ANYWHERE: Final = frozenset(
    [
        "apikey",
        "authorization",
        "bearer",
        "cookie",
        "credential",
        "credentials",
        "jwt",
        "passphrase",
        "passwd",
        "password",
        "secret",
        "secrets",
        "token",
        "tokens",
    ]
)
_AT_END: Final = frozenset(["auth", "key", "keys", "pass", "pat", "pwd", "sig", "signature"])
_IN_QUERIES: Final = frozenset(["code", "session", "sig", "signature"])
_GLUED: Final = [
    "accesskey",
    "apikey",
    "authorization",
    "bearer",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "secretkey",
    "token",
]
"""Endings of names without separators, as in PGPASSWORD."""

_ABOUT: Final = frozenset(
    [
        "budget",
        "count",
        "dir",
        "endpoint",
        "env",
        "file",
        "limit",
        "name",
        "path",
        "size",
        "timeout",
        "ttl",
        "type",
        "uri",
        "url",
        "var",
    ]
)
"""Last words of names that speak about a secret without holding it (TOKEN_FILE)."""

_COUNTED: Final = frozenset(
    ["completion", "context", "input", "max", "min", "num", "output", "prompt", "thinking", "total"]
)
"""Before `tokens`, words for the tokens of a language model."""

_HARMLESS: Final = frozenset(
    [
        "auto",
        "basic",
        "bearer",
        "default",
        "disabled",
        "enabled",
        "false",
        "none",
        "null",
        "oauth",
        "true",
    ]
)
"""Values that secret-looking options take when they hold no secret."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_REFERENCE: Final = re.compile(r"(?:(?:bearer|basic) +)?\$\{[a-z_][a-z0-9_]*\}", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"""://((?:(?!://)[^\s"'<>])*)""")
_PARAMETER: Final = re.compile(r"""[?&#;]([^=&#;?\s]{1,200})=""")
_PARAMETER_END: Final = re.compile(r"""[&#\s"'<>]|$""")
_ENCODED: Final = re.compile(r"""[^?&#;\s"'<>]*""")
_WHOLE: Final = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)(?:=|: ?)(.*)", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"""([A-Za-z0-9_.-]{1,64})\\?["']?\s?[:=]\s?\\?["']?""")
_VALUE: Final = re.compile(
    r"""(?:(?:bearer|basic|token) +)?(?:\$\{\w+\}|[^\s"'\\,;&}]+)""", re.IGNORECASE
)
_SCHEME: Final = re.compile(r"""\b(?:bearer|basic) +([^\s"'\\,;]{8,})""", re.IGNORECASE)

_Span = tuple[int, int]


def is_secret_name(name: str) -> bool:
    """Whether what `name` names (a variable, header, flag or parameter) is probably a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _ABOUT or words[0] == "no" or words == ["pwd"]:
        return False
    if words[-1] == "tokens" and (len(words) == 1 or not _COUNTED.isdisjoint(words)):
        return False
    if not _ANYWHERE.isdisjoint(words) or "".join(words).endswith(tuple(_GLUED)):
        return True
    return words[-1] in _AT_END and "public" not in words


def redact_url(text: str) -> str:
    """Hide user-info and secret-looking parameters of every URL in `text`."""
    return _hide(text, _url_spans(text))


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Hide the values of secret-looking flags, assignments and headers, and secrets in URLs."""
    return tuple(_hide(text, spans) for text, spans in _argv_spans(argv))


def secrets_in_argv(argv: Sequence[str]) -> frozenset[str]:
    """The values that `redact_argv` hides, of `SHORTEST_SECRET` characters or more."""
    found = (text[start:end] for text, spans in _argv_spans(argv) for start, end in spans)
    return worth_masking(found)


def secrets_in_text(text: str) -> frozenset[str]:
    """The secrets inside one value (parts of URLs, assignments, bearer tokens)."""
    return worth_masking(text[start:end] for start, end in _text_spans(text))


def worth_masking(values: Iterable[str]) -> frozenset[str]:
    """Of `values`, those that are masked wherever they appear, and long lines of them.

    Harmless words and what is shorter than `SHORTEST_SECRET` are left out.
    """
    kept = set[str]()
    for value in values:
        lines = [line.strip() for line in value.splitlines()]
        kept |= {value, value.strip(), unquote(value)}
        kept |= {line for line in lines if len(line) >= _LONG_LINE}
    return frozenset(
        value for value in kept if len(value) >= SHORTEST_SECRET and value.lower() not in _HARMLESS
    )


def mask(text: str, secrets: Iterable[str]) -> str:
    """Replace every appearance of a secret, also where two of them overlap."""
    spans = list[_Span]()
    for secret in filter(None, secrets):
        start = text.find(secret)
        while start >= 0:
            spans.append((start, start + len(secret)))
            start = text.find(secret, start + 1)
    return _hide(text, spans)


def _hide(text: str, spans: Iterable[_Span]) -> str:
    """Put `MASK` in place of the spans; those that touch or overlap become one."""
    parts, shown_to, hidden_to = list[str](), 0, -1
    for start, end in sorted(spans):
        if start > hidden_to:
            parts += [text[shown_to:start], MASK]
        hidden_to = max(hidden_to, end)
        shown_to = hidden_to
    return "".join([*parts, text[shown_to:]])


def _argv_spans(argv: Sequence[str]) -> Iterator[tuple[str, list[_Span]]]:
    after_secret_flag = False
    for text in argv:
        spans = _text_spans(text)
        if after_secret_flag:
            spans += _unless_reference(text, 0, len(text))
        elif (whole := _WHOLE.fullmatch(text)) and is_secret_name(whole[1]):
            spans += _unless_reference(text, *whole.span(2))
        yield text, spans
        # also when this text is itself the value of a flag: `--auth --token X` may mean both
        after_secret_flag = text.startswith("-") and "=" not in text and is_secret_name(text)


def _text_spans(text: str) -> list[_Span]:
    spans = _url_spans(text)
    spans += [scheme.span(1) for scheme in _SCHEME.finditer(text) if "${" not in scheme[1]]
    hidden_to = 0
    for assignment in _ASSIGNMENT.finditer(text):
        start = assignment.end()
        if start < hidden_to or not is_secret_name(assignment[1]):
            continue
        if value := _VALUE.match(text, start):
            spans += _unless_reference(text, *value.span())
            hidden_to = value.end()
    return spans


def _url_spans(text: str) -> list[_Span]:
    spans = list[_Span]()
    for authority in _AUTHORITY.finditer(text):
        end = _user_info_end(authority[1])
        if end > 0:
            start = authority.start(1)
            spans.append((start, start + end))
            colon = authority[1].find(":", 0, end)
            if colon >= 0:  # alone as well: programs print passwords without the user
                spans.append((start + colon + 1, start + end))
    end = 0
    for parameter in _PARAMETER.finditer(text):
        start = parameter.end()
        name, more = _decode(parameter[1].lower())
        if more or is_secret_name(name) or not _IN_QUERIES.isdisjoint(_WORD.findall(name)[-1:]):
            if start >= end and (found := _PARAMETER_END.search(text, start)):
                end = found.start()
            spans += _unless_reference(text, start, end)
        elif (encoded := _ENCODED.match(text, start)) and "%" in encoded[0]:
            value, more = _decode(encoded[0])
            spans += [encoded.span()] if more or _url_spans(value) else []
    return spans


def _user_info_end(address: str) -> int:
    """Where the user-info of `address` (what follows `://`) ends, or -1 without one."""
    stops = [at for mark in "/?#" if (at := address.find(mark)) >= 0]
    host = address[: min(stops, default=len(address))]
    if "@" in host or host.startswith("["):
        return host.rfind("@")
    # `app:pass/word@host` is no valid URL, but people write it: a port would be digits
    _, colon, port = host.partition(":")
    return address.rfind("@") if colon and not port.isdigit() else -1


def _decode(text: str) -> tuple[str, bool]:
    """`text` percent-decoded as often as it changes, and whether it still would."""
    for _ in range(_MAX_DECODES):
        decoded = unquote(text)
        if decoded == text:
            return text, False
        text = decoded
    return text, unquote(text) != text


def _unless_reference(text: str, start: int, end: int) -> list[_Span]:
    if start == end or _REFERENCE.fullmatch(text, start, end):
        return []
    return [(start, end)]
