"""A polite MCP server until its tool is called: then it closes stdout and lives on.

It still reads stdin, and after the end of that it stays until SIGTERM.
"""

import os
import select
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "servers"))

from mcp_stdio import serve

LIFETIME_S = 600


def hush() -> None:
    """Close the protocol pipe, and be there."""
    os.close(1)
    while os.read(0, 65536):
        pass
    select.select([], [], [], LIFETIME_S)
    os._exit(0)


if __name__ == "__main__":
    serve(hush)
