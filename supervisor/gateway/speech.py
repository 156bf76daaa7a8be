"""What the daemon says as an MCP server: versions, capabilities, results and errors as bytes.

Results of servers are passed on as the bytes that they sent; only what is the daemon's own is
built here.

Source: MCP 2025-11-25, lifecycle and server features.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from supervisor.core.call_errors import RpcError, rpc_code_of
from supervisor.core.envelope import error_line
from supervisor.core.errors import SupervisorError
from supervisor.core.negotiation import HANDSHAKE_VERSIONS
from supervisor.core.tool_errors import ArgumentsInvalidError
from supervisor.transport.caller import dump


def initialize_result(asked_version: JsonValue, instructions: str) -> dict[str, JsonValue]:
    """The answer to `initialize`: the version that was asked for, where it is a known one."""
    known = asked_version in HANDSHAKE_VERSIONS
    return {
        "protocolVersion": asked_version if known else HANDSHAKE_VERSIONS[-1],
        "capabilities": {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True},
        },
        "serverInfo": {
            "name": "mcp-supervisord",
            "version": importlib.metadata.version("mcp-supervisord"),
        },
        "instructions": instructions,
    }


def result_line(id_token: bytes, result: bytes) -> bytes:
    """A response with a result that is JSON already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_token, result)


def listing(name: str, items: Sequence[Mapping[str, JsonValue]]) -> bytes:
    """A result with one list in it."""
    return dump({name: list(items)})


def failure_line(id_token: bytes, error: SupervisorError) -> bytes:
    """The answer to a request that failed.

    What a server answered itself is passed on. Wrong arguments are a result with `isError`, so
    that the model which wrote them can see and mend them.
    """
    match error:
        case RpcError():
            data = {} if error.data is None else {"data": error.data}
            body = {"code": error.answered_code, "message": error.answered_message, **data}
            return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_token, dump(body))
        case ArgumentsInvalidError():
            content = [{"type": "text", "text": str(error)}]
            return result_line(id_token, dump({"content": content, "isError": True}))
        case _:
            return error_line(id_token, rpc_code_of(error), str(error))
