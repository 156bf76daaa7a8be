"""The client's bodies are the dataclasses that the daemon answers with."""

from dataclasses import fields

import pytest

from supervisor.client import bodies
from supervisor.core import report, views

PAIRS = {
    bodies.Stop: views.StopView,
    bodies.Instance: views.InstanceView,
    bodies.Server: views.ServerView,
    bodies.Daemon: views.DaemonView,
    bodies.Queue: views.QueueView,
    bodies.Limits: views.LimitsView,
    bodies.Probe: views.ProbeView,
    bodies.Session: views.SessionView,
    bodies.SessionServer: views.SessionServerView,
    bodies.OpenedSession: views.SessionAnswer,
    bodies.Tools: views.ToolsView,
    bodies.Status: views.StatusView,
    bodies.Started: views.StartAnswer,
    bodies.Stopped: views.StopAnswer,
    bodies.Restarted: views.RestartAnswer,
    bodies.Reloaded: views.ReloadAnswer,
    bodies.Fact: report.Fact,
    bodies.SentSignal: report.SignalRecord,
    bodies.Survivor: report.Survivor,
    bodies.Leftover: report.Leftover,
    bodies.Exit: report.ExitStatus,
    bodies.Report: report.CleanupReport,
}


@pytest.mark.parametrize(("body", "view"), PAIRS.items(), ids=lambda kind: kind.__name__)
def test_a_body_has_the_fields_of_its_dataclass(body: type, view: type) -> None:
    """Two spellings of one thing drift apart unless something holds them together."""
    assert list(body.__annotations__) == [field.name for field in fields(view)]
