"""Clients of one named session of which one does not read: it is let go, the others go on."""

import json
from pathlib import Path

from real_daemon.conftest import StartDaemon
from real_daemon.conversation import conversations
from real_daemon.waywards import MEBIBYTE, only, wayward

QUEUE_BYTES = 65536


def test_a_client_that_does_not_read_is_let_go_and_the_other_goes_on(
    stopped_daemon: StartDaemon, tmp_path: Path
) -> None:
    """Nobody's silence may fill the memory, or hold up who shares the server (design 9)."""
    daemon = stopped_daemon({"files": wayward(tmp_path / "files")})
    content = json.loads(daemon.config_file.read_text("utf-8"))
    content["supervisor"] = {"maxClientQueueBytes": QUEUE_BYTES}
    daemon.config_file.write_text(json.dumps(content), "utf-8")
    daemon.start()
    with conversations(daemon, "files", "--session", "a") as (silent, reader):
        for client in (silent, reader):
            client.greet()
        asked = [
            silent.send("tools/call", name="sized", arguments={"bytes": MEBIBYTE}) for _ in range(4)
        ]
        slow = daemon.log.wait_for("client_too_slow", server="files")
        assert slow["session"] == "a"
        assert slow["waiting_bytes"] > QUEUE_BYTES
        for _ in range(3):
            assert len(reader.call("sized", bytes=MEBIBYTE)) > MEBIBYTE - 200
        code, out, err = silent.shim.finish()
        assert out.count(b"\n") < len(asked)
        assert only(daemon, "files")["clients"] == 1
        assert code != 0, err
