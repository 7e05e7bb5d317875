"""The meaning of Ctrl-C (or SIGTERM, or a closed terminal) at each moment of a measured run.

Before the first message there is nothing to keep: the command ends, and further signals do not disturb its cleanup.
While the run measures, the run decides. While processes end and results are written, signals are ignored, so that one
more Ctrl-C cannot cost the data. During the report, a signal ends the report.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # fmt: skip


class Interrupts:
    """The handler of all three signals. :meth:`during`, :meth:`ignore` and :meth:`allow` set the effect of a signal."""

    def __init__(self) -> None:
        self._listener: Callable[[int], None] | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals in this block. Outside the main thread, as in a test, there are no signals to handle."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: list[tuple[int, Any]] = [(number, signal.signal(number, self._handle)) for number in SIGNALS]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    @contextlib.contextmanager
    def during(self, listener: Callable[[int], None]) -> Iterator[None]:
        """Tell ``listener`` the number of each signal in this block; after the block, signals are ignored."""
        self._listener = listener
        try:
            yield
        finally:
            self.ignore()

    @contextlib.contextmanager
    def ignored_after(self) -> Iterator[None]:
        """Ignore signals after this block, however it ends: what follows writes results."""
        try:
            yield
        finally:
            self.ignore()

    def ignore(self) -> None:
        """Ignore signals from now on."""
        self._listener = _nothing

    def allow(self) -> None:
        """Let the next signal raise KeyboardInterrupt; after that, signals are ignored."""
        self._listener = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._listener is not None:
            self._listener(number)
            return
        self.ignore()  # the cleanup must not be interrupted
        raise KeyboardInterrupt


def _nothing(_number: int) -> None:
    """The answer to a signal while results are written."""
