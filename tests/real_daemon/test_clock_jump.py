"""The wall clock is set while things wait: all durations stay what they were."""

import json
from datetime import datetime
from pathlib import Path
from time import monotonic

import pytest

from real_daemon.conftest import StartDaemon
from real_daemon.conversation import Conversation, text_of
from real_daemon.daemon_fixture import SOON
from real_daemon.daemon_log import Json
from real_daemon.waywards import AT_ONCE_S, stop_all, wayward

DAY_S = 86400

SHIM = '''
"""Shifts the wall clock of this process by the seconds in a file; the monotonic one is left."""
import os, time

_real = time.time_ns


def _shift():
    try:
        with open(os.environ["WALL_CLOCK_SHIFT"]) as file:
            return int(file.read() or 0)
    except (KeyError, OSError, ValueError):
        return 0


time.time_ns = lambda: _real() + _shift() * 10**9
time.time = lambda: time.time_ns() / 1e9

import datetime

_Real = datetime.datetime


class _Shifted(_Real):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return cls.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)


datetime.datetime = _Shifted
'''


@pytest.mark.parametrize("jump_s", [-DAY_S, DAY_S])
def test_a_jump_of_the_wall_clock_changes_no_duration(
    start_daemon: StartDaemon, tmp_path: Path, jump_s: int
) -> None:
    """A start, a call, a backoff, an idle time, a stop: only printed times move (design 7)."""
    (tmp_path / "sitecustomize.py").write_text(SHIM, "utf-8")
    shift = tmp_path / "shift"
    daemon = start_daemon(
        {
            "calm": wayward(tmp_path / "calm", requestTimeoutMs=10000),
            "slow": wayward(tmp_path / "slow", "--slow", "0.5", connectionTimeoutMs=10000),
            "brief": wayward(tmp_path / "brief", idleTimeoutMs=400),
            "crash": wayward(
                tmp_path / "crash", "--crash-after", "0.1", restart={"backoffMs": 500}
            ),
            "deaf": wayward(tmp_path / "deaf"),
        },
        environ={"PYTHONPATH": str(tmp_path), "WALL_CLOCK_SHIFT": str(shift)},
    )
    before_utc = daemon.api("GET", "/v1/status")["daemon"]["started_at_utc"]
    with (
        Conversation(daemon, "calm", "--session", "a") as calm,
        Conversation(daemon, "slow") as slow,
        Conversation(daemon, "brief", "--session", "a") as brief,
        Conversation(daemon, "deaf", "--session", "a") as deaf,
    ):
        for client in (calm, brief, deaf):
            client.greet()
        (idle,) = [one["id"] for one in daemon.instances() if one["server"] == "brief"]
        deaf.call("freeze")
        began_at = monotonic()
        held = calm.send("tools/call", name="echo", arguments={"tag": "nap", "delay": 0.8})
        daemon.start_server("crash", "a")
        scheduled = daemon.log.wait_for("restart_scheduled", server="crash")
        place = daemon.log.place()
        slow.send("initialize", protocolVersion="2025-06-18")
        brief.leave()

        shift.write_text(str(jump_s))

        started = daemon.log.wait_for("instance_started", server="crash", after=place)
        moved = printed_at(started) - printed_at(scheduled)
        assert abs(moved.total_seconds() - jump_s) < DAY_S / 2  # the jump was one
        assert json.loads(text_of(calm.answer(held)))["tag"] == "nap"
        assert "result" in slow.answer(1)
        assert daemon.wait_judged(idle)["reason"] == "idle"
        assert monotonic() - began_at < 2 * AT_ONCE_S
        (report,) = daemon.mcpctl_json("stop", "deaf")["reports"]
        assert report["outcome"] == "confirmed"
        assert SOON["termAfterMs"] / 1000 <= report["elapsed_s"] < SOON["deadlineMs"] / 1000
        status = daemon.api("GET", "/v1/status")
        assert status["daemon"]["started_at_utc"] == before_utc
        assert all(one["uptime_s"] >= 0 for one in [*status["instances"], status["daemon"]])
        assert all(one["uptime_s"] < 60 for one in [*status["instances"], status["daemon"]])
    stop_all(daemon)


def printed_at(line: Json) -> datetime:
    """When a line of the log says that it was written."""
    return datetime.fromisoformat(str(line["timestamp"]))
