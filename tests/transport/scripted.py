"""A server that answers by a script, for those who ask through `Requests`."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
from pydantic import JsonValue

from supervisor.core.call_errors import CallTimedOutError, RpcError, ServerGoneError

SERVER = "files"


@dataclass(frozen=True, slots=True)
class After:
    """An answer that takes its time."""

    seconds: float
    answer: "Answer"


@dataclass(frozen=True, slots=True)
class Dies:
    """The server ends."""


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing comes back."""


Answer = dict[str, JsonValue] | Exception | After | Dies | Silent


def rpc_error(code: int, data: JsonValue = None) -> RpcError:
    """The server's own error."""
    return RpcError(SERVER, "it", code, "no", data)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it arrived."""

    method: str
    params: Mapping[str, JsonValue]
    limit_s: float
    setting: str


class ScriptedServer:
    """Implements `Requests`; the answers of a method are used up in order, the last one stays.

    Attributes:
        asked: every request.
        told: the methods of all notifications.
        cancelled: the methods of requests that were given up.
    """

    def __init__(self, **answers: list[Answer]) -> None:
        self.asked: list[Asked] = []
        self.told: list[str] = []
        self.cancelled: list[str] = []
        self.gone = False
        self._answers = {name.replace("__", "/"): list(script) for name, script in answers.items()}

    def methods(self) -> list[str]:
        """What was asked, in order."""
        return [one.method for one in self.asked]

    async def request(
        self,
        method: str,
        params: Mapping[str, JsonValue] | None = None,
        *,
        limit_s: float,
        setting: str = "requestTimeoutMs",
    ) -> dict[str, JsonValue]:
        """Answer by the script."""
        self.asked.append(Asked(method, copy.deepcopy(params or {}), limit_s, setting))
        if self.gone:
            raise self._end()
        script = self._answers.get(method)
        answer: Answer = rpc_error(-32601)
        if script:
            answer = script.pop(0) if len(script) > 1 else script[0]
        try:
            with anyio.move_on_after(limit_s):
                return await self._give(answer)
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(method)
            raise
        self.cancelled.append(method)
        raise CallTimedOutError(SERVER, limit_s, setting)

    def notify(self, method: str, params: Mapping[str, JsonValue] | None = None) -> None:
        """Note it."""
        del params
        self.told.append(method)

    async def _give(self, answer: Answer) -> dict[str, JsonValue]:
        while isinstance(answer, After):
            await anyio.sleep(answer.seconds)
            answer = answer.answer
        match answer:
            case Exception():
                raise answer
            case Dies():
                raise self._end()
            case Silent():
                await anyio.sleep_forever()
                raise AssertionError
            case _:
                return answer

    def _end(self) -> ServerGoneError:
        self.gone = True
        return ServerGoneError(SERVER, "exited with code 1")
