"""The shim, `mcpctl connect NAME` or `serve`: an MCP client's stdio, copied to the daemon and back.

It copies bytes and does nothing else: no message is read, changed or answered, except that a
client which cannot be connected gets one JSON-RPC error, because few clients show stderr. How the
instance ended is learnt from the daemon's report once the connection is over.

Standard library only, and of it only what costs nothing to load; a test holds the list.

Source: design sections 9 and 13; MCP 2025-11-25, transports: stdio ends by closing stdin.
"""

import _signal  # type: ignore[import-not-found] # `signal` loads enum and re; typeshed has only it
import os
import time
from _socket import SHUT_WR, socket

from supervisor.cli.copying import STDERR, STDIN, STDOUT, Copier, Flow, Sink
from supervisor.cli.light_json import member, parse, quoted
from supervisor.cli.refusing import Refusal, answer_requests, say
from supervisor.client.reach import reach
from supervisor.client.where import locate
from supervisor.core import exits

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would cost 5 ms
    from supervisor.core.places import Places

REPORT_LIMIT_S = 30.0
"""How long the report of a stopping instance is waited for: six times the default deadline."""

LAST_STDERR_S = 0.25
"""The server is gone when its report is there; its last stderr lines are on their way."""

MAX_ANSWER_BYTES = 65536
"""The daemon's answer line is a few hundred bytes."""

SESSION = "--session"
DEFAULT_SESSION = "default"
OPTIONS = ("--config", "--state-dir", "--runtime-dir")


class Given:
    """What the command line says: server, session (or None), and the places that are given.

    Attributes:
        name: of the server; None for `serve`, which is about all servers of a session.
    """

    __slots__ = ("name", "options", "session")

    def __init__(
        self, name: "str | None", options: "dict[str, str]", session: "str | None" = None
    ) -> None:
        self.name = name
        self.options = options
        self.session = session

    def places(self) -> "Places":
        """Where the daemon is."""
        config, state_dir, runtime_dir = (self.options.get(option) for option in OPTIONS)
        return locate(config, state_dir, runtime_dir)

    def start_command(self) -> str:
        """What to type where no daemon runs, with the same options."""
        words = [f"{option} {value}" for option, value in self.options.items()]
        return " ".join(["mcp-supervisord start", *words])


def read_words(words: "list[str]") -> "Given | None":
    """Read a plain `connect NAME` or `serve` with options; None leaves all else to click.

    That includes `--help` and every mistake: click explains them better.
    """
    bare: list[str] = []
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in OPTIONS or option == SESSION:
            value = value if equals else next(rest, "")
            if not value:
                return None
            options[option] = value
        elif word.startswith("-"):
            return None
        else:
            bare.append(word)
    session = options.pop(SESSION, None)
    match bare:
        case ["connect", name]:
            return Given(name, options, session)
        case ["serve"]:
            return Given(None, options, session or DEFAULT_SESSION)
        case _:
            return None


def run(given: Given) -> int:
    """Connect this process's stdio to the server; return the exit code."""
    _take_standard_descriptors()
    copier = Copier(_catch_signals())
    try:
        places = given.places()
        connection = _reach_daemon(places.mcp_socket, given)
        try:
            if given.name is None:
                return _serve(copier, connection, given.session or DEFAULT_SESSION)
            return _connect(copier, connection, places, given)
        finally:
            connection.close()
    except Refusal as refusal:
        say(refusal.message)
        answer_requests(copier, refusal)
        return refusal.exit_code


def _serve(copier: Copier, connection: socket, session: str) -> int:
    """Be the client's way to a whole session; its servers stay when the client leaves."""
    _send_line(connection, f'{{"serve": {{"version": 1, "session": {quoted(session)}}}}}\n')
    stdout = Sink(STDOUT)
    line, early, left = _read_answer(copier, connection, stdout)
    _connected(line)
    down = Flow(connection.fileno(), stdout, watches_sink=True)
    copier.flows = [down]
    if early:
        down.put(early)
    left = _copy(copier, connection, down, left=left)
    stdout.close()
    if left:
        return exits.DONE
    say(f"The daemon ended the connection to session {session!r}; see `mcpctl status`.")
    return exits.FAILED


