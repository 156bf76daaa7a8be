"""The cleanup report has one shape: the API's, the log's, the command line's."""

import json
from dataclasses import replace
from typing import Any, get_args

from supervisor.core.evidence import Evidence
from supervisor.core.report import (
    CleanupReport,
    ExitStatus,
    Fact,
    FactName,
    FactState,
    Leftover,
    Outcome,
    Reason,
    SignalRecord,
    Survivor,
    Verdict,
)

SURVIVOR = Survivor(
    pid=8,
    ppid=1,
    pgid=7,
    sid=7,
    started_at_utc="2026-01-01T00:00:00.000+00:00",
    command="sleep 1000",
    why="mark",
)
REFUSED = SignalRecord(
    target="descendant", pid=8, signal="SIGKILL", at_s=4.0, result="refused", errno=1
)
REPORT = CleanupReport(
    instance="0123456789abcdef",
    server="git",
    session=None,
    reason="stop",
    outcome="unconfirmed",
    deadline_s=5.0,
    deadline_shortened_by=None,
    elapsed_s=5.003,
    requested_at_utc="2026-01-01T00:00:00.000+00:00",
    facts=Evidence().learn("server_exited", "confirmed", 0.009, "exit code 0").as_facts(0.0),
    missing=("descendants_gone",),
    signals=(REFUSED,),
    failed_signals=(REFUSED,),
    survivors=(SURVIVOR,),
    unattributed=(),
    leftovers_ended=(Leftover(pid=9, command="chrome"),),
    exit=ExitStatus(code=0, signal=None),
    last_stderr=("bye",),
    amended_at_utc=None,
    released=False,
)


def as_read(report: CleanupReport) -> dict[str, Any]:
    """The report as somebody reads it from the wire."""
    body = json.loads(json.dumps(report.as_json()))
    assert isinstance(body, dict)
    return body


def test_the_keys_are_those_of_the_design() -> None:
    """In its order; a missing key breaks whoever reads it, a new one should be thought about."""
    assert list(as_read(REPORT)) == [
        "instance",
        "server",
        "session",
        "reason",
        "outcome",
        "deadline_s",
        "deadline_shortened_by",
        "elapsed_s",
        "requested_at_utc",
        "facts",
        "missing",
        "signals",
        "failed_signals",
        "survivors",
        "unattributed",
        "leftovers_ended",
        "exit",
        "last_stderr",
        "amended_at_utc",
        "released",
    ]


def test_the_rows_are_those_of_the_design() -> None:
    """Design section 6, key by key."""
    body = as_read(REPORT)

    assert body["facts"][0] == {
        "name": "server_exited",
        "state": "confirmed",
        "at_s": 0.009,
        "evidence": "exit code 0",
    }
    assert body["signals"] == body["failed_signals"]
    assert body["signals"][0] == {
        "target": "descendant",
        "pid": 8,
        "signal": "SIGKILL",
        "at_s": 4.0,
        "result": "refused",
        "errno": 1,
    }
    assert list(body["survivors"][0]) == [
        "pid",
        "ppid",
        "pgid",
        "sid",
        "started_at_utc",
        "command",
        "why",
    ]
    assert body["leftovers_ended"] == [{"pid": 9, "command": "chrome"}]
    assert body["exit"] == {"code": 0, "signal": None}
    assert body["missing"] == ["descendants_gone"]
    assert body["last_stderr"] == ["bye"]


def test_every_fact_is_in_the_report_in_one_order() -> None:
    """A reader compares two reports line by line."""
    names = [fact["name"] for fact in as_read(REPORT)["facts"]]
    assert names == list(get_args(FactName))


def test_an_exit_that_nobody_could_wait_for_is_null_twice() -> None:
    """The pidfd says that it is gone, and no status exists."""
    unknown = replace(REPORT, exit=ExitStatus(code=None, signal=None))
    assert as_read(unknown)["exit"] == {"code": None, "signal": None}


def test_the_words_are_closed_sets() -> None:
    """Metrics use them as labels."""
    assert set(get_args(FactState)) == {"confirmed", "missing", "contradicted", "not_applicable"}
    assert set(get_args(Outcome)) == {verdict.value for verdict in Verdict}
    expected = {"stop", "idle", "reload", "shutdown", "crash", "start_failed", "disconnect"}
    assert expected | {"relay_lost", "anchor_lost", "output_closed"} <= set(get_args(Reason))


def test_a_fact_that_is_missing_has_no_instant() -> None:
    """Null, not zero: zero would be the instant of the request."""
    missing = Fact(name="scan_clean", state="missing", at_s=None, evidence="")
    assert missing in REPORT.facts
