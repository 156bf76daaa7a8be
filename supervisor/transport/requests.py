"""What asks an MCP server and waits for the answer; a process or a network may be behind it."""

from collections.abc import Mapping
from typing import Protocol

from pydantic import JsonValue


class Requests(Protocol):
    """One connection to one server, as those see it who ask."""

    async def request(
        self,
        method: str,
        params: Mapping[str, JsonValue] | None = None,
        *,
        limit_s: float,
        setting: str = "requestTimeoutMs",
    ) -> dict[str, JsonValue]:
        """Ask, and wait for the result.

        Args:
            method: of MCP.
            params: a JSON object, or None for none.
            limit_s: seconds from now.
            setting: the key of the server's record that gave the limit, for the error.

        Returns:
            The `result` object.

        Raises:
            RpcError: the server answered with an error.
            CallTimedOutError: it did not answer in time; it was told so.
            ServerGoneError: it ended before it answered.
            BadAnswerError: the answer is no result.

        Cancel-safe: yes; the server is told `notifications/cancelled`.
        """

    def notify(self, method: str, params: Mapping[str, JsonValue] | None = None) -> None:
        """Tell something; nothing comes back."""