def _connect(copier: Copier, connection: socket, places: "Places", given: Given) -> int:
    name = given.name or ""
    session = "null" if given.session is None else quoted(given.session)
    _send_line(
        connection,
        f'{{"connect": {{"version": 1, "server": {quoted(name)}, "session": {session}, '
        f'"cwd": {_cwd()}}}}}\n',
    )
    stdout = Sink(STDOUT)
    line, early, left = _read_answer(copier, connection, stdout)
    instance, of_session = _connected(line)
    if not isinstance(instance, str):
        raise _no_answer()
    errors = _open_stderr(places.mcp_socket, instance)
    try:
        down = Flow(connection.fileno(), stdout, watches_sink=True)
        copier.flows = [down]
        if errors is not None:
            copier.flows.append(Flow(errors.fileno(), Sink(STDERR), watches_sink=True))
        if early:
            down.put(early)
        left = _copy(copier, connection, down, left=left)
        stdout.close()
        if left and of_session:
            return exits.DONE  # the server stays with its session
        return _learn_end(copier, places.control_socket, (name, instance), left=left)
    except Refusal as refusal:
        # too late for a JSON-RPC error: the client has had its connection
        say(refusal.message)
        return refusal.exit_code
    finally:
        if errors is not None:
            errors.close()


def _take_standard_descriptors() -> None:
    """Fill closed ones of 0, 1 and 2, so that no socket gets such a number."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > STDERR:
            os.close(fd)
            return


def _catch_signals() -> int:
    """Turn SIGTERM and SIGINT into bytes on a pipe; returns the end to poll."""
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    _signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for signal in (_signal.SIGTERM, _signal.SIGINT):
        _signal.signal(signal, _noted)
    return read_fd


def _noted(_signal_number: int, _frame: object) -> None:
    """Only there so that the signal reaches the pipe instead of ending the process."""


def _reach_daemon(path: str, given: Given) -> socket:
    try:
        return reach(path)
    except (FileNotFoundError, ConnectionRefusedError):
        raise Refusal(
            exits.UNREACHABLE,
            f"No daemon answers on {path}. Start it with `{given.start_command()}`.",
            "daemon_unreachable",
        ) from None
    except BlockingIOError:
        raise Refusal(
            exits.UNREACHABLE,
            f"The daemon on {path} accepts no connection; `mcpctl doctor` may say why.",
            "daemon_unreachable",
        ) from None
    except OSError as error:
        raise Refusal(
            exits.REFUSED_BY_OS,
            f"The socket {path} may not be used: {error.strerror}. Run this as the user of the "
            "daemon, or name one of your groups in supervisor.socketGroup.",
            "kernel_refused",
        ) from None


def _send_line(connection: socket, line: str) -> None:
    try:
        connection.sendall(line.encode())
    except OSError:
        pass  # the daemon hung up; reading says so, or brings what it said before


def _cwd() -> str:
    try:
        return quoted(os.getcwd())
    except OSError:
        return "null"  # a folder that was removed or is closed to us; the daemon takes its default


def _read_answer(copier: Copier, connection: socket, stdout: Sink) -> tuple[bytes, bytes, bool]:
    """The answer line, what came behind it, and whether the client left meanwhile."""
    wait = Flow(connection.fileno(), None)
    client = Flow(-1, stdout, watches_sink=True)
    copier.flows = [wait, client]
    left = False
    while b"\n" not in wait.kept:
        copier.turn()
        if copier.signals > 1:
            raise _interrupted()
        if not left and (copier.signals or client.lost):
            left = True
            _half_close(connection)
        if wait.ended:
            raise _interrupted() if left else _no_answer()
        if len(wait.kept) > MAX_ANSWER_BYTES:
            raise _no_answer()
    line, _, early = bytes(wait.kept).partition(b"\n")
    return line, early, left


def _interrupted() -> Refusal:
    return Refusal(
        exits.INTERRUPTED,
        "Interrupted before the server was connected; the daemon ends what it had started.",
        "interrupted",
    )


def _no_answer() -> Refusal:
    return Refusal(
        exits.UNREACHABLE,
        "The daemon ended the connection without an answer; `mcpctl status` shows whether it is "
        "still there.",
        "daemon_unreachable",
    )


def _connected(line: bytes) -> "tuple[object, bool]":
    """The instance that the answer names, and whether it is a session's.

    A refusal ends the program.
    """
    try:
        answer = parse(line)
    except ValueError:
        raise _no_answer() from None
    if member(answer, "connected") is not None:
        of_session = member(answer, "connected", "session") is not None
        return member(answer, "connected", "instance"), of_session
    message = member(answer, "error", "message")
    code = member(answer, "error", "code")
    exit_code = member(answer, "error", "exit_code")
    if not isinstance(message, str):
        raise _no_answer()
    raise Refusal(
        exit_code if isinstance(exit_code, int) else exits.FAILED,
        message,
        code if isinstance(code, str) else "error",
    )


def _open_stderr(path: str, instance: str) -> "socket | None":
    """The connection that brings the server's stderr; None where it cannot be had."""
    try:
        errors = reach(path)
    except OSError:
        return None  # the daemon is gone already; the first connection says the same
    _send_line(errors, f'{{"stderr": {{"version": 1, "instance": {quoted(instance)}}}}}\n')
    return errors


