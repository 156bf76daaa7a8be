"""`mcp-supervisord start`: a daemon that detaches, and says whether it became ready.

The first process stays until then: it reads the daemon's own exit code and sentence from a pipe.
An end of that pipe without a word means that the daemon died too hard to speak.

Source: python-daemon 3.1.2: by default it closes all descriptors, opens the umask, handles
SIGTERM by an exception and forbids core dumps; each of these is switched off or made up for here.
"""

import contextlib
import json
import os
import sys
from typing import Final, TextIO

from daemon import DaemonContext  # type: ignore[import-untyped,attr-defined,unused-ignore] # untyped

from supervisor.core.exits import DONE, FAILED, INTERRUPTED
from supervisor.daemon.exits import explain
from supervisor.daemon.options import Options
from supervisor.daemon.ports import OpenManager
from supervisor.daemon.prepare import Prepared, prepare
from supervisor.linux.unix_socket import ensure_private_dir

_UMASK: Final = 0o077

_LOG_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Readiness:
    """The daemon's end of the pipe: one word, said once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._said = False

    def fileno(self) -> int:
        """The descriptor, which a detach must not close."""
        return self._descriptor

    def say(self, code: int, sentence: str) -> None:
        """Tell the waiting process how the start ended; later words are not sent."""
        if self._said:
            return
        self._said = True
        word = json.dumps({"code": code, "sentence": sentence, "pid": os.getpid()})
        with contextlib.suppress(BrokenPipeError):  # interrupted, and not waiting any more
            os.write(self._descriptor, word.encode() + b"\n")
        os.close(self._descriptor)


def start_detached(options: Options, open_manager: OpenManager | None = None) -> int:
    """Start a daemon in the background and wait until it is ready or has failed.

    Returns:
        In the caller's process: 0 when it runs, else the daemon's exit code. It returns a second
        time, in the daemon, with that exit code.

    Raises:
        SupervisorError: it could not even be tried.
    """
    prepared = prepare(options)
    log_file = _open_log(prepared)
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() != 0:
        os.close(writing)
        log_file.close()
        prepared.lock.release()  # our copy; the lock is the daemon's now
        return _wait_for_word(reading, log_file.name)
    os.close(reading)
    return _become_daemon(prepared, options, Readiness(writing), log_file, open_manager)


def _become_daemon(
    prepared: Prepared,
    options: Options,
    readiness: Readiness,
    log_file: TextIO,
    open_manager: OpenManager | None,
) -> int:
    context = DaemonContext(
        detach_process=True,
        umask=_UMASK,
        signal_map={},
        prevent_core=False,
        files_preserve=[prepared.lock.fd, readiness],
        stdout=log_file,
        stderr=log_file,
    )
    try:
        with context:
            prepared.lock.write_pid()  # the detach gave us another one
            from supervisor.daemon.run import run_prepared  # noqa: PLC0415 - slow: after the fork

            running = f"mcp-supervisord runs (pid {os.getpid()}); its log is {log_file.name}"
            return run_prepared(
                prepared,
                options,
                on_ready=lambda: readiness.say(DONE, running),
                open_manager=open_manager,
            )
    except Exception as error:  # noqa: BLE001 - whoever started it must hear of any failure
        code, sentence = explain(error)
        readiness.say(code, sentence)
        return code


def _open_log(prepared: Prepared) -> TextIO:
    directory = f"{prepared.places.state_dir}/logs"
    ensure_private_dir(directory)
    path = f"{directory}/daemon.log"
    return open(
        path, "a", encoding="utf-8", opener=lambda name, _: os.open(name, _LOG_FLAGS, 0o600)
    )


def _wait_for_word(descriptor: int, log_name: str) -> int:
    with os.fdopen(descriptor, "rb") as pipe:
        try:
            word = pipe.readline()
        except KeyboardInterrupt:
            print(f"Not waited for; see {log_name}.", file=sys.stderr)  # noqa: T201 - as below
            return INTERRUPTED
    if not word.endswith(b"\n"):
        print(  # noqa: T201 - for the person who started it
            f"The daemon ended before it was ready, without a word; see {log_name}.",
            file=sys.stderr,
        )
        return FAILED
    said = json.loads(word)
    code: int = said["code"]
    print(said["sentence"], file=sys.stdout if code == DONE else sys.stderr)
    return code
