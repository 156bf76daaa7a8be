"""What /proc says of one process, as far as decisions rest on it."""

import os
import signal

from supervisor.linux.processes import read_stat


def test_a_process_that_has_ended_is_seen_to_be_exiting_until_it_is_reaped() -> None:
    """An exiting relay is passed over by the kernel when orphans look for an heir."""
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    pidfd = os.pidfd_open(child)
    try:
        running = read_stat(child)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        dead = read_stat(child)
    finally:
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        os.close(pidfd)
    assert running is not None
    assert dead is not None
    assert (running.exiting, running.alive) == (False, True)
    assert (dead.exiting, dead.alive) == (True, False)
    assert read_stat(child) is None
