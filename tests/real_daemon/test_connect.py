"""`mcpctl connect`: bodies pass untouched, and whoever leaves or dies, nothing is left running."""

import json
import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mcp import MCPError

from process_table import row_of
from real_daemon.clients import MODES, Mode, Shim, note_line, request_line, sdk_client
from real_daemon.daemon_fixture import (
    GONE_WITHIN_S,
    SOON,
    Daemon,
    record,
    running_daemon,
)
from real_daemon.staging import SERVERS, OnStage, staged

MEBIBYTE = 1048576
KEPT_AT_MOST_BYTES = 8 * MEBIBYTE
"""What may wait for a client that does not read: the daemon's bound, two sockets, two pipes."""

SETTLED_LOOKS = 40
"""A writer whose count stays the same so often, 5 ms apart, is held."""

PATIENT = {"deadlineMs": 10000, "termAfterMs": 6000, "killAfterMs": 8000}
"""A grace that a server of the tests does not use up."""

PYTHON = ("python3", "-S", "-E")

LAST_WORD = b'{"jsonrpc":"2.0","method":"notifications/last_word"}'

LAST_WORDS = 40000
"""Lines of a server that talks when its client has left: 4 MiB, more than may wait anywhere."""

SAY_WHERE = (
    """printf '{"jsonrpc":"2.0","method":"notifications/n","params":{"text":"%s"}}\\n' "$PWD"; """
    "exec cat"
)


@pytest.fixture(scope="module")
def on_stage() -> Iterator[OnStage]:
    """A polite server with an escaped child, and one that crashes in a call."""
    with staged({"tree": "daemonize", "crash": "crash", "polite": "polite"}) as made:
        yield made


