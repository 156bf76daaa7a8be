"""An MCP server with descendants that are hard to get rid of: `misbehave.py SCENARIO --pids FILE`.

The root is a polite MCP server on stdio that leaves on EOF, unless its scenario says otherwise.
Every process of interest appends its pid to FILE. Once all of them are in place, one line
`ready N` goes to the FIFO or Unix socket of `--ready-fd-path`, N being the number of those alive.
With `--state DIR` the root appends what it saw to DIR/events: `start PID`, `eof`, `SIGTERM`.
Standard library only; no process of a scenario lives longer than ten minutes.
"""

import argparse
import os
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import escapes
import programs
import restless
from family import LIFETIME_S, Family
from mcp_stdio import serve

CRASH_CODE: Final = 7


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is set up before the root serves, and how the root behaves."""

    set_up: Callable[[Family], int | None]
    deaf: bool = False
    """Whether the root ignores SIGTERM and EOF."""
    leaves: bool = False
    """Whether the root leaves by itself as soon as all is set up."""
    on_call: Callable[[], None] = lambda: None


def crash() -> None:
    """Die as a server with a bug does: a line on stderr and an exit code."""
    os.write(2, b"misbehave: this call is one too many\n")
    os._exit(CRASH_CODE)


def alone(_family: Family) -> int:
    """No descendant at all."""
    return 1


def behind_shell(_family: Family) -> int:
    """The second half of exec_chain: the server below its wrapper, which has noted itself."""
    return 2


SCENARIOS: Final = {
    "polite": Scenario(alone),
    "plain": Scenario(escapes.plain),
    "setsid": Scenario(escapes.own_session),
    "setpgid": Scenario(escapes.own_group),
    "daemonize": Scenario(escapes.daemon),
    "daemonize_closeall": Scenario(escapes.daemon_without_descriptors),
    "daemonize_cleanenv": Scenario(escapes.daemon_without_traces),
    "nohup_envi": Scenario(programs.nohup_env_i),
    "closefds": Scenario(escapes.closed_descriptors),
    "stopped": Scenario(escapes.stopped_child),
    "root_stopped": Scenario(escapes.stopped_root),
    "ign_term": Scenario(escapes.deaf_child, deaf=True),
    "zombies": Scenario(escapes.zombies),
    "zombies_ign": Scenario(escapes.zombies, deaf=True),
    "vfork_d": Scenario(escapes.waiting_for_vfork),
    "setuid_drop": Scenario(escapes.dropped_user),
    "py_subprocess": Scenario(programs.python_child),
    "py_subprocess_session": Scenario(programs.python_child_in_session),
    "node_child": Scenario(programs.node_child),
    "node_detached": Scenario(programs.node_detached),
    "sh_leader_exit": Scenario(programs.shell_leader_leaves, leaves=True),
    "leader_exit": Scenario(escapes.leader_leaves, leaves=True),
    "bash_jobctl": Scenario(programs.bash_job_control),
    "nested_subreaper": Scenario(escapes.nested_subreaper),
    "hold_stdout": Scenario(escapes.output_held, leaves=True),
    "respawn_group": Scenario(restless.respawn_in_group),
    "respawn_escape": Scenario(restless.respawn_escaping),
    "hop": Scenario(restless.hop),
    "bulk500": Scenario(escapes.bulk),
    "crash": Scenario(alone, on_call=crash),
    "exec_chain": Scenario(behind_shell),
}


def main() -> NoReturn:
    """Set the scenario up, announce it, serve."""
    parser = argparse.ArgumentParser(description="An MCP server that leaves things behind.")
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--pids", type=Path, required=True, help="file that gets the pids")
    parser.add_argument("--state", type=Path, help="directory whose file `events` is appended to")
    parser.add_argument("--ready-fd-path", type=Path, help="FIFO or Unix socket for `ready N`")
    parser.add_argument("--wrapped", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    scenario = SCENARIOS[options.scenario]
    state = None if options.state is None else options.state.absolute()
    ready = None if options.ready_fd_path is None else options.ready_fd_path.absolute()
    family = Family(options.pids.absolute(), ready, state)
    family.note()
    if options.scenario == "exec_chain" and not options.wrapped:
        _wrap_in_shell()
    family.saw(f"start {os.getpid()}")
    living = scenario.set_up(family)
    if scenario.leaves:
        os._exit(0)
    _watch_for_term(family, deaf=scenario.deaf)
    if living is not None:
        family.announce(living)
    serve(scenario.on_call)
    family.saw("eof")
    if scenario.deaf:
        select.select([], [], [], LIFETIME_S)
    os._exit(0)


def _wrap_in_shell() -> NoReturn:
    # a command after it keeps the shell from exec'ing the server in its own place
    command = [sys.executable, *sys.orig_argv[1:], "--wrapped"]
    os.execv("/bin/sh", ["sh", "-c", '"$@"; exit $?', "sh", *command])  # noqa: S606


def _watch_for_term(family: Family, *, deaf: bool) -> None:
    def on_term(_number: int, _frame: FrameType | None) -> None:
        family.saw("SIGTERM")
        if not deaf:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_term)


if __name__ == "__main__":
    main()
