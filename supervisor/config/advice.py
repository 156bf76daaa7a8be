"""What `doctor` may advise though nothing is wrong: references for secrets, options for docker.

Source: OpenClaw 2026.9.6 for the warning of literal secrets; docker-run(1), podman-run(1).
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from pydantic import JsonValue

from supervisor.config.document import Document, KeyPath, dotted
from supervisor.config.environment import environment_text
from supervisor.config.sections import server_values
from supervisor.core.ids import ServerName
from supervisor.core.launch import LaunchSpec
from supervisor.core.redaction import (
    is_secret_name,
    secrets_in_argv,
    secrets_in_text,
    worth_masking,
)

_REFERENCE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-([^}]*))?\}")
_SCHEME: Final = re.compile(r"^(?:bearer|basic|token)(?: +|$)", re.IGNORECASE)
_CONTAINERS: Final = frozenset({"docker", "nerdctl", "podman"})
_PREFIXES: Final = frozenset({"env", "exec", "sudo"})
_SWITCHES: Final = frozenset(
    [
        "--detach",
        "--env-host",
        "--help",
        "--init",
        "--interactive",
        "--no-healthcheck",
        "--no-hosts",
        "--oom-kill-disable",
        "--privileged",
        "--publish-all",
        "--quiet",
        "--read-only",
        "--replace",
        "--rm",
        "--rmi",
        "--tty",
    ]
)
"""Long options of `run` that take no value: the word after them is an option or the image."""

_LETTERS: Final = frozenset("dPqit")
"""The same for short ones, which may stand together, as in `-it`."""


class LiteralSecret(NamedTuple):
    """A secret that stands in a file: the server and its field, as `env.API_KEY` or `args[2]`."""

    server: ServerName
    field: str


def literal_secrets(document: Document) -> tuple[LiteralSecret, ...]:
    """Find what looks like a secret in `args`, `env`, `headers` and `url` and is no reference.

    Returns:
        Places only, sorted; no value.
    """
    found = list[LiteralSecret]()
    for path, record in server_values(document):
        if isinstance(record, dict):
            server = ServerName(str(path[-1]))
            found += [LiteralSecret(server, dotted(field)) for field in _literal_fields(record)]
    return tuple(sorted(found))


def docker_like(launch: LaunchSpec) -> bool:
    """Whether the server is a client of a container engine.

    What it starts is a child of the engine and no member of the family: the end of the client is
    all that a stop can confirm.
    """
    return _container_words(launch) is not None


def missing_run_options(launch: LaunchSpec) -> tuple[str, ...]:
    """Which of `-i` and `--rm` a `docker run` lacks; empty for anything else.

    Without `-i` the server never hears that its stdin closed; without `--rm` the container stays.
    """
    words = _container_words(launch) or ()
    if "run" not in words:
        return ()
    at = words.index("run")
    if not all(
        word == "container" or "-" in (word[:1], before[:1])
        for before, word in pairwise(("", *words[:at]))
    ):
        return ()  # `compose run` and others have options of their own
    given = set(_options(words[at + 1 :]))
    interactive = not given.isdisjoint({"i", "--interactive"})
    return (*(() if interactive else ("-i",)), *(() if "--rm" in given else ("--rm",)))


def _literal_fields(record: dict[str, JsonValue]) -> Iterator[KeyPath]:
    args = record.get("args")
    texts = args if isinstance(args, list) else []
    words = [_bare(word) if isinstance(word, str) else "" for word in texts]
    for at, (before, word) in enumerate(pairwise(("", *words))):
        flag = before if before.startswith("-") and "=" not in before else ""
        if _any_literal(secrets_in_argv((flag, word)) - secrets_in_argv((flag,))):
            yield ("args", at)
    for key in ("env", "headers"):
        variables = record.get(key)
        for name, value in variables.items() if isinstance(variables, dict) else ():
            if isinstance(value, str | int | float) and _is_secret(name, environment_text(value)):
                yield (key, name)
    url = record.get("url")
    if isinstance(url, str) and _is_secret("", url):
        yield ("url",)


def _bare(text: str) -> str:
    """The text without its references; their defaults are written down, so they stay."""
    return _REFERENCE.sub(lambda found: found[1] or "", text)


def _is_secret(name: str, value: str) -> bool:
    text = _bare(value)
    whole = worth_masking([text]) if is_secret_name(name) else frozenset()
    return _any_literal(whole | secrets_in_text(text))


def _any_literal(secrets: frozenset[str]) -> bool:
    """Whether one of them is more than what is left of a reference: a scheme, a colon, a `$`."""
    texts = (_SCHEME.sub("", secret).strip(" :") for secret in secrets)
    # `$NAME` and `$${NAME}` are mistakes and no secrets
    return any(worth_masking([text]) and not text.startswith("$") for text in texts)


def _container_words(launch: LaunchSpec) -> tuple[str, ...] | None:
    """What follows the name of the container engine; None where none is started."""
    for at, word in enumerate(launch.argv):
        name = PurePosixPath(word).name
        if name in _CONTAINERS:
            return launch.argv[at + 1 :]
        if name not in _PREFIXES and not word.startswith("-") and "=" not in word:
            return None
    return None


def _options(words: tuple[str, ...]) -> Iterator[str]:
    """The options before the image: long ones by name, short ones as single letters."""
    value_follows = False
    for word in words:
        if value_follows:
            value_follows = False
            continue
        if not word.startswith("-") or word == "--":
            return
        name, has_value, value = word.partition("=")
        if name.startswith("--"):
            value_follows = not has_value and name not in _SWITCHES
            if value.lower() not in ("false", "0"):
                yield name
        elif _LETTERS.issuperset(name[1:]):
            yield from name[1:] if value.lower() != "false" else ()
        else:
            # `-e NAME` and `-eNAME`; in `-ite NAME` the last letter takes the value
            switches = name[1 : 1 + next(at for at, c in enumerate(name[1:]) if c not in _LETTERS)]
            yield from switches
            value_follows = not has_value and len(switches) == len(name) - 2
