"""The servers that are measured: the smallest programs that behave in one way each.

Each says something as soon as a line is written to it (or by itself), so that a measurement can
wait until it really runs.
"""

import os
import sys
from pathlib import Path
from typing import Final

ENV: Final = {"PATH": os.defpath}
"""The whole environment of measured servers: theirs must not depend on who runs the bench."""

PYTHON: Final = str(Path(sys.executable).resolve())
BARE_PYTHON: Final = (PYTHON, "-I", "-S", "-E", "-c")
"""The interpreter as our own processes use it: no site packages, no environment."""

NOTHING: Final = (*BARE_PYTHON, "pass")
"""An interpreter that starts and ends."""

CAT: Final = ("/bin/cat",)

PING: Final = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
"""One request, which the echoing servers send back: the SDK accepts that as a message."""

_ECHO: Final = """\
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""
ECHO: Final = (*BARE_PYTHON, _ECHO)
"""A server of the standard library's: leaves when its stdin ends."""

_DEAF: Final = """\
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) > 1:
    os.write(os.open(sys.argv[1], os.O_WRONLY), b"r")
else:
    os.write(1, b'{"jsonrpc": "2.0", "method": "notifications/ready"}\\n')
while True:
    signal.pause()
"""
DEAF: Final = (*BARE_PYTHON, _DEAF)
"""Ignores SIGTERM and the end of its stdin. With a named pipe as argument it says there, by one
byte, that it does."""

WITH_GRANDCHILD: Final = ("/bin/sh", "-c", "sleep 600 & exec cat")
"""Echoes; a grandchild of its own holds its stdout open and outlives it."""
