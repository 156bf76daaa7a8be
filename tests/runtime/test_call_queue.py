"""Calls to one server take turns; a caller who gives up stands in nobody's way."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from trio.testing import MockClock

from supervisor.runtime.call_queue import CallQueue

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    """The queue knows no clock, so both loops have to agree."""
    if request.param == "trio":
        return "trio", {"clock": MockClock(autojump_threshold=0)}
    return "asyncio"


class Calls:
    """Calls by name: who runs, and how each is let go."""

    def __init__(self, queue: CallQueue, tasks: anyio.abc.TaskGroup) -> None:
        self.queue = queue
        self.tasks = tasks
        self.running: list[str] = []
        self._ends: dict[str, anyio.Event] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}

    async def start(self, name: str, *, read_only: bool = False) -> None:
        """Let one call arrive."""
        self._ends[name] = anyio.Event()
        self.tasks.start_soon(self._run, name, read_only)
        await settle()

    async def end(self, name: str) -> None:
        """Let it come to its end."""
        self._ends[name].set()
        await settle()

    async def cancel(self, name: str) -> None:
        """Cancel it, wherever it is."""
        self._scopes[name].cancel()
        await settle()

    async def _run(self, name: str, read_only: bool) -> None:
        with anyio.CancelScope() as self._scopes[name]:
            async with self.queue.turn(read_only=read_only):
                self.running.append(name)
                try:
                    await self._ends[name].wait()
                finally:
                    self.running.remove(name)


async def settle() -> None:
    """Let every task come as far as it can."""
    for _ in range(10):
        await checkpoint()


async def test_calls_follow_one_another_and_the_queue_is_visible() -> None:
    """An operator sees what a slow call holds up."""
    queue = CallQueue()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            calls = Calls(queue, tasks)
            for name in "abc":
                await calls.start(name)
            assert (calls.running, queue.running, queue.waiting) == (["a"], 1, 2)
            for name in "abc":
                assert calls.running == [name]
                await calls.end(name)
    assert (queue.running, queue.waiting) == (0, 0)


async def test_readers_run_together() -> None:
    """Three searches need not wait for each other."""
    queue = CallQueue()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            calls = Calls(queue, tasks)
            for name in "abc":
                await calls.start(name, read_only=True)
            await calls.start("writer")
            assert calls.running == ["a", "b", "c"]
            for name in "abc":
                await calls.end(name)
            assert calls.running == ["writer"]
            await calls.end("writer")


async def test_who_is_cancelled_while_waiting_leaves_the_queue() -> None:
    """The call behind would else wait for a turn that nobody takes."""
    queue = CallQueue()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            calls = Calls(queue, tasks)
            for name in "abc":
                await calls.start(name)
            await calls.cancel("b")
            assert queue.waiting == 1
            await calls.cancel("a")
            assert calls.running == ["c"]
            await calls.end("c")
    assert (queue.running, queue.waiting) == (0, 0)


async def test_who_is_cancelled_just_when_the_turn_comes_passes_it_on() -> None:
    """Between the opening of the door and the step through it there is a moment."""
    queue = CallQueue()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            calls = Calls(queue, tasks)
            for name in "abc":
                await calls.start(name)
            calls._ends["a"].set()
            while queue.waiting == 2:
                await checkpoint()
            calls._scopes["b"].cancel()
            await settle()
            assert calls.running == ["c"]
            await calls.end("c")


async def test_a_call_that_fails_gives_its_turn_back() -> None:
    """One error would else stop all later calls."""
    queue = CallQueue()

    async def fail() -> None:
        async with queue.turn(read_only=False):
            message = "no"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="no"):
        await fail()
    with anyio.fail_after(5):
        async with queue.turn(read_only=False):
            assert queue.running == 1


async def test_a_changed_record_lets_the_waiting_in() -> None:
    """No restart is needed for it."""
    queue = CallQueue()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            calls = Calls(queue, tasks)
            for name in "ab":
                await calls.start(name)
            queue.allow_parallel(parallel=True)
            await settle()
            assert calls.running == ["a", "b"]
            for name in "ab":
                await calls.end(name)
