"""The example of the README: an agent's side of a session."""
# ruff: noqa: T201 - an example prints

import anyio

from supervisor.client.aio import AsyncClient, ProblemError


async def main() -> None:
    """Use the tools of one server for one chat."""
    async with (
        AsyncClient.from_environment() as client,
        await client.open_session("chat-1", servers=["demo"]) as session,
    ):
        for tool in (await session.tools())["tools"]:
            print(tool["name"], "-", tool.get("description"))
        try:
            result = await session.call("demo__add", {"a": 2, "b": 3}, limit_s=30)
        except ProblemError as error:
            print(error.problem, error.fields, error)
        else:
            print(result.text, result.structured, result.is_error)


if __name__ == "__main__":
    anyio.run(main)