@pytest.fixture(scope="module")
def gate_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A FIFO that lets the slow server begin to read."""
    path = tmp_path_factory.mktemp("gate") / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture(scope="module")
def daemon(
    on_stage: OnStage, gate_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    """A daemon that the tests share; no test leaves an instance."""
    there = tmp_path_factory.mktemp("there")
    records = {
        **on_stage.records,
        "cat": record("cat"),
        "no-newline": record("sh", "-c", f"printf '{LAST_WORD.decode()}'"),
        "late": record("sh", "-c", f"cat; printf '{LAST_WORD.decode()}'"),
        "loud": record("sh", "-c", "echo 'first line' >&2; exec cat"),
        "dies": record("sh", "-c", "read line; echo 'out of cheese' >&2; exit 7"),
        "deaf": record("sh", "-c", "trap '' TERM; exec sleep 600"),
        "pwd": record("sh", "-c", SAY_WHERE),
        "pwd-given": {**record("sh", "-c", SAY_WHERE), "cwd": str(there)},
        "hush": record(*PYTHON, str(SERVERS / "hush.py")),
        "talks-last": record(*PYTHON, str(SERVERS / "talks_last.py"), stop=PATIENT),
        "flood": record(*PYTHON, str(SERVERS / "flood.py")),
        "slow": record("sh", "-c", f"read go <{gate_path}; exec cat", stop=PATIENT),
        "missing": record("mcp-no-such-command"),
    }
    with running_daemon(records) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_runs(daemon: Daemon) -> Iterator[None]:
    """Each test ends with the daemon and its fork server alone."""
    yield
    assert daemon.end_instances() == []
    assert len(daemon.alive()) == 2, daemon.alive()


def only(daemon: Daemon) -> str:
    """The id of the one instance that there is."""
    (instance,) = daemon.instances()
    return str(instance["id"])


def test_a_line_of_ten_megabytes_passes_both_ways(daemon: Daemon) -> None:
    """No part of the way loses a byte, or waits for itself."""
    line = note_line("x" * 10 * MEBIBYTE)
    with Shim(daemon, "cat") as shim:
        assert shim.exchange(line, len(line)) == line
        shim.leave()
        assert shim.finish() == (0, b"", "")


def test_a_large_request_reaches_a_server_that_answers_only_when_it_has_all_of_it(
    daemon: Daemon,
) -> None:
    """Larger than all buffers on the way, and no byte comes back before the last has arrived."""
    text = "x" * (2 * MEBIBYTE)
    request = request_line("tools/call", name="echo", arguments={"text": text})
    with Shim(daemon, "polite") as shim:
        answer = shim.exchange(request, 2 * MEBIBYTE)
        assert answer.count(b"x") > MEBIBYTE
        rest = shim.read_line()
        assert json.loads(answer + rest)["result"]["content"][0]["text"] == text
        shim.leave()
        assert shim.finish() == (0, b"", "")


@pytest.mark.parametrize(
    "line",
    [
        b'{"method":"notifications/n","params":{"a":1.10,"b":1E2,"c":NaN},"jsonrpc":"2.0"}',
        b'{ "jsonrpc" : "2.0" ,"method":"notifications/n", "vendor":{"id":[null,1.50]} }',
        '{"jsonrpc":"2.0","method":"notifications/é\u2028"}'.encode(),
        b'{"jsonrpc":"2.0","id":"caf\\u00e9","method":"ask","x":{"id":7}}',
        b'{"jsonrpc":"2.0","id":-0,"method":"ask","params":{"_meta":{"progressToken":1}}}',
    ],
)
def test_messages_pass_as_they_are(daemon: Daemon, line: bytes) -> None:
    """Unknown members, spellings of numbers, order, blanks: nobody touches them (design 9)."""
    with Shim(daemon, "cat") as shim:
        assert shim.exchange(line + b"\n", len(line) + 1) == line + b"\n"
        shim.leave()
        code, out, err = shim.finish()
    assert (code, err) == (0, "")
    # `cat` asks its client what it was asked, and never answers
    assert [json.loads(rest)["error"]["code"] for rest in out.splitlines()] == (
        [-32002] if b'"ask"' in line else []
    )


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"hello\n", "The line is no JSON-RPC 2.0 message."),
        (b'{"jsonrpc":"2.0","id":1}\n', "The line is no JSON-RPC 2.0 message."),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', "The line is no JSON-RPC 2.0 message."),
        (b'{"jsonrpc":"2.0","method":"n","params":{"a":"\xff"}}\n', "The line is not UTF-8."),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', "a string or an integer"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n', "a string or an integer"),
    ],
)
def test_what_is_no_message_is_answered_and_does_not_reach_the_server(
    daemon: Daemon, sent: bytes, answer: str
) -> None:
    """Swallowed, it would leave its sender waiting; passed on, it may end a server."""
    with Shim(daemon, "cat") as shim:
        shim.send(sent + note_line())
        refused = json.loads(shim.read_line())
        assert answer in refused["error"]["message"]
        assert shim.read_line() == note_line()
        shim.leave()
        assert shim.finish() == (0, b"", "")


def test_what_is_sent_before_the_server_runs_is_not_lost(daemon: Daemon) -> None:
    """A client writes its first request at once and does not know of our greeting."""
    with Shim(daemon, "cat") as shim:
        shim.send(note_line("early"))
        shim.leave()
        assert shim.finish() == (0, note_line("early"), "")


def test_what_a_server_says_last_arrives(daemon: Daemon) -> None:
    """Without a newline, and also after the client has closed its side."""
    with Shim(daemon, "no-newline") as shim:
        _, out, _ = shim.finish()
        assert out == LAST_WORD + b"\n"
    with Shim(daemon, "late") as shim:
        shim.send(note_line())
        assert shim.read_line() == note_line()
        shim.leave()
        assert shim.finish() == (0, LAST_WORD + b"\n", "")


def test_each_client_has_an_instance_of_its_own(daemon: Daemon) -> None:
    """Private means private: bytes never cross, and one leaving does not touch the others."""
    shims = [Shim(daemon, "cat") for _ in range(4)]
    try:
        for number, shim in enumerate(shims):
            shim.send(note_line(f"{number}"))
        answers = [shim.read_line() for shim in shims]
        assert answers == [note_line(f"{number}") for number in range(4)]
        instances = daemon.instances()
        assert len({instance["pid"] for instance in instances}) == 4
        assert {(i["session"], i["clients"]) for i in instances} == {(None, 1)}
        shims[0].leave()
        assert shims[0].finish() == (0, b"", "")
        assert len(daemon.instances()) == 3
        for shim in shims[1:]:
            shim.send(note_line("still here"))
            assert shim.read_line() == note_line("still here")
    finally:
        for shim in shims:
            shim.leave()
            shim.finish()
            shim.__exit__(None, None, None)


def test_a_client_that_leaves_ends_its_server_and_all_its_children(
    daemon: Daemon, on_stage: OnStage
) -> None:
    """Exit code 0 means that the cleanup is confirmed (design section 13)."""
    with Shim(daemon, "tree") as shim:
        assert shim.ask("ping")["result"] == {}
        on_stage["tree"].wait_ready()
        instance = only(daemon)
        shim.leave()
        assert shim.finish() == (0, b"", "")
    report = daemon.report(instance)
    assert (report["reason"], report["outcome"]) == ("disconnect", "confirmed")
    assert len(report["leftovers_ended"]) == 1
    assert [pid for pid in on_stage["tree"].pids() if row_of(pid) is not None] == []


def test_a_killed_shim_ends_its_instance(daemon: Daemon, on_stage: OnStage) -> None:
    """Clients are killed every day; the end of the connection is enough."""
    with Shim(daemon, "tree") as shim:
        assert shim.ask("ping")["result"] == {}
        on_stage["tree"].wait_ready()
        instance = only(daemon)
        shim.process.kill()
        report = daemon.wait_judged(instance)
    assert (report["reason"], report["outcome"]) == ("disconnect", "confirmed")
    assert [pid for pid in on_stage["tree"].pids() if row_of(pid) is not None] == []


def test_sigterm_to_the_shim_is_a_client_that_leaves(daemon: Daemon) -> None:
    """MCP clients end their servers with it; the shim goes on until the end is known."""
    with Shim(daemon, "cat") as shim:
        shim.send(note_line())
        assert shim.read_line() == note_line()
        instance = only(daemon)
        shim.process.terminate()
        assert shim.finish() == (0, b"", "")
    assert daemon.report(instance)["reason"] == "disconnect"


def test_a_server_that_dies_ends_the_connection_with_a_sentence(daemon: Daemon) -> None:
    """The call fails, stdout ends, and all say who died, how, and with which last words."""
    with Shim(daemon, "dies") as shim:
        failed = shim.ask("ping")
        code, out, err = shim.finish()
    assert failed["error"]["code"] == -32002
    assert failed["error"]["message"] == (
        "Server 'dies' exited with code 7 before it answered; the request was not repeated. "
        "Its last lines on stderr: out of cheese"
    )
    assert (code, out) == (1, b"")
    assert err.splitlines()[0] == "out of cheese"
    assert (
        err.splitlines()[-1] == "mcpctl: Server 'dies' ended by itself: exit code 7; its last "
        "line on stderr: out of cheese."
    )
    assert daemon.server("dies")["state"] != "alive"


def test_the_servers_stderr_arrives_on_the_shims_stderr(daemon: Daemon) -> None:
    """Clients show it to people who look for a reason; stdout stays pure MCP (design section 9)."""
    with Shim(daemon, "loud") as shim:
        assert shim.process.stderr is not None
        fd = shim.process.stderr.fileno()
        assert select.select([fd], [], [], GONE_WITHIN_S)[0]
        assert os.read(fd, 4096) == b"first line\n"
        shim.send(note_line("pure"))
        assert shim.read_line() == note_line("pure")
        shim.leave()
        assert shim.finish() == (0, b"", "")


def test_a_server_that_closes_its_output_is_not_taken_for_alive(daemon: Daemon) -> None:
    """The process is there, so others show it as connected and calls run into time-outs."""
    with Shim(daemon, "hush") as shim:
        assert shim.ask("ping")["result"] == {}
        instance = daemon.instances()[0]
        failed = shim.ask("tools/call", name="echo", arguments={"text": "hush"})
        assert "closed its output while it was alive" in failed["error"]["message"]
        code, _, err = shim.finish()
    assert code == 1
    assert "Server 'hush' closed its output" in err
    report = daemon.report(instance["id"])
    assert (report["reason"], report["outcome"]) == ("output_closed", "confirmed")
    assert row_of(instance["pid"]) is None
    assert report["elapsed_s"] < SOON["killAfterMs"] / 1000
    assert daemon.server("hush")["state"] != "alive"
    assert "closed its output" in daemon.server("hush")["error"]
    with Shim(daemon, "hush") as fresh:
        assert fresh.ask("ping")["result"] == {}
        fresh.leave()
        fresh.finish()


def test_a_stop_by_somebody_else_is_told_to_the_client(daemon: Daemon) -> None:
    """Neither did the client leave nor the server fail: exit code 1, and the sentence says why."""
    with Shim(daemon, "cat") as shim:
        shim.send(note_line())
        assert shim.read_line() == note_line()
        assert daemon.mcpctl("stop", "cat").returncode == 0
        code, out, err = shim.finish()
    assert (code, out) == (1, b"")
    assert err == "mcpctl: Server 'cat' was stopped by `mcpctl stop`.\n"


def test_a_client_that_does_not_read_pauses_its_server(daemon: Daemon) -> None:
    """What nobody reads must not fill the daemon's memory, nor hold up a stop."""
    with Shim(daemon, "flood") as shim:
        shim.read(1)
        instance = daemon.instances()[0]
        written = wait_held(instance["pid"])
        assert written < KEPT_AT_MOST_BYTES
        assert daemon.server("cat")["state"] == "idle"
        (report,) = daemon.mcpctl_json("stop", "flood")["reports"]
        assert report["outcome"] == "confirmed"
        assert report["exit"] == {"code": 0, "signal": None}
        assert report["elapsed_s"] < SOON["termAfterMs"] / 1000


