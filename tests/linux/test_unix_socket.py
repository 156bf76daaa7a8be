"""Private sockets, with real files of every kind in their way (cases 59)."""

import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leftovers import Groups
from supervisor.core.errors import ConfigError, KernelError
from supervisor.linux.unix_socket import (
    BoundSocket,
    Peer,
    bind_private,
    connect,
    ensure_private_dir,
    find_group,
    peer_credentials,
)

LISTENER = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(1)
print("listening", flush=True)
"""
STAYS = "sys.stdin.read()"
DIES = "listener.accept(), __import__('os').abort()"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Another umask for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    """The permission bits of what is at `path` itself."""
    return stat.S_IMODE(path.lstat().st_mode)


def leave_stale(path: Path) -> None:
    """What a crash leaves: a socket file that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
        old.listen(1)


def close(bound: BoundSocket) -> None:
    """Remove a socket and see that it is gone."""
    bound.remove()
    assert not Path(bound.path).exists()


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o377])
def test_a_socket_is_private_by_its_bind_alone(
    tmp_runtime: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    """Between a bind and a chmod anyone could connect, so the bind itself must be right."""
    modes = list[int]()
    path, narrow = tmp_runtime / "control.sock", Path.chmod

    def note_mode(target: Path, mode: int) -> None:
        modes.append(mode_of(path))
        narrow(target, mode)

    monkeypatch.setattr(Path, "chmod", note_mode)
    with umask(mask):
        bound = bind_private(str(path))

    assert mode_of(path) == 0o600
    assert all(mode & 0o177 == 0 for mode in modes)
    assert modes == ([] if mask != 0o377 else [0o400])
    assert not bound.replaced
    assert not bound.socket.getblocking()
    assert not os.get_inheritable(bound.socket.fileno())
    close(bound)


def test_a_group_gets_its_socket_only_once_it_owns_it(tmp_runtime: Path) -> None:
    """With 0660 before the chown, the daemon's own group could connect for an instant."""
    path = tmp_runtime / "control.sock"
    with umask(0):
        bound = bind_private(str(path), mode=0o660, group=os.getegid())

    assert mode_of(path) == 0o660
    assert path.stat().st_gid == os.getegid()
    close(bound)


def test_a_stale_socket_is_replaced_and_that_is_said(tmp_runtime: Path) -> None:
    """After a crash the daemon starts; its caller logs one line."""
    path = tmp_runtime / "control.sock"
    leave_stale(path)
    old = path.stat().st_ino

    bound = bind_private(str(path))

    assert bound.replaced
    assert bound.is_in_place()
    assert (path.stat().st_ino, mode_of(path)) != (old, 0o755)
    close(bound)


@pytest.mark.parametrize(
    ("kind", "word"),
    [("file", "a file"), ("directory", "a directory"), ("link", "a symbolic link")],
)
def test_anything_else_is_refused_by_name_and_left_alone(
    tmp_runtime: Path, kind: str, word: str
) -> None:
    """It may be precious, and a link may lead anywhere."""
    path, target = tmp_runtime / "control.sock", tmp_runtime / "target"
    match kind:
        case "file":
            path.write_text("precious\n")
        case "directory":
            path.mkdir()
        case _:
            leave_stale(target)
            path.symlink_to(target)
    before = path.lstat()

    with pytest.raises(KernelError, match=rf"control\.sock cannot be made: {word} is there"):
        bind_private(str(path))

    after = path.lstat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert kind != "link" or target.exists()


def test_a_live_socket_is_never_taken_over(tmp_runtime: Path, groups: Groups) -> None:
    """Two daemons whose lock file was removed would else fight over one path."""
    path = tmp_runtime / "control.sock"
    listener = groups.start([sys.executable, "-c", LISTENER + STAYS, str(path)])
    assert listener.stdout is not None
    assert listener.stdin is not None
    assert listener.stdout.readline() == b"listening\n"

    with pytest.raises(KernelError, match=f"process {listener.pid} listens there"):
        bind_private(str(path))

    connect(str(path)).close()
    listener.stdin.close()
    listener.wait(5)


def test_a_listener_that_is_about_to_die_is_waited_for(tmp_runtime: Path, groups: Groups) -> None:
    """A killed daemon drops its lock before its sockets; the next start must not trip over that.

    It is played by a listener that dies of the very connection that looks for it.
    """
    path = tmp_runtime / "control.sock"
    listener = groups.start([sys.executable, "-c", LISTENER + DIES, str(path)])
    assert listener.stdout is not None
    assert listener.stdout.readline() == b"listening\n"

    bound = bind_private(str(path))

    assert bound.replaced
    listener.wait(5)
    close(bound)


def test_a_path_of_any_length_is_bound_and_reached(tmp_runtime: Path) -> None:
    """sockaddr_un takes 107 bytes; a deep home directory has more."""
    directory = tmp_runtime / ("d" * 120)
    directory.mkdir()
    path = directory / "control.sock"
    leave_long_stale(path)

    bound = bind_private(str(path))
    bound.socket.listen(1)

    with connect(str(path)) as client:
        assert peer_credentials(client) == Peer(os.getpid(), os.geteuid(), os.getegid())
    assert bound.replaced
    assert mode_of(path) == 0o600
    close(bound)


def leave_long_stale(path: Path) -> None:
    """A stale socket at a long path."""
    close_only = bind_private(str(path))
    close_only.socket.close()


def test_a_socket_whose_file_is_another_ones_does_not_remove_it(tmp_runtime: Path) -> None:
    """A daemon on its way out must not take the next one's socket away."""
    path = tmp_runtime / "control.sock"
    first = bind_private(str(path))
    path.unlink()
    second = bind_private(str(path))

    assert not first.is_in_place()
    first.remove()

    assert second.is_in_place()
    close(second)


def test_nobody_there_is_an_error_that_says_so(tmp_runtime: Path) -> None:
    """Callers look at the cause: absent and refused mean that nothing runs."""
    stale = tmp_runtime / "stale.sock"
    leave_stale(stale)

    with pytest.raises(KernelError, match="cannot be reached") as absent:
        connect(str(tmp_runtime / "absent.sock"))
    with pytest.raises(KernelError, match="cannot be reached") as refused:
        connect(str(stale))

    assert isinstance(absent.value.__cause__, FileNotFoundError)
    assert isinstance(refused.value.__cause__, ConnectionRefusedError)


def test_a_private_directory_is_made_with_its_parents(tmp_runtime: Path) -> None:
    """Mode 0700 from the top, whatever the umask; a wider one is narrowed."""
    wide = tmp_runtime / "wide"
    wide.mkdir()
    wide.chmod(0o755)
    with umask(0):
        ensure_private_dir(str(tmp_runtime / "a" / "b"))
        ensure_private_dir(str(wide))

    assert [mode_of(tmp_runtime / name) for name in ("a", "a/b", "wide")] == [0o700] * 3


def test_a_group_may_pass_through_to_the_sockets_and_no_more(tmp_runtime: Path) -> None:
    """A socket of a group is of no use in a directory that the group cannot enter."""
    ensure_private_dir(str(tmp_runtime / "run"), group=os.getegid())

    assert mode_of(tmp_runtime / "run") == 0o710


def test_a_directory_or_link_of_somebody_else_is_refused(
    tmp_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns the directory can put anything at our paths; so can who made the link."""
    link = tmp_runtime / "link"
    link.symlink_to(tmp_runtime)
    foreign = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: foreign)

    with pytest.raises(KernelError, match=f"belongs to user {foreign - 1}, not to us"):
        ensure_private_dir(str(tmp_runtime))
    if foreign != 1:  # root's links are systemd's
        with pytest.raises(KernelError, match="symbolic link made by user"):
            ensure_private_dir(str(link))


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_what_is_no_directory_is_refused_in_one_sentence(tmp_runtime: Path, kind: str) -> None:
    """The exit code 111 comes with it."""
    path = tmp_runtime / "run"
    path.write_text("precious\n")

    with pytest.raises(KernelError, match=r"The directory .*run.* cannot be used: .*\.$"):
        ensure_private_dir(str(path if kind == "file" else path / "deeper"))

    assert path.read_text() == "precious\n"


def test_an_unknown_group_is_the_operators_turn() -> None:
    """The name stands in the configuration."""
    with pytest.raises(ConfigError, match=r"supervisor\.socketGroup names the group 'no-such'"):
        find_group("no-such")
