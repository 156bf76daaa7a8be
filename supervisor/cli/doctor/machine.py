"""Whether this machine gives enough for the configured number of instances.

Source: pipe(7), pipe-user-pages-soft; getrlimit(2); pidfd_open(2), Linux 5.3; proc(5), children.
"""

import os
import resource
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from supervisor.cli.doctor.finding import Finding

PAGES_PER_INSTANCE: Final = 3 * 16 + 4
"""Three full pipes (stdin, stdout, stderr) and four of one page (lineage, down, up, wake)."""

DESCRIPTORS_PER_INSTANCE: Final = 7
"""What the daemon holds open for each."""

DESCRIPTORS_BESIDE: Final = 64
"""Sockets, log and database, and some clients."""


def check_machine(max_instances: int) -> Iterator[Finding]:
    """All that concerns the machine and the installation."""
    yield _check_pipes(max_instances)
    yield _check_descriptors(max_instances)
    yield from _check_kernel()
    yield from _check_installation()


def _check_pipes(max_instances: int) -> Finding:
    file = Path("/proc/sys/fs/pipe-user-pages-soft")
    try:
        quota = int(file.read_text())
    except (OSError, ValueError):
        message = f"the pipe quota {file} cannot be read"
        return Finding(level="warning", check="pipes", server=None, message=message)
    return judge_pipes(quota, os.geteuid(), max_instances)


def judge_pipes(quota: int, uid: int, max_instances: int) -> Finding:
    """Whether `quota` pages (0: no limit) are enough for the pipes of so many instances."""
    needed = max_instances * PAGES_PER_INSTANCE
    if uid == 0:
        message = "root's pipes have no quota"
    elif quota and quota < needed:
        message = (
            f"the pipe quota of {quota} pages is enough for {quota // PAGES_PER_INSTANCE} of "
            f"{max_instances} instances; the pipes of the others would hold 8 KiB"
        )
        hint = (
            f"`sysctl fs.pipe-user-pages-soft={needed}` as root, or a lower "
            "supervisor.maxInstances."
        )
        return Finding(level="warning", check="pipes", server=None, message=message, hint=hint)
    else:
        has = f"of {quota} pages" if quota else "is off, which"
        message = f"the pipe quota {has} is enough for {max_instances} instances"
    return Finding(level="ok", check="pipes", server=None, message=message)


def _check_descriptors(max_instances: int) -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_instances * DESCRIPTORS_PER_INSTANCE + DESCRIPTORS_BESIDE
    if hard != resource.RLIM_INFINITY and hard < needed:
        enough = max(0, hard - DESCRIPTORS_BESIDE) // DESCRIPTORS_PER_INSTANCE
        message = (
            f"the hard limit of {hard} open files is enough for {enough} of {max_instances} "
            "instances"
        )
        hint = (
            f"Raise it to {needed} (LimitNOFILE= in a unit, `ulimit -Hn` in a shell), or lower "
            "supervisor.maxInstances."
        )
        return Finding(level="error", check="descriptors", server=None, message=message, hint=hint)
    has = "no hard limit of open files" if hard == resource.RLIM_INFINITY else f"{hard} open files"
    message = f"{has}, enough for {max_instances} instances"
    return Finding(level="ok", check="descriptors", server=None, message=message)


def _check_kernel() -> Iterator[Finding]:
    release = os.uname().release
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        message = (
            f"this kernel ({release}) has no pidfd_open, so no exit can be watched for certain"
        )
        hint = "Linux 5.3 or later is needed; in a container, its seccomp profile must allow it."
        yield Finding(level="error", check="kernel", server=None, message=message, hint=hint)
    else:
        message = f"Linux {release} has pidfd_open"
        yield Finding(level="ok", check="kernel", server=None, message=message)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if not children.exists():
        message = f"{children.parent.parent}/*/children is missing, so orphans cannot be listed"
        hint = "The kernel needs CONFIG_PROC_CHILDREN, and /proc must be mounted."
        yield Finding(level="error", check="kernel", server=None, message=message, hint=hint)
    else:
        message = "/proc lists the children of a process"
        yield Finding(level="ok", check="kernel", server=None, message=message)


def _check_installation() -> Iterator[Finding]:
    try:
        version = metadata.version("supervisor")
    except metadata.PackageNotFoundError:
        message = "no other distribution uses the package name supervisor"
        yield Finding(level="ok", check="installation", server=None, message=message)
        return
    message = (
        f"the unrelated distribution supervisor {version} is installed in this environment and "
        "uses the same package name"
    )
    hint = "`pip uninstall supervisor`, or give mcp-supervisord an environment of its own."
    yield Finding(level="error", check="installation", server=None, message=message, hint=hint)
