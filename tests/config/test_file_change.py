"""A file is replaced as a whole, keeps what was its own, and only if nobody else has changed it."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from supervisor.config.file_change import EditRefusedError, locked, look, replace
from supervisor.core.errors import ConfigError, KernelError


def names(folder: Path) -> list[str]:
    """What is in the folder."""
    return sorted(path.name for path in folder.iterdir())


def test_content_is_new_and_mode_and_owner_are_old(tmp_path: Path) -> None:
    """A daemon of another group would else lose its configuration; nothing else is left behind."""
    file = tmp_path / "c.json"
    file.write_text("{}")
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 12345, 23456)
    before = file.stat()
    replace(look(str(file)), "new")
    after = file.stat()
    assert file.read_text() == "new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert after.st_ino != before.st_ino
    assert names(tmp_path) == ["c.json"]


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It may come to hold secrets; folders on the way are made."""
    file = tmp_path / "a" / "b" / "c.json"
    replace(look(str(file)), "new")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o600)
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert names(file.parent) == ["c.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another group")
def test_a_new_file_in_a_group_s_folder_is_readable_for_the_group(tmp_path: Path) -> None:
    """The daemon of a system service runs as another user than who configures it."""
    os.chown(tmp_path, -1, 23456)
    tmp_path.chmod(0o750)
    replace(look(str(tmp_path / "c.json")), "new")
    status = (tmp_path / "c.json").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o640, 23456)


def test_an_edit_that_was_not_seen_is_not_overwritten(tmp_path: Path) -> None:
    """Whether the file has changed, has come, or has gone."""
    file = tmp_path / "c.json"
    absent = look(str(file))
    file.write_text("by hand")
    present = look(str(file))
    with pytest.raises(EditRefusedError, match="has changed since it was read"):
        replace(absent, "new")
    file.write_text("by hand again")
    with pytest.raises(EditRefusedError, match="run the command again"):
        replace(present, "new")
    assert file.read_text() == "by hand again"
    file.unlink()
    with pytest.raises(EditRefusedError):
        replace(present, "new")
    assert names(tmp_path) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Who keeps the file in a repository of dotfiles wants the change there."""
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "c.json"
    target.write_text("{}")
    link = tmp_path / "c.json"
    link.symlink_to(target)
    replace(look(str(link)), "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    """The editor that has put it there expects it."""
    file = tmp_path / "c.json"
    file.write_bytes(b"\xef\xbb\xbf{}")
    seen = look(str(file))
    assert seen.text == "{}"
    replace(seen, "[]")
    assert file.read_bytes() == b"\xef\xbb\xbf[]"


def test_what_cannot_be_read_or_written_is_a_sentence(tmp_path: Path) -> None:
    """With the file and the reason."""
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        look(str(tmp_path))
    (tmp_path / "x").write_bytes(b"\n\xff")
    with pytest.raises(ConfigError, match="x, line 2: this is no UTF-8"):
        look(str(tmp_path / "x"))
    seen = look(str(tmp_path / "a" / "c.json"))
    (tmp_path / "a").write_text("no folder")
    with pytest.raises(KernelError, match="cannot be written: "):
        replace(seen, "new")
    with pytest.raises(KernelError, match="cannot be changed"), locked(seen.path):
        pass


def test_while_one_writes_no_other_gets_the_lock(tmp_path: Path) -> None:
    """Two at a time would each write what the other has not read; a writer's death frees it."""
    file = tmp_path / "c.json"

    def is_free() -> bool:
        with (tmp_path / ".c.json.lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    with locked(str(file)):
        assert not is_free()
    assert is_free()
    assert names(tmp_path) == [".c.json.lock"]
