"""Calls of the MCP SDK's client, to two servers: directly, and through `mcpctl connect`."""

from collections.abc import Sequence
from time import perf_counter
from typing import Final

import anyio
from mcp import Client, StdioServerParameters

from scripts.benchmarks.callees import SDK_SERVER, STDLIB_SERVER
from scripts.benchmarks.callers import KIB, MCPCTL
from scripts.benchmarks.calling import ROUNDS, WAYS
from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import Daemon, open_daemon, record
from scripts.benchmarks.programs import ENV
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.surroundings import UnexpectedError

SERVERS: Final = {
    "a server of the standard library": (STDLIB_SERVER, 1.5),
    "a server of the SDK": (SDK_SERVER, 1.15),
}
"""The command, and how many times as long as directly a call may take (design section 21)."""

PATIENCE_S: Final = 120.0


def measure_conversations(counts: Counts) -> list[Row]:
    """How much longer an SDK client's calls of 1 KB take."""
    records = {
        f"server-{number}": record(argv) for number, (argv, _) in enumerate(SERVERS.values())
    }
    rows: list[Row] = []
    with open_daemon(records) as daemon:
        for name, (kind, (argv, bound)) in zip(records, SERVERS.items(), strict=True):
            for way, words in WAYS.items():
                direct, ours = anyio.run(_by_turns, counts, argv, daemon, (name, *words))
                rows.append(
                    row(
                        f"SDK client's call to {kind} through {way}",
                        ours,
                        peer=Peer("SDK client, direct", direct),
                        judged="ratio",
                        bound=bound,
                    )
                )
    return rows


async def _by_turns(
    counts: Counts, argv: Sequence[str], daemon: Daemon, words: Sequence[str]
) -> tuple[list[float], list[float]]:
    direct = StdioServerParameters(command=argv[0], args=list(argv[1:]), env=ENV)
    through = StdioServerParameters(
        command=MCPCTL, args=["connect", *words], env=dict(daemon.environ)
    )
    bare, ours = list[float](), list[float]()
    with anyio.fail_after(PATIENCE_S):
        async with Client(direct, mode="legacy") as first, Client(through, mode="legacy") as second:
            for _ in range(ROUNDS):
                for client, taken in ((first, bare), (second, ours)):
                    await _call_ms(client)
                    for _ in range(-(-counts.sdk_calls // ROUNDS)):
                        taken.append(await _call_ms(client))
    return bare, ours


async def _call_ms(client: Client) -> float:
    began_at = perf_counter()
    result = await client.call_tool("echo", {"text": "x" * KIB})
    taken_ms = (perf_counter() - began_at) * 1000
    if result.is_error:
        message = "an SDK client's call failed"
        raise UnexpectedError(message)
    return taken_ms
