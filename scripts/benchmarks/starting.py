"""How long the command-line programs take before they do something."""

import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import PROGRAMS, open_daemon, record
from scripts.benchmarks.peers import PATIENCE_S, Bare
from scripts.benchmarks.programs import CAT, ENV
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.surroundings import UnexpectedError, directory
from supervisor.core.places import MCP_SOCKET

MCPCTL: Final = str(PROGRAMS / "mcpctl")
MCPCTL_RATIO: Final = 6.0
SHIM_RATIO: Final = 2.3
"""Source: design section 21."""

PEER: Final = "python -c pass"


def measure_programs(counts: Counts) -> list[Row]:
    """`mcpctl` to its end, and the shim until its request is at the daemon."""
    bare, usage, status, shim = [], [], [], []
    with open_daemon({"cat": record(CAT)}) as daemon, _daemon_socket() as (listener, environ):
        daemon.start("cat")
        for _ in range(counts.warm_up + counts.programs):
            bare.append(run_ms([sys.executable, "-c", "pass"], ENV))
            usage.append(run_ms([MCPCTL, "--help"], ENV))
            status.append(run_ms([MCPCTL, "status"], daemon.environ))
            shim.append(_connect_ms(listener, environ))
    bare, usage, status, shim = (
        samples[counts.warm_up :] for samples in (bare, usage, status, shim)
    )
    peer = Peer(PEER, bare)
    return [
        row("mcpctl --help", usage, peer=peer, judged="ratio", bound=MCPCTL_RATIO),
        row("mcpctl status", status, peer=peer, judged="ratio", bound=MCPCTL_RATIO),
        row("shim, until it asks the daemon", shim, peer=peer, judged="ratio", bound=SHIM_RATIO),
    ]


def run_ms(argv: Sequence[str], environ: Mapping[str, str]) -> float:
    """Run a program to its end; what it prints is lost and must fit into a pipe.

    Raises:
        UnexpectedError: it failed.
        TooLateError: it did not end.
    """
    began_at = perf_counter()
    process = Bare(argv, env=environ)
    process.wait_end()
    taken_ms = (perf_counter() - began_at) * 1000
    exited = process.release()
    if exited.code != 0:
        message = f"{Path(argv[0]).name} ended with {exited}"
        raise UnexpectedError(message)
    return taken_ms


@contextmanager
def _daemon_socket() -> Iterator[tuple[socket.socket, Mapping[str, str]]]:
    """A socket where the shim looks for the daemon's, and the environment that says where."""
    with directory() as found, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(Path(found) / MCP_SOCKET))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        yield listener, {**ENV, "MCP_SUPERVISOR_RUNTIME_DIR": found}


def _connect_ms(listener: socket.socket, environ: Mapping[str, str]) -> float:
    """Start a shim, wait for its first bytes, and hang up."""
    began_at = perf_counter()
    process = Bare([MCPCTL, "connect", "cat"], env=environ, quiet=True)
    try:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            asked = connection.recv(4096)
            taken_ms = (perf_counter() - began_at) * 1000
    finally:
        process.release()
    if not asked.startswith(b'{"connect"'):
        message = "the shim asked for something else than a connection"
        raise UnexpectedError(message)
    return taken_ms
