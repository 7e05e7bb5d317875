"""Folders in trouble: one that dies at a call, and one that lets others go first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import BinaryIO

from perftest.results.folder import Content, Folder, FolderEntry


class WatchedFolder:
    """Calls ``before`` ahead of every call, with the name of the call."""

    def __init__(self, inner: Folder, before: Callable[[str], None]) -> None:
        self._inner = inner
        self._before = before
        self.where = inner.where

    def names(self, below: str = "") -> list[str]:
        self._before("names")
        return self._inner.names(below)

    def files(self, below: str = "") -> list[FolderEntry]:
        self._before("files")
        return self._inner.files(below)

    def open(self, name: str) -> BinaryIO:
        self._before("open")
        return self._inner.open(name)

    def put_if_absent(self, name: str, content: Content) -> bool:
        self._before("put_if_absent")
        return self._inner.put_if_absent(name, content)

    def delete(self, name: str) -> None:
        self._before("delete")
        self._inner.delete(name)


def dying(inner: Folder, at: int) -> tuple[WatchedFolder, list[str]]:
    """A folder whose call number ``at`` fails, from 0, and every later call; and the list of calls so far."""
    calls: list[str] = []

    def before(call: str) -> None:
        calls.append(call)
        if len(calls) > at:
            raise OSError(28, "No space left on device")

    return WatchedFolder(inner, before), calls


class Turns:
    """Threads of which exactly one runs at a time: before every call to a folder, ``order`` says who goes next."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order = list(order)
        self._changed = threading.Condition()
        self._alive: set[int] = set()
        self._turn = 0
        self._errors: list[BaseException] = []

    def run(self, works: Sequence[Callable[[Callable[[str], None]], None]]) -> None:
        """Run all, each with the function that waits for its turn; raises what one of them raised."""
        self._alive = set(range(len(works)))
        self._next()
        threads = [
            threading.Thread(target=self._work, args=(number, work), daemon=True) for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _work(self, number: int, work: Callable[[Callable[[str], None]], None]) -> None:
        try:
            self._wait(number)
            work(lambda _call: self._yield(number))
        except BaseException as error:
            self._errors.append(error)
        finally:
            with self._changed:
                self._alive.discard(number)
                self._next()

    def _yield(self, number: int) -> None:
        with self._changed:
            self._next()
        self._wait(number)

    def _wait(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number)

    def _next(self) -> None:
        alive = sorted(self._alive)
        if alive:
            choice = self._order.pop(0) if self._order else self._turn + 1
            self._turn = alive[choice % len(alive)]
        self._changed.acquire()
        self._changed.notify_all()
        self._changed.release()
