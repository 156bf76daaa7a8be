"""An MCP server on stdio whose tools, and whose ways, are those of bug reports.

`wayward.py [--banner] [--slow SECONDS] [--refuses] [--leaves] [--crash-after SECONDS]
[--state DIR]`. What it saw goes to DIR/events, one line a happening: `start PID`, `initialize`,
`initialized`, `request ID TAG`, `cancelled ID`, `eof`. Its tools stand in `wayward_tools.py`.
Standard library only.
"""

import argparse
import os
import threading
import time
from pathlib import Path
from typing import Final

from wayward_server import Server
from wayward_tools import add_tools

NPM_EVERY_S: Final = 0.05

BANNER: Final = (
    "\U0001f5a5\ufe0f  transport is stdio, have fun",
    "",
    "   ",
    "\x1b[32mready\x1b[0m in 12 ms, token hush-hush-0123",
    '{"level":30,"msg":"listening"}',
    "42",
    "null",
    '"just a string"',
    "[INFO] {not json",
    '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"early"}}',
)
"""What people print: nine lines, of which two are blank, seven stray, and one a real message."""


def main() -> None:
    """Begin as the options say, then serve."""
    parser = argparse.ArgumentParser(description="An MCP server with the manners of bug reports.")
    parser.add_argument("--state", type=Path, help="directory whose file `events` is appended to")
    parser.add_argument("--banner", action="store_true", help="print on stdout as if to people")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds before stdin is read")
    parser.add_argument("--refuses", action="store_true", help="refuse the first handshake")
    parser.add_argument("--leaves", action="store_true", help="exit 0 after the first listing")
    parser.add_argument("--crash-after", type=float, help="seconds until exit code 1")
    options = parser.parse_args()
    server = Server(options.state, banner=options.banner, leaves=options.leaves)
    server.refuses = options.refuses
    server.saw(f"start {os.getpid()}")
    end_at = time.monotonic() + options.slow
    while time.monotonic() < end_at:
        os.write(2, b"npm warn deprecated something@1.2.3\n")
        time.sleep(NPM_EVERY_S)  # noqa: TID251 - it is the time that passes in an installer
    if options.crash_after is not None:
        threading.Timer(options.crash_after, os._exit, (1,)).start()
    if options.banner:
        server.raw("".join(f"{line}\n" for line in BANNER).encode())
    add_tools(server)
    server.run()
    os._exit(0)


if __name__ == "__main__":
    main()
