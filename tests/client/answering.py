"""A server that says what a test wants, HTTP or not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cli.fake_daemon import listening

OK: Final = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def answering(runtime_dir: Path, *pieces: bytes) -> Iterator[str]:
    """A server that sends these bytes whatever it is asked, then hangs up; its socket's path."""
    with listening(runtime_dir) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield str(runtime_dir / "mcp.sock")
        finally:
            thread.join()
