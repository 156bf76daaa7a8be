"""Stops: of a polite server, of a stubborn one, and of one that cannot be confirmed."""

import os
from collections.abc import Sequence
from time import perf_counter
from typing import Final

import anyio

from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import Owner, open_owner
from scripts.benchmarks.peers import BARE, SDK, Bare, Sdk
from scripts.benchmarks.programs import CAT, DEAF, ECHO
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.surroundings import UnexpectedError
from supervisor.core.launch import StopPolicy
from supervisor.core.report import Outcome

POLITE_MS: Final = 5.0
BEYOND_DEADLINE_MS: Final = 20.0
"""Source: design section 21."""

UNCONFIRMED_DEADLINE_S: Final = 0.3
STDOUT: Final = 1


def measure_polite_stops(counts: Counts) -> list[Row]:
    """Time from the request to the confirmed report, beside the server's own way out."""
    return anyio.run(_polite_stops, counts)


async def _polite_stops(counts: Counts) -> list[Row]:
    rows = []
    async with open_owner() as owner:
        for name, argv in (("cat", CAT), ("a Python server", ECHO)):
            ours, bare, sdk = [], [], []
            for _ in range(counts.warm_up + counts.stops):
                bare.append(_bare_exit_ms(owner, argv))
                ours.append(await _polite_stop_ms(owner, argv))
                sdk.append(await _sdk_close_ms(owner, argv))
            ours, bare, sdk = (samples[counts.warm_up :] for samples in (ours, bare, sdk))
            rows += [
                row(
                    f"polite stop of {name}",
                    ours,
                    peer=Peer(f"{BARE}'s exit", bare),
                    judged="difference",
                    bound=POLITE_MS,
                ),
                row(f"polite stop of {name}", ours, peer=Peer(f"{SDK}'s close", sdk)),
            ]
    return rows


def _bare_exit_ms(owner: Owner, argv: Sequence[str]) -> float:
    process = Bare(argv, heirs=owner.custody.heirs)
    try:
        process.greet()
        began_at = perf_counter()
        process.close_stdin()
        process.wait_end()
        return (perf_counter() - began_at) * 1000
    finally:
        process.release()


async def _polite_stop_ms(owner: Owner, argv: Sequence[str]) -> float:
    return await _stop_ms(owner, argv, StopPolicy(), "confirmed")


async def _stop_ms(
    owner: Owner, argv: Sequence[str], policy: StopPolicy, outcome: Outcome
) -> float:
    held = await owner.spawn(argv, policy)
    await owner.greet(held)
    began_at = perf_counter()
    report = await owner.stop(held)
    taken_ms = (perf_counter() - began_at) * 1000
    if report.outcome != outcome:
        message = f"a stop ended {report.outcome}, missing {', '.join(report.missing) or 'nothing'}"
        raise UnexpectedError(message)
    return taken_ms


async def _sdk_close_ms(owner: Owner, argv: Sequence[str]) -> float:
    async with Sdk(argv, owner.custody.heirs) as client:
        pass
    return client.close_s * 1000


def measure_stubborn_stops(counts: Counts) -> list[Row]:
    """The whole time of a stop that needs SIGKILL, and what lies behind the SIGKILL of it."""
    return anyio.run(_stubborn_stops, counts)


async def _stubborn_stops(counts: Counts) -> list[Row]:
    policy = StopPolicy.from_deadline(counts.deadline_s)
    async with open_owner() as owner:
        bare, ours = [], []
        for _ in range(counts.stubborn):
            bare.append(_bare_kill_ms(owner))
            ours.append(await _stop_ms(owner, DEAF, policy, "confirmed"))
        sdk = [await _sdk_close_ms(owner, DEAF) for _ in range(counts.sdk_stubborn)]
    in_seconds = [taken_ms / 1000 for taken_ms in ours]
    return [
        row(
            f"stubborn stop, deadline {counts.deadline_s:g} s",
            in_seconds,
            unit="s",
            peer=Peer(f"{SDK}'s close", [taken_ms / 1000 for taken_ms in sdk]),
            bound=counts.deadline_s + BEYOND_DEADLINE_MS / 1000,
        ),
        row(
            "stubborn stop, from SIGKILL on",
            [taken_ms - policy.kill_after_s * 1000 for taken_ms in ours],
            peer=Peer(f"{BARE}'s death", bare),
            judged="difference",
        ),
    ]


def _bare_kill_ms(owner: Owner) -> float:
    process = Bare(DEAF, heirs=owner.custody.heirs)
    try:
        process.greet()
        began_at = perf_counter()
        process.kill()
        process.wait_end()
        return (perf_counter() - began_at) * 1000
    finally:
        process.release()


def measure_unconfirmed_stops(counts: Counts) -> list[Row]:
    """How long behind its deadline a stop is answered that cannot be confirmed."""
    return anyio.run(_unconfirmed_stops, counts)


async def _unconfirmed_stops(counts: Counts) -> list[Row]:
    async with open_owner() as owner:
        late = [await _unconfirmed_late_ms(owner) for _ in range(counts.stubborn)]
    return [row("unconfirmed stop, beyond its deadline", late, bound=BEYOND_DEADLINE_MS)]


async def _unconfirmed_late_ms(owner: Owner) -> float:
    """Stop a server whose stdout somebody outside of its family holds open: us."""
    held = await owner.spawn(CAT, StopPolicy.from_deadline(UNCONFIRMED_DEADLINE_S))
    await owner.greet(held)
    if held.family.server is None:
        message = "a server without an identity"
        raise UnexpectedError(message)
    fd = os.open(f"/proc/{held.family.server.pid}/fd/{STDOUT}", os.O_WRONLY)
    try:
        began_at = perf_counter()
        report = await owner.stop(held)
        late_ms = (perf_counter() - began_at - UNCONFIRMED_DEADLINE_S) * 1000
    finally:
        os.close(fd)
    if "stdout_eof" not in report.missing:
        message = f"the end of stdout is not among what is missing: {report.missing}"
        raise UnexpectedError(message)
    await owner.wait_let_go(held)
    return late_ms
