"""The helpers stay small: what they import is paid for by every instance."""

import subprocess  # noqa: TID251 - a fresh interpreter shows what an import brings in
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import supervisor
import supervisor.relay

PARENT: Final = Path(supervisor.__file__).resolve().parent.parent

DEAR: Final = [
    "signal",
    "socket",
    "json",
    "ctypes",
    "enum",
    "typing",
    "re",
    "dataclasses",
    "pathlib",
    "collections",
    "functools",
    "contextlib",
    "subprocess",
    "struct",
    "threading",
    "logging",
    "traceback",
    "site",
]
"""Each costs more than the whole rest of a helper, or brings in one that does."""

MOST_MODULES: Final = 60
"""23 that a bare interpreter of CPython 3.11 has loaded, 25 that helpers add, and some room."""


@cache
def modules_after(import_line: str) -> frozenset[str]:
    """What a helper's interpreter has loaded after an import, started as the daemon starts it."""
    code = f"import sys; sys.path[:0] = [{str(PARENT)!r}]; {import_line}; print(*sys.modules)"
    argv = [str(Path(sys.executable).resolve()), "-I", "-S", "-E", "-c", code]
    done = subprocess.run(argv, capture_output=True, check=True, env={})  # noqa: S603 - our own code
    assert done.stderr == b""
    return frozenset(done.stdout.decode().split())


FORK_SERVER: Final = "import supervisor.relay.fork_server, fcntl, resource"
"""With the two that it loads for all its relays."""


@pytest.mark.parametrize("module", DEAR)
def test_the_fork_server_imports_nothing_dear(module: str) -> None:
    """A forked relay and its anchor shall cost 1.1 MiB and be ready in 3 ms (design section 4)."""
    assert module not in modules_after(FORK_SERVER)


def test_the_helpers_import_the_standard_library_and_their_own_folder_only() -> None:
    """Their interpreter reads no site packages: anything else would not even be found."""
    ours = {name for name in modules_after(FORK_SERVER) if name.startswith("supervisor.")}
    assert ours <= {
        "supervisor.core",
        "supervisor.core.stages",
        "supervisor.relay",
        *(f"supervisor.relay.{path.stem}" for path in (PARENT / "supervisor/relay").glob("*.py")),
    }
    others = {name.partition(".")[0] for name in modules_after(FORK_SERVER)} - {"supervisor"}
    assert others <= sys.stdlib_module_names | {"__main__"}


def test_the_helpers_import_few_modules() -> None:
    """So that the next import is thought about before it is added."""
    assert len(modules_after(FORK_SERVER)) <= MOST_MODULES


def test_what_a_spawn_imports_later_is_loaded_already() -> None:
    """Owner and anchor are forked, not started: nothing may be loaded after the fork."""
    everything = ", ".join(
        f"supervisor.relay.{name}"
        for name in ("owner", "anchor", "execute", "kernel", "launch_order", "mailbox", "message")
    )
    assert modules_after(f"import {everything}, fcntl, resource") <= modules_after(FORK_SERVER)


@pytest.mark.parametrize("package", [supervisor, supervisor.relay])
def test_the_package_files_that_helpers_read_are_empty(package: object) -> None:
    """Each helper program reads and runs them at its start."""
    path = getattr(package, "__file__", None)
    assert path is not None
    assert Path(path).read_bytes() == b""
