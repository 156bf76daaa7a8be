"""The tools of `wayward.py`, each with one bad habit, and some good ones to show what survives."""

import json
import os
import threading
import time
from functools import partial
from typing import Any, Final

from wayward_server import Message, Server

LATE_S: Final = 0.1
BYTE_EVERY_S: Final = 0.002
LIFETIME_S: Final = 600
CHUNK_BYTES: Final = 65536
SPLIT_TEXT: Final = "\u2264 \U0001f600 \u6f22\u5b57"

Arguments = dict[str, Any]


def add_tools(server: Server) -> None:
    """Give a server all of them."""
    waiting: dict[object, Message] = {}
    for tool in (hello, latin1, split, sized, endless, freeze, hold, die, close, announce):
        server.tools[tool.__name__] = partial(tool, server)
    for tool in (echo, progress, ask):
        server.tools[tool.__name__] = partial(_in_thread, partial(tool, server))
    server.tools["stubborn"] = partial(stubborn, waiting)
    server.on_cancelled = partial(answer_late, server, waiting)


def hello(server: Server, request: Message, _: Arguments) -> None:
    """Answer, as it should be."""
    server.text(request, "hi")


def echo(server: Server, request: Message, arguments: Arguments) -> None:
    """Answer after a delay with what was given, and the id that was seen."""
    server.saw(f"request {json.dumps(request['id'])} {arguments.get('tag')}")
    time.sleep(float(arguments.get("delay", 0)))  # noqa: TID251 - a tool that takes its time
    told = {"tag": arguments.get("tag"), "wire_id": request["id"], "pid": os.getpid()}
    server.text(request, json.dumps(told))


def latin1(server: Server, request: Message, _: Arguments) -> None:
    """Put one byte that is no UTF-8 into the answer."""
    head = b'{"jsonrpc":"2.0","id":%b' % json.dumps(request["id"]).encode()
    server.raw(head + b',"result":{"content":[{"type":"text","text":"caf\xe9"}]}}\n')


def split(server: Server, request: Message, _: Arguments) -> None:
    """Write the answer byte by byte, also inside of characters."""
    result = {"content": [{"type": "text", "text": SPLIT_TEXT}]}
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
    for byte in json.dumps(answer, ensure_ascii=False).encode() + b"\n":
        server.raw(bytes([byte]))
        time.sleep(BYTE_EVERY_S)  # noqa: TID251 - so that each byte comes alone


def sized(server: Server, request: Message, arguments: Arguments) -> None:
    """Answer with one line of so many bytes, without the newline."""
    answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}}
    empty = json.dumps(answer, separators=(",", ":")).encode()
    text = b'{"type":"text","text":"%b"}'
    pad = b"x" * (int(arguments["bytes"]) - len(empty) - len(text) + 2)
    server.raw(empty.replace(b"[]", b"[%b]" % (text % pad)) + b"\n")


def endless(server: Server, _request: Message, _: Arguments) -> None:
    """Begin a line and never end it."""
    server.raw(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"')
    while True:
        server.raw(b"x" * CHUNK_BYTES)


def freeze(server: Server, request: Message, _: Arguments) -> None:
    """Answer, and never read stdin again."""
    server.text(request, "frozen")
    _live_on()


def hold(server: Server, request: Message, arguments: Arguments) -> None:
    """Do not answer."""
    server.saw(f"request {json.dumps(request['id'])} {arguments.get('tag')}")


def die(_server: Server, _request: Message, _: Arguments) -> None:
    """End in the middle of calls."""
    os.write(2, b"panic: out of cheese\n")
    os._exit(7)


def close(_server: Server, _request: Message, _: Arguments) -> None:
    """Exit with success in the middle of calls."""
    os._exit(0)


def stubborn(waiting: dict[object, Message], request: Message, _: Arguments) -> None:
    """Answer when, and only when, nobody waits any more."""
    waiting[request["id"]] = request


def answer_late(server: Server, waiting: dict[object, Message], request_id: object) -> None:
    """A cancellation is answered with an error, and then with a result as well."""
    request = waiting.pop(request_id, None)
    if request is None:
        return
    server.say({"id": request_id, "error": {"code": 0, "message": "cancelled on demand"}})
    threading.Timer(LATE_S, server.text, (request, "too late")).start()


def progress(server: Server, request: Message, arguments: Arguments) -> None:
    """Tell of each step, then answer."""
    token = (request["params"].get("_meta") or {}).get("progressToken")
    steps = int(arguments.get("steps", 3))
    for step in range(1, steps + 1):
        server.notify("progress", progressToken=token, progress=step, total=steps)
    server.text(request, "done")


def ask(server: Server, request: Message, arguments: Arguments) -> None:
    """Ask the client something, and answer with what it said."""

    def answer(reply: Message) -> None:
        server.text(request, json.dumps(reply))

    asked_id = arguments.get("id", f"of-{request['id']}")
    if arguments.get("detached"):
        server.text(request, "asked")
        server.ask(
            str(arguments["method"]),
            asked_id,
            lambda reply: server.saw(f"reply {json.dumps(reply)}"),
        )
    else:
        server.ask(str(arguments["method"]), asked_id, answer)


def announce(server: Server, request: Message, arguments: Arguments) -> None:
    """Send a notification to whoever is there."""
    server.notify(str(arguments["method"]), **arguments.get("params", {}))
    server.text(request, "announced")


def _in_thread(tool: Any, request: Message, arguments: Arguments) -> None:  # noqa: ANN401 - a tool
    threading.Thread(target=tool, args=(request, arguments), daemon=True).start()


def _live_on() -> None:
    threading.Event().wait(LIFETIME_S)
