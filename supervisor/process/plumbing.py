"""Makes the pipes of one instance and hands the far ends to its relay.

No process of ours stands on the data path: the daemon keeps one end of each pipe, the server gets
the other, and every process between them closes its copy.
"""

import contextlib
import os
import socket
from dataclasses import dataclass
from typing import Final

from supervisor.core.ids import INSTANCE_MARK, InstanceId
from supervisor.core.launch import LaunchSpec
from supervisor.linux.limits import server_oom_score
from supervisor.linux.pipes import make_pipe
from supervisor.relay.launch_order import LaunchOrder

MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What servers get back that the daemon has changed for itself."""

    nofile: tuple[int, int]
    umask: int


@dataclass(slots=True)
class Plumbing:
    """The daemon's ends, and the far ends in the order of `message.FD_ORDER` without the gate."""

    stdin: int
    stdout: int
    stderr: int
    lineage: int
    control: int
    far: list[int]

    def close_far(self) -> None:
        """Close our copies of what the relay has now: each would hide an EOF."""
        for fd in self.far:
            os.close(fd)
        self.far.clear()

    def close(self) -> None:
        """Close everything, for a spawn that did not happen."""
        self.close_far()
        for fd in (self.stdin, self.stdout, self.stderr, self.lineage, self.control):
            with contextlib.suppress(OSError):
                os.close(fd)


def lay(order: LaunchOrder, receipt: int) -> Plumbing:
    """Make all pipes and the memfd with the order; takes `receipt` over.

    Raises:
        OSError: out of descriptors; nothing is left open.
    """
    opened: list[int] = [receipt]
    try:
        stdin_far, stdin = _keep(opened, make_pipe())
        stdout, stdout_far = _keep(opened, make_pipe())
        stderr, stderr_far = _keep(opened, make_pipe())
        lineage, lineage_far = _keep(opened, make_pipe(small=True))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control, control_far = _keep(opened, (ours.detach(), theirs.detach()))
        spec = os.memfd_create("launch", os.MFD_CLOEXEC)
        opened.append(spec)
        content = memoryview(order.pack())
        while content:
            content = content[os.write(spec, content) :]
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    os.set_blocking(control, False)
    far = [control_far, stdin_far, stdout_far, stderr_far, lineage_far, spec, receipt]
    return Plumbing(stdin, stdout, stderr, lineage, control, far)


def _keep(opened: list[int], pair: tuple[int, int]) -> tuple[int, int]:
    opened.extend(pair)
    return pair


def launch_order(spec: LaunchSpec, instance: InstanceId, inheritance: Inheritance) -> LaunchOrder:
    """The order that the relay reads, the instance's mark included."""
    env = {**spec.env, INSTANCE_MARK: instance}
    soft, hard = inheritance.nofile
    return LaunchOrder(
        argv=[os.fsencode(word) for word in spec.argv],
        env=[os.fsencode(f"{name}={value}") for name, value in env.items()],
        cwd=os.fsencode(spec.cwd),
        uid=-1 if spec.uid is None else spec.uid,
        gid=-1 if spec.gid is None else spec.gid,
        groups=list(spec.groups),
        no_new_privileges=int(spec.no_new_privileges),
        oom_score_adj=server_oom_score(),
        nofile_soft=soft,
        nofile_hard=hard,
        umask=inheritance.umask,
        term_after_us=round(spec.stop.term_after_s * MICROSECONDS),
        kill_after_us=round(spec.stop.kill_after_s * MICROSECONDS),
        deadline_us=round(spec.stop.deadline_s * MICROSECONDS),
    )
