"""A test that leaves something behind fails, and says what; otherwise leaks would go unseen.

The leaking tests run in a pytest of their own, with this folder's conftest as a plugin.
"""

import os
import re
import sys
from pathlib import Path

import pytest

from leftovers import Groups

LEAKING_TESTS = """
import os, threading
import leftovers

leftovers._THREAD_ENDS_WITHIN_S = 0.0
kept = os.open(os.devnull, os.O_RDONLY)
never = threading.Event()
orphan = "setsid /bin/sleep 600 </dev/null >/dev/null 2>&1 & echo $!"

def test_descriptor():
    os.open(os.devnull, os.O_RDONLY)

def test_foreign_descriptor():
    os.close(kept)

def test_thread():
    threading.Thread(target=never.wait, daemon=True, name="waits for ever").start()

def test_child():
    os.posix_spawn("/bin/sleep", ["sleep", "600"], {})

def test_zombie():
    os.waitid(os.P_PID, os.posix_spawn("/bin/true", ["true"], {}), os.WEXITED | os.WNOWAIT)

def test_group(groups):
    groups.start(["/bin/sleep", "600"])

def test_orphan_in_group(groups):
    process = groups.start(["/bin/sh", "-c", orphan.replace("setsid ", "")])
    assert process.wait() == 0

def test_orphan_in_truth(groups, truth):
    assert groups.start(truth.join_argv(["/bin/sh", "-c", orphan])).wait() == 0

def test_orphan_adopted(subreaper, groups):
    assert groups.start(["/bin/sh", "-c", orphan]).wait() == 0

def test_clean(subreaper, groups, tmp_runtime):
    assert groups.start(["/bin/true"]).wait() == 0
    with (tmp_runtime / "file").open("w"):
        pass
"""

COMPLAINTS = {
    "test_descriptor": r"left open: descriptor \d+, /dev/null",
    "test_foreign_descriptor": r"closed, but not the test's own: descriptor \d+, /dev/null",
    "test_thread": r"left running: thread waits for ever",
    "test_child": r"left behind: child \d+ \(sleep\), state S",
    "test_zombie": r"left behind: child \d+ \(true\), state Z",
    "test_group": r"the test left processes running: \d+ \(\S+, state \w\)",
    "test_orphan_in_group": r"the test left processes running: \d+ \(\S+, state \w\)",
    "test_orphan_in_truth": r"the test left processes running: \d+ \(\S+, state \w\)",
    "test_orphan_adopted": r"the test left processes running: \d+ \(\S+, state \w\)",
}


@pytest.mark.usefixtures("subreaper")
def test_every_kind_of_leftover_fails_its_test_and_is_ended(groups: Groups, tmp_path: Path) -> None:
    """One complaint each, and only where it belongs; the outer fixtures see that all is ended."""
    file = tmp_path / "test_leaking.py"
    file.write_text(LEAKING_TESTS, "utf-8")
    folder = Path(__file__).parent
    options = ["-q", "-p", "conftest", "-p", "no:cacheprovider", "-c", os.devnull]
    argv = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", str(file)]
    run = groups.start(argv, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(folder)})

    output = run.communicate(timeout=60)[0].decode()

    sections = dict(re.findall(r"ERROR at teardown of (\w+) _+\n(.*?)\n[_=]{5}", output, re.DOTALL))
    assert sections.keys() == COMPLAINTS.keys(), output
    for test, complaint in COMPLAINTS.items():
        assert re.search(complaint, sections[test]), output
    assert f"{len(COMPLAINTS) + 1} passed" in output
