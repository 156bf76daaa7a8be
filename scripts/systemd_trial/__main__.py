"""The command line of `scripts/systemd-trial`."""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import click

from scripts.systemd_trial.allowed import NotAllowedError, TrialError, find_cgroup
from scripts.systemd_trial.machine import Machine
from scripts.systemd_trial.steps import SERVERS, STEPS, Finding

FAILED: Final = 1
WITHIN_S: Final = 55
"""For the whole trial; it takes 15 s."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Try the system unit under a real systemd, PID 1 of namespaces of its own.

    Three servers (one polite, one deaf to EOF and SIGTERM, one with a process that escapes) live
    through a start, a reload, a stop, and a kill -9 of the daemon. Needs root.

    Exits with 1 when something is not as it should be, with 0 and the word "skipped" where this
    machine does not allow the trial.
    """
    try:
        cgroup = find_cgroup()
    except NotAllowedError as reason:
        click.echo(f"skipped: {reason}")
        return
    signal.signal(signal.SIGALRM, _too_late)
    signal.signal(signal.SIGTERM, _interrupted)
    signal.alarm(WITHIN_S)
    findings: list[Finding] = []
    failure = _try_all(cgroup, findings)
    signal.alarm(0)
    _show(findings)
    if failure is not None:
        click.echo(failure, err=True)
    wrong = [finding for finding in findings if not finding.right]
    sys.exit(FAILED if failure or wrong else 0)


def _try_all(cgroup: Path, findings: list[Finding]) -> str | None:
    """Take all steps.

    Returns:
        Why the trial did not come to its end, or None.
    """
    try:
        with Machine(cgroup, SERVERS) as machine:
            try:
                for step in STEPS:
                    findings.extend(step(machine))
            except TrialError as error:
                return f"The trial broke off: {error}.\n{machine.last_words()}"
    except TrialError as error:
        return f"The trial broke off: {error}."
    return None


def _show(findings: list[Finding]) -> None:
    width = max((len(finding.tried) for finding in findings), default=0)
    for finding in findings:
        verdict = "ok" if finding.right else "FAILED"
        click.echo(f"{verdict:6}  {finding.tried:{width}}  {finding.seen}")


def _too_late(_number: int, _frame: FrameType | None) -> None:
    message = f"it was not done after {WITHIN_S} s"
    raise TrialError(message)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    message = "it was interrupted"
    raise TrialError(message)


if __name__ == "__main__":
    main(prog_name="scripts/systemd-trial")
