"""The servers that are called: what they do to answer costs next to nothing, or is the point.

All but the two that speak MCP take requests from `callers.request` only, in order, and answer by
replacing bytes, so that what is measured is the way to them.
"""

import sys
from pathlib import Path
from typing import Final

from scripts.benchmarks.programs import BARE_PYTHON

ASKED: Final = b'"method":"tools/call","params":'
ANSWERED: Final = b'"result":'

_ANSWERING: Final = f"""\
import os
kept = []
while data := os.read(0, 262144):
    lines, newline, rest = data.rpartition(b"\\n")
    if newline:
        kept += [lines, newline]
        os.write(1, b"".join(kept).replace({ASKED!r}, {ANSWERED!r}))
        kept = [rest] if rest else []
    else:
        kept.append(data)
"""
ANSWERING: Final = (*BARE_PYTHON, _ANSWERING)
"""Answers each request with what it came with: as many bytes back, or nearly."""

_TALKING: Final = """\
import os, sys
strays, size = map(int, sys.argv[1:])
stray = b"2026-01-01T00:00:00Z INFO still working on it\\n" * strays
answer = b'{"jsonrpc":"2.0","id":%b,"result":{"pad":"' + b"x" * size + b'"}}\\n'
first = b'{"jsonrpc":"2.0","id":'
while line := os.read(0, 65536):
    text = stray + answer.replace(b"%b", line[len(first):line.index(b",", len(first))])
    while text:
        text = text[os.write(1, text):]
"""


def talking(*, strays: int, answer_bytes: int) -> tuple[str, ...]:
    """A server that says so many stray lines before an answer with a padding of such a size."""
    return (*BARE_PYTHON, _TALKING, str(strays), str(answer_bytes))


_SILENT: Final = """\
import os, signal
os.read(0, 65536)
os.write(1, b'{"jsonrpc":"2.0","method":"notifications/pid","params":%d}\\n' % os.getpid())
while True:
    signal.pause()
"""
SILENT: Final = (*BARE_PYTHON, _SILENT)
"""Says by a notification that it has read a request, and who it is; never answers."""

STDLIB_SERVER: Final = (
    sys.executable,
    "-I",
    "-S",
    str(Path(__file__).parents[1] / "demo_server.py"),
)
"""A whole MCP server of the standard library's, with a tool `echo`."""

_SDK_SERVER: Final = """\
import logging
from mcp.server.mcpserver import MCPServer
logging.disable()
server = MCPServer("bench")
@server.tool()
def echo(text: str) -> str:
    "Echo."
    return text
server.run("stdio")
"""
SDK_SERVER: Final = (sys.executable, "-I", "-c", _SDK_SERVER)
"""The same tool as a server of the MCP SDK's."""
