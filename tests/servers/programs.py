"""Descendants started through ordinary programs: shells, Python's subprocess, Node.

Each function is one scenario's part before its root serves; what it returns is said in `escapes`.
"""

import os
import subprocess  # noqa: TID251 - how Python's own subprocess treats descriptors is the scenario
from typing import Final

from family import LIFETIME_S, Family, comm_and_state, reap, until, wait_end

_NODE: Final = """
const { spawn } = require("node:child_process"), fs = require("node:fs");
const [place, detached, seconds] = process.argv.slice(1).map(Number);
const child = spawn("/bin/sleep", [String(seconds)], { stdio: "ignore", detached: !!detached });
child.on("spawn", () => { fs.writeSync(place, child.pid + "\\n"); fs.closeSync(place); });
setTimeout(() => {}, seconds * 1000);
"""


def nohup_env_i(family: Family) -> int:
    """What people type: `nohup env -i setsid COMMAND &` in a shell that leaves."""
    script = (
        f'(nohup env -i setsid /bin/sleep {LIFETIME_S} </dev/null >/dev/null 2>&1 & echo $! >>"$0")'
    )
    reap(family.child(lambda: os.execv("/bin/sh", ["sh", "-c", script, str(family.pids)])))  # noqa: S606
    family.wait_placed()
    _until_sleeping(family, noted=2)
    return 2


def bash_job_control(family: Family) -> int:
    """A bash with job control puts each of its jobs into a group of its own."""
    script = f'set -m; /bin/sleep {LIFETIME_S} & echo $! >>"$0"; wait'

    def bash() -> None:
        family.note()
        os.execv("/bin/bash", ["bash", "-c", script, str(family.pids)])  # noqa: S606

    family.child(bash)
    family.wait_placed()
    _until_sleeping(family, noted=3)
    return 3


def python_child(family: Family) -> int:
    """A child of `subprocess.Popen`, which closes unknown descriptors in it."""
    return _popen(family, new_session=False)


def python_child_in_session(family: Family) -> int:
    """The same with `start_new_session=True`."""
    return _popen(family, new_session=True)


def node_child(family: Family) -> int:
    """A Node program and its `child_process.spawn` child."""
    return _node(family, detached=False)


def node_detached(family: Family) -> int:
    """The same with `detached: true`, which gives the child a session of its own."""
    return _node(family, detached=True)


def shell_leader_leaves(family: Family) -> None:
    """The root becomes a shell that starts a job and leaves; another child has its own session."""
    root = os.pidfd_open(os.getpid())

    def stay_behind() -> None:
        os.setsid()
        family.note()
        family.in_place()
        wait_end(root)
        os.close(root)
        family.announce(2)
        family.stay()

    family.child(stay_behind)
    family.wait_placed()
    script = f'/bin/sleep {LIFETIME_S} & echo $! >>"$0"; exit 0'
    os.execv("/bin/sh", ["sh", "-c", script, str(family.pids)])  # noqa: S606


def _popen(family: Family, *, new_session: bool) -> int:
    argv = ["/bin/sleep", str(LIFETIME_S)]
    family.note(subprocess.Popen(argv, start_new_session=new_session).pid)  # noqa: S603
    family.wait_placed()
    return 2


def _node(family: Family, *, detached: bool) -> int:
    def node() -> None:
        family.note()
        os.set_inheritable(family.place, True)
        numbers = [str(family.place), str(int(detached)), str(LIFETIME_S)]
        os.execvp("node", ["node", "-e", _NODE, *numbers])  # noqa: S606, S607 - from the PATH

    family.child(node)
    for pid in family.wait_placed().split():
        family.note(int(pid))
    return 3


def _until_sleeping(family: Family, *, noted: int) -> None:
    """Wait until the process noted last, by a shell, has become `/bin/sleep`."""

    def sleeping() -> bool:
        pids = family.pids.read_text("ascii").split()
        return len(pids) == noted and comm_and_state(int(pids[-1]))[0] == "sleep"

    until(sleeping)
