"""What Prometheus reads: every promised name, numbers that are right, labels from closed sets."""

import errno
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervisor.core.report import (
    CleanupReport,
    ExitStatus,
    Fact,
    FactState,
    Leftover,
    SignalRecord,
)
from supervisor.core.views import QueueView
from supervisor.linux.sampling import Usage
from supervisor.telemetry.metrics import OTHER, Metrics, MetricsSnapshot, exit_kind

SERVERS: Final = ("git", "docs")
QUIET: Final = MetricsSnapshot(
    instances={}, sessions=0, queue=QueueView(starting=0, waiting=0), survivors=0
)

PROMISED: Final = {
    "instances",
    "starts_total",
    "exits_total",
    "restarts_total",
    "stops_total",
    "stop_duration_seconds_count",
    "start_duration_seconds_count",
    "missing_facts_total",
    "failed_signals_total",
    "survivors",
    "leftovers_ended_total",
    "sessions",
    "queue_starting",
    "queue_waiting",
    "calls_total",
    "call_duration_seconds_count",
    "channel_bytes_total",
    "stray_lines_total",
    "dropped_messages_total",
    "adopted_orphans_total",
    "server_resident_bytes",
    "server_cpu_seconds_total",
    "build_info",
}
"""Design section 14, without the prefix."""

REFUSED = SignalRecord(
    target="group", pid=7, signal="SIGTERM", at_s=2.0, result="refused", errno=errno.EPERM
)


def report_of(*, exited: FactState = "confirmed", **changes: Any) -> CleanupReport:  # noqa: ANN401 - any field
    """A confirmed stop of `git`, with changes."""
    fact = Fact(name="server_exited", state=exited, at_s=0.1, evidence="exit code 0")
    report = CleanupReport(
        instance="0123456789abcdef",
        server="git",
        session="default",
        reason="stop",
        outcome="confirmed",
        deadline_s=5.0,
        deadline_shortened_by=None,
        elapsed_s=0.2,
        requested_at_utc="2026-01-01T00:00:00Z",
        facts=(fact,),
        missing=(),
        signals=(),
        failed_signals=(),
        survivors=(),
        unattributed=(),
        leftovers_ended=(),
        exit=ExitStatus(code=0, signal=None),
        last_stderr=(),
        amended_at_utc=None,
        released=False,
    )
    return replace(report, **changes)


Rows = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: bytes) -> Rows:
    """Every row by name and labels, as Prometheus' own parser understands it."""
    rows: Rows = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in rows, f"{key} is there twice"
            rows[key] = sample.value
    return rows


def value(metrics: Metrics, name: str, snapshot: MetricsSnapshot = QUIET, **labels: str) -> float:
    """One row; a row that does not exist is 0, as for Prometheus' `increase`."""
    rows = parsed(metrics.collect(snapshot))
    return rows.get((f"mcp_supervisor_{name}", frozenset(labels.items())), 0)


@pytest.fixture
def metrics() -> Metrics:
    """For two servers."""
    return Metrics(SERVERS, version="0.1.0")


def busy(metrics: Metrics, server: str = "git") -> None:
    """Let everything happen once."""
    metrics.started(server, 0.004)
    metrics.start_failed(server)
    metrics.restarted(server)
    metrics.stopped(
        report_of(
            server=server,
            outcome="unconfirmed",
            missing=("group_gone",),
            failed_signals=(REFUSED,),
            leftovers_ended=(Leftover(pid=8, command="sleep"),),
        )
    )
    metrics.swept(report_of(server=server, reason="daemon_lost", instance="f" * 16))
    metrics.orphans_adopted(2)
    metrics.call_finished(server, "ok", 0.02)
    metrics.bytes_moved(server, "to_server", 100)
    metrics.stray_lines(server, 1)
    metrics.dropped(server, "late_answer")


def full(server: str = "git") -> MetricsSnapshot:
    """Something of everything."""
    return MetricsSnapshot(
        instances={(server, "alive"): 2},
        sessions=3,
        queue=QueueView(starting=1, waiting=4),
        survivors=5,
        usage={server: Usage(resident_bytes=4096, cpu_seconds_total=1.5)},
        log_dropped_bytes={server: 17},
    )


