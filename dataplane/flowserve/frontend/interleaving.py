"""Several asynchronous generators as one, in the order in which their items come."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import TypeVar

T = TypeVar("T")


async def interleaved(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """Each item, none of them None, with its source's number. However this is left, all sources are closed.

    The first error of a source ends it. A source is asked for its next item only when the last one was taken.
    """
    async with AsyncExitStack() as stack:
        for source in sources:
            await stack.enter_async_context(aclosing(source))
        if len(sources) == 1:  # no tasks where nothing can overtake
            async for item in sources[0]:
                yield 0, item
            return
        waiting = {_next(source): number for number, source in enumerate(sources)}
        stack.push_async_callback(_cancel, waiting)
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number = waiting.pop(task)
                if (found := task.result()) is not None:
                    waiting[_next(sources[number])] = number
                    yield number, found


def _next(source: AsyncGenerator[T, None]) -> "asyncio.Task[T | None]":
    async def item() -> T | None:
        return await anext(source, None)

    return asyncio.create_task(item())


async def _cancel(tasks: "dict[asyncio.Task[T | None], int]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
