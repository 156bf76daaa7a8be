"""How an instance ended, in words and as the shim's exit code; loaded after the copying only.

No import that costs: a client that waits for its shim waits for this as well.
"""

from supervisor.cli.light_json import parse
from supervisor.core import exits

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would cost 5 ms
    from supervisor.client.bodies import Exit, Report

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
"""The signals that end servers, signal(7) for x86 and ARM; the signal module would load enum."""

ENDED_BY_OTHERS = {
    "stop": "was stopped by `mcpctl stop`",
    "restart": "was stopped by `mcpctl restart`",
    "shutdown": "was stopped because the daemon shuts down",
    "reload": "was stopped because its configuration changed",
    "idle": "was stopped because nobody had used it for a while",
}
"""Neither the client left nor did the server fail."""

SERVER_FAILED = {
    "crash": "ended by itself",
    "output_closed": "closed its output and was stopped",
    "start_failed": "did not get ready in time and was stopped",
    "endless_line": "wrote a line without end and was stopped",
    "relay_lost": "was ended because its relay died",
    "daemon_lost": "was ended because its daemon died",
}


def read_ending(answer: bytes, *, left: bool) -> "tuple[int, str | None]":
    """Judge the daemon's answer to a request for the report.

    Args:
        answer: a whole HTTP/1.0 answer, head and body.
        left: whether the client had left before the connection ended.

    Returns:
        The exit code, and what to say: "" for nothing, None where the answer holds no report.
    """
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
        return exits.UNCONFIRMED, None
    try:
        report: Report = parse(body)  # type: ignore[assignment] # the daemon's own dataclass
    except ValueError:
        return exits.UNCONFIRMED, None
    return judge(report, left=left)


def judge(report: "Report", *, left: bool) -> "tuple[int, str]":
    """The exit code and the sentence for a report; no sentence where all went as it should."""
    name = f"Server {report['server']!r}"
    if report["outcome"] != "confirmed":
        missing = ", ".join(report["missing"]) or "nothing that could be named"
        return exits.UNCONFIRMED, (
            f"{name} was stopped, but its cleanup is unconfirmed; missing: {missing}. "
            f"`mcpctl instances --quarantined` shows what is left of instance "
            f"{report['instance']}."
        )
    reason = report["reason"]
    if reason == "disconnect" or (left and reason in ENDED_BY_OTHERS):
        return exits.DONE, ""
    if reason in ENDED_BY_OTHERS:
        return exits.FAILED, f"{name} {ENDED_BY_OTHERS[reason]}."
    what = SERVER_FAILED.get(reason, f"was ended ({reason})")
    sentence = f"{name} {what}: {exit_text(report['exit'])}"
    if report["last_stderr"]:
        sentence += f"; its last line on stderr: {plain(report['last_stderr'][-1])}"
    return exits.FAILED, sentence if sentence.endswith(".") else f"{sentence}."


def exit_text(status: "Exit") -> str:
    """How a process ended, such as `exit code 0` or `killed by SIGKILL`."""
    if status["code"] is not None:
        return f"exit code {status['code']}"
    if status["signal"] is not None:
        number = status["signal"]
        return f"killed by {SIGNALS.get(number, f'signal {number}')}"
    return "exit status unknown"


def plain(text: str) -> str:
    """`text` without control characters, which could play tricks on a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
