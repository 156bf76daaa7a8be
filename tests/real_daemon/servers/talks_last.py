"""Refuses what it is asked; when its client has left it writes 40 000 lines, and goes."""

import json
import sys

LINE = b'{"jsonrpc":"2.0","method":"notifications/last","params":{"pad":"%s"}}\n' % (b"x" * 40)

for line in sys.stdin.buffer:
    error = {"code": -32601, "message": "nothing is known here"}
    answer = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": error}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()
sys.stdout.buffer.write(LINE * 40000)
sys.stdout.buffer.flush()
