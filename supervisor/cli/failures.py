"""Runs one command line and turns whatever goes wrong into a sentence and an exit code.

No traceback reaches a person: what "cannot happen" is named with its place in the code.
"""

import json
import sys
from types import TracebackType

import click

from supervisor.cli.commands import group
from supervisor.cli.options import Given
from supervisor.cli.waiting import Interrupted
from supervisor.client.errors import ProblemError
from supervisor.core import exits
from supervisor.core.errors import DaemonUnreachableError, SupervisorError


def run(words: list[str]) -> int:
    """Run the command line `words` (without the program's name); return the exit code."""
    given = Given()
    try:
        result: object = group.main(words, prog_name="mcpctl", standalone_mode=False, obj=given)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return exits.INTERRUPTED
    except Interrupted as interruption:
        _say(str(interruption))
        return exits.INTERRUPTED
    except SupervisorError as error:
        return _explain(error, given)
    except Exception as error:  # noqa: BLE001 - the last line before a traceback; it says where
        _say(_bug(error))
        return exits.OUR_BUG
    return result if isinstance(result, int) else exits.DONE


def _explain(error: SupervisorError, given: Given) -> int:
    text, code = str(error), error.code
    if isinstance(error, ProblemError):
        code = error.problem
    if code == "internal" and isinstance(error, ProblemError):
        text += (
            " The daemon's log has the details: `journalctl -u mcp-supervisord`, or its terminal."
        )
    if isinstance(error, DaemonUnreachableError) and given.options():
        words = " ".join(f"{option} {value}" for option, value in given.options().items())
        text = text.replace("mcp-supervisord start", f"mcp-supervisord start {words}")
    _say(text)
    if given.as_json:
        if isinstance(error, ProblemError):
            click.echo(error.document)
        else:
            click.echo(
                json.dumps({"type": "about:blank", "title": code, "detail": text, "code": code})
            )
    return exits.exit_of_code(code)


def _bug(error: Exception) -> str:
    where = _innermost(error.__traceback__)
    return (
        f"Internal error: {type(error).__name__} at {where}. This is a bug of mcpctl; please "
        "report it with this line. `mcpctl events` shows what the daemon made of the request."
    )


def _innermost(traceback: TracebackType | None) -> str:
    """The last line of ours on the way to the failure."""
    where = "an unknown place"
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        if name.startswith("supervisor."):
            where = f"{name}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where


def _say(sentence: str) -> None:
    sys.stderr.write(f"mcpctl: {sentence}\n")
