"""Sweeps a directory of records as the next start of the daemon does; prints JSON reports."""

import json
import sys

import anyio

from supervisor.process.records import Records
from supervisor.process.sweep import sweep


async def main() -> None:
    """Sweep once."""
    swept = await sweep(Records(sys.argv[1]))
    print(json.dumps([report.as_json() for report in swept]))


anyio.run(main)
