"""The exit codes of both programs, and which error means which; no import, the shim reads it.

Source: design section 13.
"""

DONE = 0
"""Done; for `connect`: the client left and cleanup is confirmed."""

FAILED = 1
"""The operation failed, and was explained; for `connect`: the server failed or died."""

USAGE = 2
"""The command line cannot be understood."""

UNCONFIRMED = 3
"""A cleanup is unconfirmed, or something was refused because of one."""

UNREACHABLE = 4
"""No daemon answers."""

CONFIGURATION = 100
"""The configuration is wrong."""

OUR_BUG = 101
"""Something that cannot happen did."""

REFUSED_BY_OS = 111
"""The operating system refused."""

INTERRUPTED = 130
"""Interrupted while waiting: 128 and the number of SIGINT, as shells say it."""

EXIT_OF_CODE = {
    "error": FAILED,
    "config_invalid": CONFIGURATION,
    "request_invalid": USAGE,
    "not_found": FAILED,
    "method_not_allowed": FAILED,
    "unknown_server": FAILED,
    "unknown_instance": FAILED,
    "not_quarantined": FAILED,
    "cleanup_unconfirmed": UNCONFIRMED,
    "too_many_instances": FAILED,
    "shutting_down": FAILED,
    "server_fault": FAILED,
    "launch_failed": FAILED,
    "server_record_invalid": CONFIGURATION,
    "server_disabled": FAILED,
    "kernel_refused": REFUSED_BY_OS,
    "daemon_unreachable": UNREACHABLE,
    "internal": OUR_BUG,
    "already_running": FAILED,
    "namesake_installed": CONFIGURATION,
    "greeting_refused": FAILED,
    "unknown_session": FAILED,
    "unknown_tool": FAILED,
    "unknown_prompt": FAILED,
    "unknown_resource": FAILED,
    "arguments_invalid": FAILED,
    "result_invalid": FAILED,
    "schema_unusable": FAILED,
    "server_paused": FAILED,
    "call_failed": FAILED,
    "server_gone": FAILED,
    "call_timed_out": FAILED,
    "call_queued_too_long": FAILED,
    "server_not_reading": FAILED,
    "answer_too_long": FAILED,
    "request_too_long": FAILED,
    "answer_not_utf8": FAILED,
    "server_answered_error": FAILED,
    "bad_answer": FAILED,
    "protocol_version_unknown": FAILED,
    "channel_closed": FAILED,
    "refused_id": FAILED,
    "server_backing_off": FAILED,
    "edit_refused": FAILED,
    "problem": FAILED,
}
"""Every code of `core/errors.py`, `client/errors.py` and the API; a test misses none of them."""


def exit_of_code(code: str) -> int:
    """The exit code for an error's `code`; one of a later daemon counts as failed."""
    return EXIT_OF_CODE.get(code, FAILED)


def exit_of_outcome(outcome: str) -> int:
    """The exit code for a stop's outcome: confirmed, unconfirmed or nothing_running."""
    return UNCONFIRMED if outcome == "unconfirmed" else DONE
