"""Runs `mcpctl` as a person or a script does."""

import os
import subprocess  # noqa: TID251 - the program is run as a user runs it
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

MCPCTL: Final = (sys.executable, "-m", "supervisor.cli.entry")
WITHIN_S: Final = 20.0


class Ended(NamedTuple):
    """How a command ended: exit code and the two texts."""

    code: int
    out: str
    err: str


def mcpctl(
    runtime_dir: Path,
    *words: str,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Ended:
    """Run one command against the daemon of `runtime_dir`; other places lie in it too."""
    places = {
        "MCP_SUPERVISOR_RUNTIME_DIR": str(runtime_dir),
        "MCP_SUPERVISOR_STATE_DIR": str(runtime_dir / "state"),
        "MCP_SUPERVISOR_CONFIG": str(runtime_dir / "config.json"),
    }
    done = subprocess.run(  # noqa: S603 - the command is the test's own
        [*MCPCTL, *words],
        env={**os.environ, **places, **(environ or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
