"""Pages that are made when somebody asks for them: each once for all who ask, and one at a time, because Spark takes
all cores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from pathlib import Path

from perftest.errors import HelpfulError


class PagesInMaking:
    """Makes pages in threads, each under the key of what it shows."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Path]] = {}
        self._one_at_a_time = asyncio.Lock()

    def knows(self, key: Hashable) -> bool:
        """Whether a page was asked for whose end nobody has heard yet."""
        return key in self._tasks

    def ask(self, key: Hashable, make: Callable[[], Path]) -> Path | None:
        """The path of the page once it is made, and None until then; ``make`` is called if nobody asked before. A page
        that was made, or could not be, is forgotten when that was told: who asks again has it made again.

        :raises HelpfulError: the page could not be made
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._made(make))
        if not task.done():
            return None
        del self._tasks[key]
        return task.result()

    def end(self) -> None:
        """Wait for no page any more."""
        for task in self._tasks.values():
            task.cancel()

    async def _made(self, make: Callable[[], Path]) -> Path:
        async with self._one_at_a_time:
            try:
                return await asyncio.to_thread(make)
            except HelpfulError:
                raise
            except Exception as error:  # a reader of the page gets a sentence whatever happened
                what = f"the page could not be made: {type(error).__name__}: {error}"
                raise HelpfulError(
                    what, "the server", "try `perftest report` or `perftest compare` for these runs"
                ) from error
