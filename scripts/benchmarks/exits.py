"""A server that dies by itself: how soon that is noticed, whoever still holds its pipes."""

import signal
from contextlib import ExitStack
from time import perf_counter
from typing import Final

import anyio
import psutil

from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import Owner, open_owner
from scripts.benchmarks.peers import BARE, SDK, Bare, Sdk
from scripts.benchmarks.programs import CAT, WITH_GRANDCHILD
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.surroundings import UnexpectedError, open_pidfd, wait_readable
from supervisor.linux.signals import signal_pidfd

NOTICED_MS: Final = 2.0
"""Source: design section 21."""

PATIENCE_S: Final = 10.0


def measure_exits(counts: Counts) -> list[Row]:
    """Time from a server's SIGKILL until its owner knows, while a grandchild holds its stdout."""
    return anyio.run(_exits, counts)


async def _exits(counts: Counts) -> list[Row]:
    ours, bare = [], []
    async with open_owner() as owner:
        for _ in range(counts.warm_up + counts.exits):
            bare.append(_bare_exit_ms(owner))
            ours.append(await _noticed_ms(owner))
        sdk = [await _sdk_unnoticed_s(owner, counts.patience_s) for _ in range(counts.sdk_exits)]
    ours, bare = ours[counts.warm_up :], bare[counts.warm_up :]
    noticed = [span_s for span_s in sdk if span_s < counts.patience_s]
    return [
        row(
            "exit of a server noticed",
            ours,
            peer=Peer(f"{BARE}'s pidfd", bare),
            bound=NOTICED_MS,
        ),
        row(
            "exit of a server noticed",
            ours,
            peer=Peer(SDK, [span_s * 1000 for span_s in sdk], never=not noticed),
            bound=NOTICED_MS,
        ),
    ]


def _bare_exit_ms(owner: Owner) -> float:
    process = Bare(CAT, heirs=owner.custody.heirs)
    try:
        process.greet()
        began_at = perf_counter()
        process.kill()
        process.wait_end()
        return (perf_counter() - began_at) * 1000
    finally:
        process.release()


async def _noticed_ms(owner: Owner) -> float:
    """Until the machine of the instance has taken the fact and begun to clean up."""
    held = await owner.spawn(WITH_GRANDCHILD)
    await owner.greet(held)
    if held.family.server is None:
        message = "a server without an identity"
        raise UnexpectedError(message)
    with open_pidfd(held.family.server.pid) as pidfd:
        began_at = perf_counter()
        signal_pidfd(pidfd, signal.SIGKILL)
        with anyio.fail_after(PATIENCE_S):
            await held.instance.wait_stopping()
        taken_ms = (perf_counter() - began_at) * 1000
    if held.instance.state.evidence.state("server_exited") != "confirmed":
        message = "a stop began that was not for the server's exit"
        raise UnexpectedError(message)
    await held.instance.wait_settled()
    return taken_ms


async def _sdk_unnoticed_s(owner: Owner, patience_s: float) -> float:
    """Seconds until the SDK's client sees the end of the connection, or until we give up."""
    async with Sdk(WITH_GRANDCHILD, owner.custody.heirs) as client:
        with ExitStack() as pidfds:
            grandchildren = [
                pidfds.enter_context(open_pidfd(child.pid))
                for child in psutil.Process(client.pid).children()
            ]
            with open_pidfd(client.pid) as pidfd:
                began_at = perf_counter()
                signal_pidfd(pidfd, signal.SIGKILL)
                with anyio.move_on_after(patience_s):
                    await client.receive()
                taken_s = perf_counter() - began_at
            # the SDK does not end what outlives a server that is dead already
            for grandchild in grandchildren:
                signal_pidfd(grandchild, signal.SIGKILL)
                wait_readable(grandchild, PATIENCE_S)
    return taken_s
