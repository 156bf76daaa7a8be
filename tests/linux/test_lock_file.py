"""The daemon's lock, with real files and processes: who holds it is what the kernel says."""

import fcntl
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from leftovers import Groups
from supervisor.core.errors import KernelError
from supervisor.linux.lock_file import Held, HeldByOther, acquire_lock

HOLDER = """
import sys
from supervisor.linux.lock_file import acquire_lock
print(type(acquire_lock(sys.argv[1])).__name__, flush=True)
sys.stdin.read()
"""


def take(path: Path) -> Held:
    """The lock, which must be free."""
    lock = acquire_lock(str(path))
    assert isinstance(lock, Held)
    return lock


@pytest.mark.parametrize(
    "content", [b"", b"not a number\n", b"\xff\xfe", b"999999999\n", b"%d\n" % os.getppid()]
)
def test_what_the_file_says_does_not_keep_anyone_from_the_lock(
    tmp_path: Path, content: bytes
) -> None:
    """A crash or a reboot leaves files that are empty, garbled, or name a stranger (case 61)."""
    path = tmp_path / "daemon.lock"
    path.write_bytes(content)

    lock = take(path)

    assert path.read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_new_lock_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """Others must neither lock it nor be shown in it; a wider old file is narrowed."""
    old = tmp_path / "old.lock"
    old.touch(0o666)
    old.chmod(0o666)
    before = os.umask(0)
    try:
        locks = [take(tmp_path / "new.lock"), take(old)]
    finally:
        os.umask(before)

    for lock in locks:
        assert stat.S_IMODE(os.fstat(lock.fd).st_mode) == 0o600
        assert not os.get_inheritable(lock.fd)
        lock.release()


def test_a_second_process_is_told_who_holds_it_and_changes_nothing(
    tmp_path: Path, groups: Groups
) -> None:
    """A second daemon must not harm the first, not even its lock file."""
    path = tmp_path / "daemon.lock"
    holder = groups.start([sys.executable, "-c", HOLDER, str(path)])
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"Held\n"
    before = path.read_bytes(), path.stat().st_ino

    found = acquire_lock(str(path))

    assert found == HeldByOther(str(path), holder.pid)
    assert (path.read_bytes(), path.stat().st_ino) == before
    holder.stdin.close()
    holder.wait(5)


def test_a_hint_that_is_no_pid_is_none(tmp_path: Path) -> None:
    """The file is for people; what it holds must not break the message."""
    path = tmp_path / "daemon.lock"
    lock = take(path)
    path.write_text("somebody\n")

    assert acquire_lock(str(path)) == HeldByOther(str(path), None)
    lock.release()


def test_a_killed_holder_leaves_the_lock_free(tmp_path: Path, groups: Groups) -> None:
    """The kernel drops it: nothing has to be cleaned up after a crash."""
    path = tmp_path / "daemon.lock"
    holder = groups.start([sys.executable, "-c", HOLDER, str(path)])
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"Held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait(5)

    take(path).release()


def test_a_file_that_is_replaced_while_we_lock_it_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever locks a removed file guards nothing: the next daemon would lock the new one."""
    path, lock_it = tmp_path / "daemon.lock", fcntl.flock
    replaced = list[int]()

    def replace_then_lock(fd: int, operation: int) -> None:
        if not replaced:
            replaced.append(fd)
            path.unlink()
            path.touch()
        lock_it(fd, operation)

    monkeypatch.setattr(fcntl, "flock", replace_then_lock)

    lock = take(path)

    assert os.fstat(lock.fd).st_ino == path.stat().st_ino
    lock.release()


@pytest.mark.parametrize("kind", ["link", "directory", "fifo", "missing directory"])
def test_what_cannot_be_a_lock_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    """A planted link must not let us write into another file."""
    path, target = tmp_path / "daemon.lock", tmp_path / "precious"
    target.write_text("precious\n")
    match kind:
        case "link":
            path.symlink_to(target)
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path = tmp_path / "absent" / "daemon.lock"

    with pytest.raises(KernelError, match=r"daemon\.lock .*\.$"):
        acquire_lock(str(path))

    assert target.read_text() == "precious\n"
