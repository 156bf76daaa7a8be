"""Five mistakes, five sentences: execve(2) uses one errno for several of them."""

from errno import EACCES, EAGAIN, EISDIR, ENOENT, ENOEXEC, ENOTDIR, EPERM, ETXTBSY
from typing import get_args

import pytest

from supervisor.core.errors import LaunchStep
from supervisor.core.launch_failure import WILL_NOT_MEND, launch_failure

ENV = {"PATH": "/usr/bin:/opt/bin", "TOKEN": "hunter2-hunter2"}

FIVE: list[tuple[LaunchStep, int, str, str]] = [
    ("lookup", ENOENT, "uvx", "command 'uvx' not found; the PATH that was searched is"),
    ("exec", EACCES, "/srv/tool.py", "'/srv/tool.py' is not executable for the server's user"),
    ("exec", ENOENT, "/srv/tool.py", "'/srv/tool.py' exists, but the interpreter"),
    ("chdir", ENOENT, "/srv/gone", "its working directory '/srv/gone' does not exist"),
    ("exec", EISDIR, "/srv", "'/srv' is a directory, not a program"),
]


def sentence(step: LaunchStep, errno: int, path: str) -> str:
    """What a person reads."""
    return str(launch_failure("git", step, errno, path, ENV))


@pytest.mark.parametrize(("step", "errno", "path", "part"), FIVE)
def test_each_mistake_has_its_own_sentence(
    step: LaunchStep, errno: int, path: str, part: str
) -> None:
    """It names the server, what is wrong with which path, and what to do about it."""
    text = sentence(step, errno, path)
    assert text.startswith(f"Server 'git' cannot be started: {part}")
    assert text.endswith(".")
    assert "\n" not in text


def test_the_five_sentences_differ() -> None:
    """Two mistakes that read alike cost an afternoon."""
    assert len({sentence(step, errno, "/srv/x") for step, errno, _, _ in FIVE}) == len(FIVE)


def test_a_command_that_is_not_found_names_the_path_that_was_searched() -> None:
    """Under systemd PATH is not the shell's: npx and uvx are the classic failure."""
    text = sentence("lookup", ENOENT, "uvx")
    assert "'/usr/bin:/opt/bin'" in text
    assert "supervisor.path" in text
    assert "it has no PATH" in str(launch_failure("git", "lookup", ENOENT, "uvx", {}))


def test_a_path_that_is_not_found_was_not_searched_for() -> None:
    """A command with a slash is no matter of PATH."""
    text = sentence("lookup", ENOENT, "./serve")
    assert "there is no such file" in text
    assert "PATH" not in text


@pytest.mark.parametrize(
    ("errno", "part"),
    [
        (ENOTDIR, "is not a directory"),
        (EACCES, "may not be entered by the server's user"),
        (ETXTBSY, "cannot be entered (ETXTBSY)"),
    ],
)
def test_a_bad_working_directory_says_what_is_bad_about_it(errno: int, part: str) -> None:
    """And names the field of the record."""
    text = sentence("chdir", errno, "/srv/data")
    assert part in text
    assert "`cwd`" in text


@pytest.mark.parametrize(
    ("step", "errno", "path", "part"),
    [
        ("exec", ENOEXEC, "/srv/tool", "a script needs a #! line"),
        ("exec", ETXTBSY, "/srv/tool", "running '/srv/tool' failed (ETXTBSY)"),
        ("user", EPERM, "1000:1000", "only root can start other users' servers"),
        ("user", EAGAIN, "1000:1000", "switching to uid:gid 1000:1000 failed; EAGAIN"),
        ("limits", EPERM, "", "its resource limits cannot be set (EPERM)"),
        ("relay", EAGAIN, "", "out of processes, descriptors or memory"),
        ("relay", 0, "it ended before its server ran", "(it ended before its server ran)"),
        ("exec", 9999, "/srv/tool", "(errno 9999)"),
    ],
)
def test_other_failures_name_the_kernels_reason(
    step: LaunchStep, errno: int, path: str, part: str
) -> None:
    """A reason that has no sentence of its own is still told."""
    assert part in sentence(step, errno, path)


def test_callers_read_fields_and_no_secret_is_in_the_text() -> None:
    """Only PATH of the environment is ever shown."""
    error = launch_failure("git", "lookup", ENOENT, "uvx", ENV)
    fields = (error.code, error.server, error.step, error.errno, error.path)
    assert fields == ("launch_failed", "git", "lookup", ENOENT, "uvx")
    assert "hunter2" not in str(error)


def test_what_cannot_mend_itself_is_named_among_the_steps() -> None:
    """No backoff helps a command that does not exist; a busy machine recovers."""
    assert set(get_args(LaunchStep)) >= WILL_NOT_MEND
    assert "lookup" in WILL_NOT_MEND
    assert "relay" not in WILL_NOT_MEND
