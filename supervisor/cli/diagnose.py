"""The command `doctor`."""

from typing import TYPE_CHECKING

import click

from supervisor.cli.ending import plain
from supervisor.cli.options import Given, examples, take_places
from supervisor.core import exits

if TYPE_CHECKING:  # the checks load the configuration, and with it pydantic
    from supervisor.cli.doctor.finding import Finding


@click.command(
    short_help="Find out why something does not start or work.",
    help="""Look for whatever keeps servers from starting, or the daemon from working.

    Reads the configuration and the machine; no daemon is needed, nothing is started or changed.
    Where a daemon runs, its environment is the one that commands are looked up in. Exit code 0 if
    there is no error, 1 if there is one, 100 if the configuration cannot be read.
    """,
    epilog=examples("mcpctl doctor", "mcpctl doctor git --json"),
)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON document.")
@take_places(hidden=True)
@click.pass_obj
def doctor(given: Given, name: str | None, *, as_json: bool) -> int:
    """Run all checks."""
    from supervisor.cli.doctor.examine import examine  # noqa: PLC0415 - pydantic, for this one only
    from supervisor.cli.doctor.finding import is_ok  # noqa: PLC0415 - likewise

    given.as_json = as_json
    findings, readable = examine(given.places(), name)
    if as_json:
        import json  # noqa: PLC0415 - as above

        document = {"findings": [f.as_json() for f in findings], "ok": is_ok(findings)}
        click.echo(json.dumps(document))
    else:
        click.echo("\n".join(_lines(findings)))
    if not readable:
        return exits.CONFIGURATION
    return exits.DONE if is_ok(findings) else exits.FAILED


def _lines(findings: "list[Finding]") -> list[str]:
    lines = [_line(finding) for finding in findings]
    return [*lines, "", ", ".join(_count(findings, level) for level in ("error", "warning"))]


def _count(findings: "list[Finding]", level: str) -> str:
    count = sum(finding.level == level for finding in findings)
    return f"{count} {level}" if count == 1 else f"{count} {level}s"


def _line(finding: "Finding") -> str:
    who = "" if finding.server is None else f"{plain(finding.server)}: "
    message = plain(finding.message).rstrip(".")
    hint = "" if finding.hint is None else f". {plain(finding.hint)}"
    return f"{finding.level:<7}  {finding.check:<13}  {who}{message}{hint}"