def _copy(copier: Copier, connection: socket, down: Flow, *, left: bool) -> bool:
    """Copy until the daemon ends the connection; whether the client had left before that."""
    up = Flow(-1 if left else STDIN, Sink(connection.fileno()))
    copier.flows.append(up)
    told = left
    while not down.ended:
        copier.turn()
        if copier.signals > 1:
            break
        # an end of `up` that only follows from the daemon's end is not the client's leaving
        left = left or bool(copier.signals) or down.lost or (up.ended and not up.lost)
        if copier.signals or down.lost or up.lost:
            # what a server does not read must not keep the daemon from learning that we leave
            up.lose()
            up.stop_reading()
        if up.ended and not told:
            told = True
            _half_close(connection)
    copier.flows.remove(up)
    copier.flows.remove(down)
    return left


def _half_close(connection: socket) -> None:
    try:
        connection.shutdown(SHUT_WR)
    except OSError:
        pass  # the daemon was quicker


def _learn_end(copier: Copier, control_socket: str, who: "tuple[str, str]", *, left: bool) -> int:
    """Wait for the instance's report, copying stderr meanwhile; say how it ended."""
    name, instance = who
    try:
        connection = reach(control_socket)
    except OSError:
        raise Refusal(
            exits.UNREACHABLE, _unknown(name, instance, "the daemon is gone"), ""
        ) from None
    try:
        _send_line(
            connection,
            f"GET /v1/instances/{instance}/report HTTP/1.0\r\nHost: localhost\r\n"
            "Connection: close\r\n\r\n",
        )
        report = Flow(connection.fileno(), None)
        copier.flows.append(report)
        give_up_at = time.monotonic() + REPORT_LIMIT_S
        while not report.ended:
            copier.turn(give_up_at - time.monotonic())
            if copier.signals > 1:
                message = f"Interrupted; the stop of {name!r} goes on in the daemon."
                raise Refusal(exits.INTERRUPTED, message, "")
            if time.monotonic() >= give_up_at:
                raise Refusal(exits.UNCONFIRMED, _unknown(name, instance, "no report came"), "")
        copier.flows.remove(report)
    finally:
        connection.close()
    if not report.kept:
        raise Refusal(exits.UNREACHABLE, _unknown(name, instance, "the daemon is gone"), "")
    _drain(copier)
    from supervisor.cli.ending import read_ending  # noqa: PLC0415 - not needed while copying

    exit_code, sentence = read_ending(bytes(report.kept), left=left)
    if sentence is None:
        sentence = _unknown(name, instance, "the daemon has no report of it")
    if sentence:
        say(sentence)
    return exit_code


def _unknown(name: str, instance: str, why: str) -> str:
    return f"How instance {instance} of {name!r} ended is not known: {why}. See `mcpctl reports`."


def _drain(copier: Copier) -> None:
    end_at = time.monotonic() + LAST_STDERR_S
    while any(not flow.ended and not flow.lost for flow in copier.flows):
        left_s = end_at - time.monotonic()
        if left_s <= 0:
            return
        copier.turn(left_s)
