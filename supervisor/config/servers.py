"""Makes one server out of its record: what to start, as whom, with which environment.

Nothing here fails. What keeps a server from starting becomes a sentence of that server, so that
one missing variable never costs the others their start.

A variable comes from `env`, else from `envFile`, else from the base environment. The path of an
`envFile` is relative to the directory of the file that names it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from supervisor.config.accounts import Account, Accounts, Identity, resolve_identity
from supervisor.config.document import Document, KeyPath, Problem
from supervisor.config.env_file import parse_env_file
from supervisor.config.environment import base_environment, environment_text, loader_hooks
from supervisor.config.files import Unreadable, read_text
from supervisor.config.models import Scope, Server
from supervisor.config.records import ServerRecord
from supervisor.config.references import expand, expand_home
from supervisor.config.shown import shown_record
from supervisor.core.ids import ServerName
from supervisor.core.launch import LaunchSpec, StopPolicy
from supervisor.core.limits import DEFAULT_LINE_BYTES, RestartPolicy
from supervisor.core.redaction import (
    is_secret_name,
    redact_argv,
    redact_url,
    secrets_in_argv,
    secrets_in_text,
    worth_masking,
)
from supervisor.core.tool_filter import ToolFilter

STDIO: Final = "stdio"
STREAMABLE_HTTP: Final = "streamable-http"
REMOTE: Final = frozenset({STREAMABLE_HTTP, "sse"})

MAX_ENV_FILE_BYTES: Final = 1024 * 1024
"""execve(2) takes no more than a few MiB of variables and arguments together."""

_TYPE_ALIASES: Final[Mapping[str, str]] = {"http": STREAMABLE_HTTP}
_NO_SECRETS: Final = frozenset(
    {"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
)
"""Variables whose values stay readable: masking every home directory would hide all paths."""

_PLAIN_VALUE: Final = re.compile(r"[A-Za-z]+|[0-9.]+")
"""Values of an environment file that stay readable, as `info` or `8080`: unless their name speaks
of a secret. All else of such a file is masked, since secrets are what people put there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a server takes from the daemon.

    Attributes:
        environ: the daemon's environment, for references.
        daemon: the account that the daemon runs as, with its effective ids.
        accounts: where users and groups are looked up.
        path: `supervisor.path`, resolved.
        max_line_bytes: `supervisor.maxLineBytes`.
    """

    environ: Mapping[str, str] = field(repr=False)
    daemon: Account
    accounts: Accounts
    path: str | None = None
    max_line_bytes: int = DEFAULT_LINE_BYTES


def make_server(
    document: Document, path: KeyPath, record: ServerRecord, around: Surroundings
) -> tuple[Server, list[Problem]]:
    """Resolve the record at `path`.

    Returns:
        The server, and warnings that do not keep it from starting.
    """
    maker = _Maker(document, path, record, around)
    launch = None
    transport, scope = maker.transport(), maker.scope()
    if transport == STDIO:
        launch = maker.launch()
    problems = tuple(problem.sentence for problem in maker.problems)
    written, idle_ms = document.at(path), record.idle_timeout_ms
    server = Server(
        name=ServerName(str(path[-1])),
        enabled=record.enabled is not False,
        transport=transport,
        command=_for_people(record),
        launch=None if problems else launch,
        cwd_given=bool(record.cwd),
        problems=problems,
        restart=RestartPolicy() if record.restart is None else record.restart.restart_policy(),
        calls=record.call_limits(around.max_line_bytes),
        idle_s=None if idle_ms is None else idle_ms / 1000,
        autostart=record.autostart is True,
        scope=scope,
        protocol=record.protocol or "auto",
        parallel=record.supports_parallel_tool_calls is True,
        tool_filter=ToolFilter()
        if record.tool_filter is None
        else record.tool_filter.tool_filter(),
        shown=shown_record(written if isinstance(written, dict) else {}),
    )
    return server, maker.warnings if server.enabled else []


def _for_people(record: ServerRecord) -> str:
    """The command as written; what a terminal would obey is shown as an escape."""
    if _is_given(record.command):
        words = redact_argv((str(record.command), *(record.args or ())))
        shown = " ".join(f"'{word}'" if not word or " " in word else word for word in words)
    else:
        shown = redact_url(record.url or "")
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in shown
    )


def _is_given(text: str | None) -> bool:
    return text is not None and bool(text.strip())


class _Maker:
    """Resolves one record; collects its problems, warnings and secrets on the way."""

    def __init__(
        self, document: Document, path: KeyPath, record: ServerRecord, around: Surroundings
    ) -> None:
        self.document = document
        self.path = path
        self.record = record
        self.around = around
        self.problems = list[Problem]()
        self.warnings = list[Problem]()
        self.secrets = set[str]()

    def transport(self) -> str:
        """How to talk to it; anything but `stdio` is a problem of this release."""
        given = self._read(self.record.transport or "", "transport").strip().lower()
        kind = self._read(self.record.type or "", "type").strip().lower()
        if _is_given(self.record.command):
            return STDIO
        transport = given or _TYPE_ALIASES.get(kind, kind)
        if transport == STDIO or not _is_given(self.record.url):
            self._problem((), 'there is no command; write one, such as "command": "uvx".')
            return STDIO
        transport = transport or STREAMABLE_HTTP
        if transport in REMOTE:
            self._problem(("url",), "remote servers come with a later release; use a command.")
        else:
            key = "transport" if given else "type"
            self._problem((key,), "this transport is not known; use stdio with a command.")
        return transport if transport in REMOTE else "unknown"

    def scope(self) -> Scope:
        """Who shares an instance."""
        return self.record.scope or "session"

    def launch(self) -> LaunchSpec:
        """What to start; meaningless as long as there are problems."""
        record = self.record
        identity = self._identity()
        home = identity.account.home
        argv = (
            self._read(record.command or "", "command", home=home),
            *(
                self._read(text, "args", at, home=home, private=True)
                for at, text in enumerate(record.args or ())
            ),
        )
        env = self._environment(identity.account)
        cwd = self._working_directory(home)
        self.secrets |= secrets_in_argv(argv)
        return LaunchSpec(
            argv=argv,
            env=env,
            cwd=cwd,
            uid=identity.uid,
            gid=identity.gid,
            groups=identity.groups,
            no_new_privileges=record.no_new_privileges is True,
            stop=StopPolicy() if record.stop is None else record.stop.policy(),
            secrets=frozenset(self.secrets),
        )

    def _identity(self) -> Identity:
        uid, gid = (
            self._read(value, key) if isinstance(value, str) else value
            for key, value in (("uid", self.record.uid), ("gid", self.record.gid))
        )
        return resolve_identity(
            self.around.accounts,
            self.around.daemon,
            uid,
            gid,
            lambda key, text: self._problem((key,), text),
        )

    def _environment(self, account: Account) -> dict[str, str]:
        env = base_environment(account, self.around.environ, self.around.path)
        from_file = self._env_file(account.home)
        refused = self._refused(from_file, "envFile")
        for key, value in from_file.items():
            if key not in refused:
                env[key] = value
                self.secrets |= secrets_in_text(value)
                if is_secret_name(key) or not (key in _NO_SECRETS or _PLAIN_VALUE.fullmatch(value)):
                    self.secrets |= worth_masking([value])
        given = self.record.env or {}
        refused = self._refused(given, "env")
        for key, configured in given.items():
            if not key or "=" in key:
                self._problem(("env", key), "a variable's name is not empty and holds no '='.")
            elif key not in refused:
                env[key] = self._variable(key, environment_text(configured), account.home)
        return env

    def _refused(self, names: Iterable[str], field: str) -> tuple[str, ...]:
        """The loader hooks among the variables of one field, after a warning of them."""
        refused = () if self.record.allow_loader_env else loader_hooks(names)
        if refused:
            text = (
                f"{', '.join(map(ascii, refused))} left out: such variables make programs run "
                'other code. Write "allowLoaderEnv": true to hand them on.'
            )
            self.warnings.append(self.document.problem((*self.path, field), text))
        return refused

    def _env_file(self, home: str) -> Mapping[str, str]:
        """The variables of the record's environment file; its path is not shown, as no value is."""
        known = len(self.problems)
        written = self._read(self.record.env_file or "", "envFile", home=home)
        if not written or len(self.problems) > known:
            return {}
        path = Path(self.document.file).parent / written
        text = read_text(str(path), MAX_ENV_FILE_BYTES, regular=True)
        if isinstance(text, Unreadable):
            way_out = "; create it, or take envFile out." if text.missing else ""
            self._problem(("envFile",), f"that file{text.rest}{way_out}")
            return {}
        found = parse_env_file(text)
        for clause in found.problems:
            self._problem(("envFile",), f"in that file, {clause}.")
        return found.variables

    def _variable(self, key: str, text: str, home: str) -> str:
        value = self._read(text, "env", key, home=home, private=True)
        used = expand(text, self.around.environ).values
        if is_secret_name(key) or not _NO_SECRETS.issuperset(used):
            self.secrets |= worth_masking([value])
        self.secrets |= secrets_in_text(value)
        return value

    def _working_directory(self, home: str) -> str:
        if not self.record.cwd:
            return home
        cwd = self._read(self.record.cwd, "cwd", home=home)
        if not PurePosixPath(cwd).is_absolute() and "${" not in cwd:
            self._problem(("cwd",), "a working directory starts with / or ~/; write it in full.")
        return cwd

    def _read(
        self, text: str, *key: str | int, home: str | None = None, private: bool = False
    ) -> str:
        """Expand one text of the record.

        Args:
            text: as written.
            key: its place in the record.
            home: what a leading `~` stands for; None: it stands for itself.
            private: whether whatever comes out of a variable here is taken for a secret.
        """
        expanded = expand(text if home is None else expand_home(text, home), self.around.environ)
        for name in expanded.missing:
            self._problem(
                key,
                f"the variable {name} is not set in the daemon's environment; set it there, or "
                f"write a default: ${{{name}:-...}}.",
            )
        for name in expanded.nested:
            self._problem(
                key, f"the default of {name} holds a reference, which is not possible; write text."
            )
        self.secrets |= worth_masking(
            value
            for name, value in expanded.values.items()
            if is_secret_name(name) or (private and name not in _NO_SECRETS)
        )
        return expanded.text

    def _problem(self, key: KeyPath, text: str) -> None:
        self.problems.append(self.document.problem(self.path + key, text))
