"""Outcomes in sentences: what a stop did, what it can prove, and the way out."""

from collections.abc import Sequence

from supervisor.cli.ending import exit_text, plain
from supervisor.client.bodies import Instance, Report, SentSignal, Survivor


def stop_lines(reports: Sequence[Report]) -> list[str]:
    """One paragraph for each report of a stop or restart."""
    servers = [report["server"] for report in reports]
    lines: list[str] = []
    for report in reports:
        name = report["server"]
        if servers.count(name) > 1:
            name += f" (instance {report['instance']})"
        lines += report_lines(plain(name), report)
    return lines


def report_lines(name: str, report: Report) -> list[str]:
    """What became of one instance, with what ended along with it or what is missing."""
    elapsed = f"{report['elapsed_s']:.3f} s"
    if report["outcome"] == "confirmed":
        first = f"{name}: stopped, cleanup confirmed in {elapsed} ({exit_text(report['exit'])})"
        return [first, *_leftovers(report), *_shortened(report)]
    missing = ", ".join(report["missing"]) or "nothing that could be named"
    instance = report["instance"]
    return [
        f"{name}: stopped, but cleanup is UNCONFIRMED after {elapsed}; missing: {missing}",
        *(f"  {refused_text(signal)}" for signal in report["failed_signals"]),
        *(f"  still alive: {survivor_text(process)}" for process in report["survivors"]),
        *(f"  perhaps its: {survivor_text(process)}" for process in report["unattributed"]),
        *_leftovers(report),
        *_shortened(report),
        f"  the daemon keeps instance {instance} in quarantine and goes on trying",
        f"  to give it up, once you have ended what is left: `mcpctl release {instance}`",
    ]


def released_lines(report: Report) -> list[str]:
    """What giving an instance up means."""
    name = plain(report["server"])
    alive = [f"  given up, was still alive: {survivor_text(p)}" for p in report["survivors"]]
    first = f"{name}: instance {report['instance']} is given up; {name} can be started again."
    return [first, *alive]


def started_line(instance: Instance, *, started: bool) -> str:
    """Which instance runs now."""
    what = "started" if started else "already there"
    session = "" if instance["session"] is None else f", session {plain(instance['session'])}"
    pid = "" if instance["pid"] is None else f", pid {instance['pid']}"
    return f"{plain(instance['server'])}: {what}, instance {instance['id']}{session}{pid}"


def refused_text(signal: SentSignal) -> str:
    """A signal that the kernel refused, and why."""
    import errno  # noqa: PLC0415 - only a failed stop needs the words of the kernel
    import os  # noqa: PLC0415 - likewise

    number = signal["errno"]
    why = (
        "" if number is None else f": {errno.errorcode.get(number, number)}, {os.strerror(number)}"
    )
    return f"{signal['signal']} to {signal['target']} {signal['pid']} was refused{why}"


def survivor_text(process: Survivor) -> str:
    """A living process, so that it can be found and ended."""
    return (
        f"pid {process['pid']} {plain(process['command'])} (known by its {plain(process['why'])})"
    )


def _leftovers(report: Report) -> list[str]:
    return [
        f"  ended with it: pid {process['pid']} {plain(process['command'])}"
        for process in report["leftovers_ended"]
    ]


def _shortened(report: Report) -> list[str]:
    by = report["deadline_shortened_by"]
    if by is None:
        return []
    return [f"  its deadline was shortened to {report['deadline_s']:.3f} s by {plain(by)}"]