def test_a_stop_does_not_wait_for_bytes_that_a_server_does_not_read(daemon: Daemon) -> None:
    """Closing stdin drops what is queued: the grace is the server's, not the queue's."""
    with Shim(daemon, "deaf") as shim:
        fill(daemon, shim)
        (report,) = daemon.mcpctl_json("stop", "deaf")["reports"]
        shim.finish()
    assert report["outcome"] == "confirmed"
    assert report["elapsed_s"] < SOON["deadlineMs"] / 1000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_client_can_leave_a_server_that_does_not_read(
    daemon: Daemon, number: signal.Signals
) -> None:
    """The daemon has stopped to read from the client, and has to notice its end all the same."""
    with Shim(daemon, "deaf") as shim:
        fill(daemon, shim)
        instance = only(daemon)
        shim.leave()
        shim.process.send_signal(number)
        report = daemon.wait_judged(instance)
    assert (report["reason"], report["outcome"]) == ("disconnect", "confirmed")


def test_what_a_client_sent_before_it_left_reaches_a_slow_server(
    daemon: Daemon, gate_path: Path
) -> None:
    """On a pipe the end comes behind the data; `mcpctl connect` is used like one."""
    data = note_line("x" * (MEBIBYTE // 2))
    with Shim(daemon, "slow") as shim:
        shim.exchange(data, 0)
        shim.leave()
        instance = only(daemon)
        with gate_path.open("wb", buffering=0) as gate:
            gate.write(b"go\n")
        code, out, _ = shim.finish()
        assert daemon.wait_judged(instance)["reason"] == "disconnect"
    assert (code, len(out)) == (0, len(data))


def test_a_client_that_reads_last_gets_all_that_was_said(daemon: Daemon) -> None:
    """`cat file | mcpctl connect NAME | slow-reader`: until SIGTERM is due, nothing is lost."""
    with Shim(daemon, "talks-last") as shim:
        assert shim.ask("ping")["error"]["code"] == -32601
        (instance,) = daemon.instances()
        shim.leave()
        wait_held(instance["pid"])
        code, out, _ = shim.finish()
    assert (code, out.count(b"notifications/last")) == (0, LAST_WORDS)


def test_the_client_decides_where_a_server_without_cwd_runs(daemon: Daemon, tmp_path: Path) -> None:
    """Started by a client itself it would run there too; a `cwd` in the record wins."""
    where = str(daemon.api("GET", "/v1/status")["daemon"]["config_file"])
    given = json.loads(Path(where).read_text("utf-8"))["mcpServers"]["pwd-given"]["cwd"]
    for name, directory in (("pwd", str(tmp_path)), ("pwd-given", given)):
        with Shim(daemon, name, cwd=tmp_path) as shim:
            assert json.loads(shim.read_line())["params"]["text"] == directory
            shim.leave()
            shim.finish()


@pytest.mark.parametrize(
    ("name", "exit_code", "code", "words"),
    [
        ("kat", 1, "unknown_server", "No server is called 'kat'; configured: "),
        ("missing", 1, "launch_failed", "command 'mcp-no-such-command' not found"),
    ],
)
def test_who_cannot_be_connected_is_told_twice(
    daemon: Daemon, name: str, exit_code: int, code: str, words: str
) -> None:
    """On stderr for people, and as an error to the first request, which every client shows."""
    with Shim(daemon, name) as shim:
        answer = shim.ask("initialize", protocolVersion="2025-06-18")
        ended = shim.finish()
    assert answer["id"] == 1
    assert answer["error"]["code"] == -32603
    assert answer["error"]["data"] == {"code": code}
    assert words in answer["error"]["message"]
    assert ended[0] == exit_code
    assert words in ended[2]
    assert "Traceback" not in ended[2]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_client_works_through_the_shim(
    daemon: Daemon, on_stage: OnStage, mode: Mode
) -> None:
    """What people use: the official client, old and new way of finding the version."""
    async with sdk_client(daemon, "tree", mode) as client:
        tools = await client.list_tools()
        assert [tool.name for tool in tools.tools] == ["echo"]
        result = await client.call_tool("echo", {"text": "ünïcødé \u2028 and \n newlines"})
        assert result.content[0].model_dump()["text"] == "ünïcødé \u2028 and \n newlines"
        on_stage["tree"].wait_ready()
        instance = only(daemon)
    assert daemon.wait_judged(instance)["outcome"] == "confirmed"
    assert [pid for pid in on_stage["tree"].pids() if row_of(pid) is not None] == []


@pytest.mark.anyio
async def test_an_sdk_call_fails_at_once_when_the_server_dies(daemon: Daemon) -> None:
    """Not at its time limit, and with the reason (design section 7)."""
    async with sdk_client(daemon, "crash", "legacy") as client:
        instance = only(daemon)
        with pytest.raises(MCPError, match=r"Server 'crash' exited with code 7"):
            await client.call_tool("echo", {"text": "one too many"})
    report = daemon.wait_judged(instance)
    assert (report["reason"], report["exit"]) == ("crash", {"code": 7, "signal": None})


def wait_held(pid: int) -> int:
    """Wait until a process writes no more; how many bytes it has written.

    No descriptor announces that a writer is held, so its count is looked at until it stays.
    """
    before, same = -1, 0
    for _ in range(100 * SETTLED_LOOKS):
        text = Path(f"/proc/{pid}/io").read_text("ascii")
        (written,) = (int(line.split()[1]) for line in text.splitlines() if "wchar" in line)
        same = same + 1 if written == before else 0
        before = written
        if same == SETTLED_LOOKS:
            return written
        select.select([], [], [], 0.005)
    message = f"process {pid} goes on writing: {before} bytes"
    raise TimeoutError(message)


def fill(daemon: Daemon, shim: Shim) -> None:
    """Write until all that is between the client and its server takes no more for a while."""
    daemon.log.wait_for("client_connected", caller=f"pid {shim.process.pid} uid {os.geteuid()}")
    assert shim.process.stdin is not None
    fd = shim.process.stdin.fileno()
    os.set_blocking(fd, False)
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    taken = 0
    data = note_line("x" * 60000)
    rest = memoryview(data)
    while poll.poll(300):
        with suppress(BlockingIOError):
            written = os.write(fd, rest)
            taken += written
            rest = rest[written:] or memoryview(data)
        assert taken < KEPT_AT_MOST_BYTES
    assert taken > MEBIBYTE  # else only the kernel's buffers are full
