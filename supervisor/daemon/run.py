"""Runs the daemon in this process: `mcp-supervisord run`, and the rest of `start` once detached."""

from collections.abc import Callable

import anyio
import structlog

from supervisor.core.exits import OUR_BUG
from supervisor.daemon.exits import explain
from supervisor.daemon.lifecycle import Setting, serve
from supervisor.daemon.options import Options
from supervisor.daemon.ports import OpenManager
from supervisor.daemon.prepare import Prepared, prepare
from supervisor.daemon.sockets import LOOK_EVERY_S
from supervisor.linux.reaping import become_subreaper
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.logs import add_secrets, configure_logs

_log = structlog.get_logger(__name__)


def run_in_foreground(
    options: Options,
    open_manager: OpenManager | None = None,
    look_every_s: float = LOOK_EVERY_S,
) -> int:
    """Run until asked to stop; logs go to standard error.

    Args:
        options: the flags.
        open_manager: the manager to run; the real one when None.
        look_every_s: seconds between two looks at the socket files.

    Returns:
        The exit code of design section 13.

    Raises:
        SupervisorError: the start failed; nothing is left behind.
    """
    prepared = prepare(options)
    return run_prepared(
        prepared,
        options,
        on_ready=lambda: None,
        open_manager=open_manager,
        look_every_s=look_every_s,
    )


def run_prepared(
    prepared: Prepared,
    options: Options,
    *,
    on_ready: Callable[[], None],
    open_manager: OpenManager | None = None,
    look_every_s: float = LOOK_EVERY_S,
) -> int:
    """The same after `prepare`.

    Args:
        prepared: with the lock held; it stays so until the process ends.
        options: for the log.
        on_ready: called once, when the sockets answer.
        open_manager: the manager to run; the real one when None.
        look_every_s: seconds between two looks at the socket files.
    """
    become_subreaper()  # a detach would have cleared it; before the first child
    configure_logs(stream=options.log_format, level=options.log_level)
    configuration = prepared.configuration
    for server in configuration.servers.values():
        if server.launch is not None:
            add_secrets(server.launch.secrets)
    events = EventLog()
    for warning in configuration.warnings:
        events.record("configuration_warned", level="warning", warning=warning)
    for server in configuration.servers.values():
        for problem in server.problems:
            events.record("server_unusable", level="warning", server=server.name, problem=problem)
    setting = Setting(
        configuration=configuration,
        places=prepared.places,
        group=prepared.group,
        original_nofile=prepared.original_nofile,
        original_umask=prepared.original_umask,
        on_ready=on_ready,
        look_every_s=look_every_s,
    )
    try:
        return anyio.run(serve, setting, events, open_manager or _real_manager())
    except Exception as error:
        # people get a sentence; whoever reads the log gets the rest
        code, sentence = explain(error)
        _log.error("daemon_failed", reason=sentence, exit_code=code, exc_info=code == OUR_BUG)
        raise


def _real_manager() -> OpenManager:
    from supervisor.manager.open import (  # noqa: PLC0415 - a fake can take its place without it
        open_manager,
    )

    return open_manager
