"""The shapes of the control API's JSON, as design sections 6 and 12 give them."""

from typing import Final

INSTANCE: Final = {
    "id",
    "server",
    "session",
    "state",
    "pid",
    "pgid",
    "relay_pid",
    "anchor_pid",
    "started_at_utc",
    "uptime_s",
    "protocol_version",
    "clients",
    "calls_in_flight",
    "stop",
    "quarantined",
    "stderr_tail",
    "stray_lines",
    "first_stray_lines",
}

REPORT: Final = {
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
}

FACT: Final = {"name", "state", "at_s", "evidence"}

SIGNAL: Final = {"target", "pid", "signal", "at_s", "result", "errno"}

SURVIVOR: Final = {"pid", "ppid", "pgid", "sid", "started_at_utc", "command", "why"}

FACTS: Final = {
    "server_exited",
    "relay_exited",
    "descendants_gone",
    "group_gone",
    "stdout_eof",
    "stderr_eof",
    "lineage_eof",
    "control_closed",
    "closing_receipt",
    "anchor_exited",
    "scan_clean",
}

STATUS: Final = {"daemon", "servers", "sessions", "instances", "queue", "limits"}

SERVER: Final = {
    "name",
    "state",
    "transport",
    "command",
    "instances",
    "error",
    "exits",
    "last_exit",
    "next_start_in_s",
}

EVENT: Final = {"id", "name", "at_utc", "server", "instance", "session", "data"}

PROBLEM: Final = {"type", "title", "status", "detail", "code"}
