"""A server that does what notifications tell it: the order of its stdin is the order of all.

A request with `params.tag` is remembered, nothing else. `notifications/do` with `params`
`{"do": "answer", "tag": 3}` answers it, `progress` tells progress of it, if it has a token,
`die` writes a line on stderr and exits with code 7. `sync` is answered at once. Standard library
only.
"""

import json
import os
from typing import Any, Final

Message = dict[str, Any]

LAST_WORDS: Final = b"told to die\n"
EXIT_CODE: Final = 7
CHUNK_BYTES: Final = 65536


def main() -> None:
    """Serve until stdin ends; what one read brings is answered with one write."""
    asked: dict[int, Message] = {}
    partial = b""
    while data := os.read(0, CHUNK_BYTES):
        *lines, partial = (partial + data).split(b"\n")
        answers: list[Message] = []
        for line in lines:
            message = json.loads(line)
            params = message.get("params") or {}
            if message.get("method") == "sync":
                answers.append({"id": message["id"], "result": {"tag": "sync"}})
            elif "id" in message and "tag" in params:
                asked[params["tag"]] = message
            elif params.get("do") == "die":
                say(answers)
                os.write(2, LAST_WORDS)
                os._exit(EXIT_CODE)
            elif "do" in params:
                answers += obey(params, asked[params["tag"]])
        say(answers)


def obey(order: Message, request: Message) -> list[Message]:
    """What is to be said to one order."""
    if order["do"] == "answer":
        return [{"id": request["id"], "result": {"tag": order["tag"]}}]
    meta = request["params"].get("_meta") or {}
    if "progressToken" not in meta:
        return []
    params = {"progressToken": meta["progressToken"], "progress": 1, "tag": order["tag"]}
    return [{"method": "notifications/progress", "params": params}]


def say(messages: list[Message]) -> None:
    """Write lines, all at once."""
    lines = [json.dumps({"jsonrpc": "2.0"} | one, separators=(",", ":")) for one in messages]
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main()