def test_every_promised_name_is_there(metrics: Metrics) -> None:
    """Alerts and dashboards are written against these names."""
    busy(metrics)

    names = {name for name, _ in parsed(metrics.collect(full()))}

    assert {f"mcp_supervisor_{name}" for name in PROMISED} <= names
    assert all(name.startswith("mcp_supervisor_") for name in names)
    assert not any(name.endswith("_created") for name in names)


def test_the_numbers_are_what_happened(metrics: Metrics) -> None:
    """One of each."""
    busy(metrics)
    rows = parsed(metrics.collect(full()))

    def row(name: str, **labels: str) -> float:
        return rows[f"mcp_supervisor_{name}", frozenset(labels.items())]

    assert row("starts_total", server="git", outcome="started") == 1
    assert row("starts_total", server="git", outcome="failed") == 1
    assert row("start_duration_seconds_sum") == 0.004
    assert row("stops_total", server="git", outcome="unconfirmed") == 1
    assert row("stops_total", server="git", outcome="confirmed") == 1
    assert row("swept_total", outcome="confirmed") == 1
    assert row("stop_duration_seconds_count") == 1
    assert row("missing_facts_total", fact="group_gone") == 1
    assert row("failed_signals_total", signal="SIGTERM", errno="EPERM") == 1
    assert row("leftovers_ended_total", server="git") == 1
    assert row("adopted_orphans_total") == 2
    assert row("channel_bytes_total", server="git", direction="to_server") == 100
    assert row("instances", server="git", state="alive") == 2
    assert row("instances", server="docs", state="alive") == 0
    assert (row("sessions"), row("queue_starting"), row("queue_waiting")) == (3, 1, 4)
    assert row("survivors") == 5
    assert row("server_resident_bytes", server="git") == 4096
    assert row("server_cpu_seconds_total", server="git") == 1.5
    assert row("log_dropped_bytes_total", server="git") == 17


def test_an_alert_on_the_first_unconfirmed_stop_has_a_zero_before_it(metrics: Metrics) -> None:
    """`increase()` does not see a row that begins with 1."""
    rows = parsed(metrics.collect(QUIET))

    labels = frozenset({("server", "docs"), ("outcome", "unconfirmed")})
    assert rows["mcp_supervisor_stops_total", labels] == 0


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "clean"),
        ({"exit": ExitStatus(code=3, signal=None)}, "error"),
        ({"exit": ExitStatus(code=None, signal=9)}, "signal"),
        ({"exit": ExitStatus(code=None, signal=None)}, "unknown"),
        ({"reason": "output_closed"}, "output_closed"),
        ({"reason": "relay_lost", "exit": ExitStatus(code=None, signal=9)}, "helper_lost"),
        ({"reason": "anchor_lost"}, "helper_lost"),
        ({"exited": "missing"}, None),
        ({"exited": "not_applicable", "reason": "start_failed"}, None),
    ],
)
def test_an_exit_is_of_one_kind(changes: Mapping[str, Any], kind: str | None) -> None:
    """What has not been proved to have exited is not counted as an exit."""
    assert exit_kind(report_of(**changes)) == kind


def test_an_amendment_adds_only_what_is_new(metrics: Metrics) -> None:
    """The amended report tells the whole story again."""
    first = report_of(
        exited="missing",
        outcome="unconfirmed",
        missing=("server_exited",),
        failed_signals=(REFUSED,),
    )
    metrics.stopped(first)
    metrics.stopped(
        report_of(
            amended_at_utc="2026-01-01T00:01:00Z",
            failed_signals=(REFUSED, replace(REFUSED, signal="SIGKILL")),
        )
    )

    assert value(metrics, "exits_total", server="git", kind="clean") == 1
    assert value(metrics, "stops_total", server="git", outcome="unconfirmed") == 1
    assert value(metrics, "stops_total", server="git", outcome="amended") == 1
    assert value(metrics, "stops_total", server="git", outcome="confirmed") == 0
    assert value(metrics, "stop_duration_seconds_count") == 1
    assert value(metrics, "missing_facts_total", fact="server_exited") == 1
    assert value(metrics, "failed_signals_total", signal="SIGTERM", errno="EPERM") == 1
    assert value(metrics, "failed_signals_total", signal="SIGKILL", errno="EPERM") == 1


