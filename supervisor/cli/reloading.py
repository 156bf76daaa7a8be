"""The command `reload`: what a new configuration has moved."""

from collections.abc import Iterator

import click

from supervisor.cli.ending import plain
from supervisor.cli.options import Given, examples, take_json, take_places
from supervisor.cli.sentences import stop_lines
from supervisor.cli.waiting import Countdown
from supervisor.client.bodies import Reloaded
from supervisor.client.errors import ProblemError
from supervisor.core import exits


@click.command(
    short_help="Read the configuration again; only what changed moves.",
    help="""Let the daemon read its configuration again.

    A server whose record is as before keeps its processes. One that has changed is stopped, and
    started again where it ran; one that is no longer there is stopped. If a file is wrong, nothing
    happens at all (exit code 100). Exit code 3 if the cleanup of what was stopped is unconfirmed.
    """,
    epilog=examples("mcpctl reload", "mcpctl reload --json"),
)
@take_json
@take_places(hidden=True)
@click.pass_obj
def reload(given: Given) -> int:
    """Reload, and say what has moved."""
    client = given.client()
    goes_on = "Interrupted; the reload goes on in the daemon (`mcpctl events`)."
    with Countdown(client, "the reload", lambda i: i["stop"] is not None, goes_on=goes_on) as tick:
        try:
            answer = client.reload(tick)
        except ProblemError as error:
            raise _reassuring(error) from None
    reloaded = answer.value
    if given.as_json:
        click.echo(answer.text)
    else:
        for warning in reloaded["warnings"]:
            click.echo(f"mcpctl: warning: {plain(warning)}", err=True)
        click.echo("\n".join(_lines(reloaded)))
    outcomes = {report["outcome"] for report in reloaded["reports"]}
    return exits.UNCONFIRMED if outcomes - {"confirmed"} else exits.DONE


def _reassuring(error: ProblemError) -> ProblemError:
    """A broken file is explained like at the start, and has not stopped anything."""
    if error.problem != "config_invalid":
        return error
    text = f"{error}\nThe running configuration stays."
    return ProblemError(error.status, error.problem, text, error.fields, error.document)


def _lines(reloaded: Reloaded) -> Iterator[str]:
    """One line for each group that is not empty, then what was stopped."""
    moved = {
        "changed": reloaded["changed"],
        "retuned": reloaded["retuned"],
        "added": reloaded["added"],
        "removed": reloaded["removed"],
    }
    for group, names in ({"unchanged": reloaded["unchanged"]} | moved).items():
        if names:
            yield f"{group}: {', '.join(map(plain, names))}"
    if not any(moved.values()):
        yield "nothing has changed for any server"  # settings are in no group
    yield from stop_lines(reloaded["reports"])
