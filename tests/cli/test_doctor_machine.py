"""Limits of the machine against what the configured instances need."""

import resource
from pathlib import Path

import pytest

from supervisor.cli.doctor import machine
from supervisor.cli.doctor.finding import Finding


def found_by(check: str, max_instances: int) -> list[Finding]:
    """The findings of one check."""
    return [f for f in machine.check_machine(max_instances) if f.check == check]


@pytest.fixture
def hard_limit() -> int:
    """The hard limit of open files of this process, finite."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("there is no hard limit of open files")
    return hard


def test_too_few_descriptors_say_for_how_many_instances_they_are_enough(hard_limit: int) -> None:
    """Seven for each instance, and some for the daemon itself; it raises the soft limit."""
    enough = (hard_limit - machine.DESCRIPTORS_BESIDE) // machine.DESCRIPTORS_PER_INSTANCE
    (right,) = found_by("descriptors", enough)
    (wrong,) = found_by("descriptors", enough + 1)
    assert right.level == "ok"
    assert wrong.level == "error"
    assert f"is enough for {enough} of {enough + 1} instances" in wrong.message
    assert wrong.hint is not None


@pytest.mark.parametrize(
    ("quota", "uid", "level"),
    [(16384, 1000, "ok"), (16384, 0, "ok"), (0, 1000, "ok"), (5199, 1000, "warning")],
)
def test_the_pipe_quota_is_compared_with_what_instances_need(
    quota: int, uid: int, level: str
) -> None:
    """52 pages each, for a user without privileges; 0 is no quota. Beyond it pipes shrink."""
    finding = machine.judge_pipes(quota, uid, 100)
    assert finding.level == level
    if level == "warning":
        assert "is enough for 99 of 100 instances" in finding.message
        assert finding.hint is not None
        assert "pipe-user-pages-soft=5200" in finding.hint


def test_this_kernel_has_what_is_needed() -> None:
    """Every Linux that runs these tests does; what is missing would be named."""
    assert [f.level for f in found_by("kernel", 1)] == ["ok", "ok"]
    assert Path("/proc/sys/fs/pipe-user-pages-soft").exists()
    assert len(found_by("pipes", 1)) == 1
