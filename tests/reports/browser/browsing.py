"""A browser for tests: it opens pages from disk, one after the other in one tab, and asks them by scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from tests.reports.browser.devtools import CHROMIUM, Tab, browser_tab

MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH"),
]

_ASKED = """(async () => {
  const drawn = () => { for (const name of ["beforeprint", "afterprint"]) dispatchEvent(new Event(name)); };
  %s
})()"""
"""Printing draws every figure at once: that does not depend on when the browser finds time to look what is in view."""

_T = TypeVar("_T")


class Browser:
    """One tab for all tests of a process. Each of them finds it as a new tab would be, but for the cache."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._opened = 0

    def __enter__(self) -> Self:
        self._tab = self._runner.run(self._open.enter_async_context(browser_tab(self._directory / "profile")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._open.aclose())
        self._runner.close()

    def run(self, scenario: Callable[[Tab], Awaitable[_T]]) -> _T:
        """Run a scenario in the tab. Its page may not complain."""

        async def run() -> _T:
            await self._tab.begin_anew()
            found = await scenario(self._tab)
            assert self._tab.problems == []
            return found

        return self._runner.run(run())

    def file(self, html: str) -> Path:
        """A file with this page."""
        self._opened += 1
        file = self._directory / f"page{self._opened}.html"
        file.write_text(html, encoding="utf-8")
        return file

    def ask(self, html: str, script: str, *, state: str = "", size: tuple[int, int] = (1280, 6000)) -> Any:
        """What ``script`` returns in the page, which was opened from disk with ``state`` behind its address."""
        return self.ask_file(self.file(html), script, state=state, size=size)

    def ask_file(self, file: Path, script: str, *, state: str = "", size: tuple[int, int] = (1280, 6000)) -> Any:
        """The same for a page that is on disk."""

        async def look(tab: Tab) -> Any:
            await tab.resize(*size)
            await tab.open(f"{file.as_uri()}{state}")
            return await tab.ask(_ASKED % script)

        return self.run(look)