def test_a_release_is_no_confirmation(metrics: Metrics) -> None:
    """The operator took it over; nobody proved anything."""
    unconfirmed = report_of(outcome="unconfirmed")
    metrics.stopped(unconfirmed)
    metrics.stopped(replace(unconfirmed, released=True, amended_at_utc="2026-01-01T00:01:00Z"))

    assert value(metrics, "stops_total", server="git", outcome="released") == 1
    assert value(metrics, "stops_total", server="git", outcome="confirmed") == 0
    assert value(metrics, "exits_total", server="git", kind="clean") == 1


HOSTILE: Final = 'evil"} 1\nmcp_supervisor_fake{a="b'
PLANTED: Final = ("evil", "4242", "hunter2", "s3ss10n", "/home/", "Traceback")


def test_nothing_from_outside_becomes_a_label(metrics: Metrics) -> None:
    """Names of strangers, error texts, pids, sessions: counted, and never shown."""
    busy(metrics, server=HOSTILE)
    bad = cast("Any", "Traceback: /home/x 4242 hunter2")
    metrics.call_finished("git", bad, 1.0)
    metrics.bytes_moved("git", bad, 1)
    metrics.dropped("git", bad)
    metrics.stopped(
        report_of(
            instance="4242424242424242",
            session="s3ss10n",
            reason=bad,
            missing=(bad,),
            failed_signals=(replace(REFUSED, pid=4242, signal=bad, errno=4242),),
            last_stderr=("hunter2",),
        )
    )
    snapshot = replace(full(HOSTILE), instances={(HOSTILE, bad): 1, (HOSTILE, "alive"): 1})

    text = metrics.collect(snapshot)
    rows = parsed(text)

    assert [word for word in PLANTED if word in text.decode()] == []
    assert "mcp_supervisor_fake" not in {name for name, _ in rows}
    servers = {label for _, labels in rows for key, label in labels if key == "server"}
    assert servers == {*SERVERS, OTHER}
    started = frozenset({("server", OTHER), ("outcome", "started")})
    assert rows["mcp_supervisor_starts_total", started] == 1


@pytest.mark.parametrize("name", ['a"} 1\nb', "ä/ö", "\\", "\ud800", "a\rb", "\x00"])
def test_a_configured_name_of_any_kind_breaks_nothing(name: str) -> None:
    """Names come from a file that other programs write too."""
    metrics = Metrics((name,), version="0.1.0")
    metrics.started(name, 0.1)

    rows = parsed(metrics.collect(full(name)))

    labels = [dict(labels) for row, labels in rows if row == "mcp_supervisor_starts_total"]
    assert len({each["server"] for each in labels}) == 1
    assert labels[0]["server"].isprintable()


def test_a_server_that_is_configured_later_gets_its_own_rows(metrics: Metrics) -> None:
    """After a reload; what was counted before stays where it was."""
    metrics.started("new", 0.1)
    metrics.know_servers([*SERVERS, "new"])
    metrics.started("new", 0.1)

    assert value(metrics, "starts_total", server="new", outcome="started") == 1
    assert value(metrics, "starts_total", server=OTHER, outcome="started") == 1


def test_a_server_that_is_no_longer_configured_gets_no_more(metrics: Metrics) -> None:
    """Its rows stay as they are; the set of labels is that of the configuration."""
    metrics.bytes_moved("git", "to_server", 1)
    metrics.know_servers(["docs"])
    metrics.bytes_moved("git", "to_server", 2)

    assert value(metrics, "channel_bytes_total", server="git", direction="to_server") == 1
    assert value(metrics, "channel_bytes_total", server=OTHER, direction="to_server") == 2
