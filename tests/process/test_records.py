"""What a daemon leaves for the next one: records that are whole, private, and never guessed at."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.core.attribution import Identity
from supervisor.core.ids import InstanceId, ServerName, SessionKey
from supervisor.linux.processes import boot_id, pid_namespace
from supervisor.process.records import Record, Records

A, B = InstanceId("a" * 16), InstanceId("b" * 16)


def create(records: Records, instance: InstanceId, session: str | None = None) -> Record:
    """Write a record as a spawn does, and close the receipt as a relay's end does."""
    record, receipt = records.create(
        instance,
        ServerName("git"),
        None if session is None else SessionKey(session),
        deadline_s=5.0,
        kill_after_s=4.0,
    )
    os.close(receipt)
    return record


def test_a_record_is_there_before_the_spawn_and_says_whose_it_is(tmp_path: Path) -> None:
    """If the daemon dies between the two, the next one still looks for the mark."""
    create(Records(str(tmp_path)), A, "ada")
    (read,) = Records(str(tmp_path)).read_all()

    assert (read.instance, read.server, read.session) == (A, "git", "ada")
    assert (read.boot_id, read.pid_namespace) == (boot_id(), pid_namespace())
    assert read.daemon_pid == os.getpid()
    assert (read.deadline_s, read.kill_after_s) == (5.0, 4.0)
    assert read.identities() == {}
    assert read.here


def test_a_record_is_completed_at_hello(tmp_path: Path) -> None:
    """Pids with their start times: what the sweep may end."""
    records = Records(str(tmp_path))
    records.write(replace(create(records, A), relay=(11, 1), anchor=(12, 2), process=(13, 3)))
    (read,) = records.read_all()
    assert read.identities() == {
        "relay": Identity(11, 1),
        "anchor": Identity(12, 2),
        "server": Identity(13, 3),
    }


def test_pids_of_another_boot_or_namespace_mean_nothing_here(tmp_path: Path) -> None:
    """They are numbers of strangers by now."""
    record = create(Records(str(tmp_path)), A)
    assert not replace(record, boot_id="another").here
    assert not replace(record, pid_namespace=record.pid_namespace + 1).here


def test_records_are_read_in_the_order_of_their_ids(tmp_path: Path) -> None:
    """A sweep's log is comparable with the last one's."""
    records = Records(str(tmp_path))
    for instance in (B, A):
        create(records, instance)
    assert [record.instance for record in records.read_all()] == [A, B]


def test_a_removed_instance_leaves_no_file(tmp_path: Path) -> None:
    """Neither record nor receipt; removing what is gone is no error."""
    records = Records(str(tmp_path))
    for instance in (A, B):
        create(records, instance)
    records.remove(A)
    records.remove(A)

    assert [record.instance for record in records.read_all()] == [B]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{B}.json", f"{B}.receipt"]


def test_files_are_private(tmp_path: Path) -> None:
    """Names of servers and sessions are nobody else's business."""
    create(Records(str(tmp_path)), A)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o600}


def test_a_relay_writes_its_last_word_through_the_descriptor_it_was_given(tmp_path: Path) -> None:
    """It needs neither the directory nor the rights to it, and a next daemon reads it."""
    records = Records(str(tmp_path))
    _, receipt = records.create(A, ServerName("git"), None, deadline_s=5.0, kill_after_s=4.0)
    try:
        assert not os.get_inheritable(receipt)
        assert records.receipt(A) == b""
        os.write(receipt, b"closed\techild=1\n")
    finally:
        os.close(receipt)

    assert Records(str(tmp_path)).receipt(A) == b"closed\techild=1\n"
    assert Records(str(tmp_path)).receipt(B) == b""


def test_a_receipt_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """A stranger's file is not ours to append to; the spawn fails and says so."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / f"{A}.receipt").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        create(Records(str(tmp_path)), A)
    assert victim.read_text() == "mine"


def test_a_directory_that_was_cleaned_away_is_made_again(tmp_path: Path) -> None:
    """A cleaner of temporary directories may have taken it while the daemon ran."""
    directory = tmp_path / "run" / "instances"
    records = Records(str(directory))
    create(records, A)
    assert [record.instance for record in records.read_all()] == [A]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_that_cannot_be_written_is_an_error_of_the_spawn(tmp_path: Path) -> None:
    """Without a record nothing may be started."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        create(Records(str(tmp_path / "file" / "instances")), A)


def test_completing_a_record_takes_no_room_that_it_did_not_have(tmp_path: Path) -> None:
    """The disk may be full by then: it is written in place, in one call, in the same length."""
    records = Records(str(tmp_path))
    record = create(records, A, "s" * 128)
    before = (tmp_path / f"{A}.json").stat()
    pair = (4_194_304, 10**12)
    records.write(replace(record, relay=pair, anchor=pair, process=pair))
    after = (tmp_path / f"{A}.json").stat()

    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert len(records.read_all()[0].identities()) == 3


def body(**fields: object) -> str:
    """A good record but for `fields`."""
    good = {
        "version": 1,
        "instance": B,
        "server": "git",
        "session": None,
        "boot_id": "x",
        "pid_namespace": 1,
        "daemon_pid": 1,
        "deadline_s": 5.0,
        "kill_after_s": 4.0,
        "relay": None,
        "anchor": None,
        "process": None,
    }
    return json.dumps(good | fields)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\xff",
        body(version=2),
        body(instance="../../etc/passwd"),
        body(instance=""),
        body(instance=5),
        body(relay=[1]),
        body(relay=["x", "y"]),
        body(relay=7),
        body(new_field=1),
    ],
)
def test_what_cannot_be_read_is_not_guessed_at(tmp_path: Path, content: str) -> None:
    """It is left alone, and the others are read."""
    records = Records(str(tmp_path))
    create(records, A)
    (tmp_path / f"{B}.json").write_bytes(content.encode("latin-1"))
    assert [record.instance for record in records.read_all()] == [A]


def test_a_good_record_of_the_same_form_is_read(tmp_path: Path) -> None:
    """So that the test above fails for what it names."""
    (tmp_path / f"{B}.json").write_text(body())
    assert [record.instance for record in Records(str(tmp_path)).read_all()] == [B]
