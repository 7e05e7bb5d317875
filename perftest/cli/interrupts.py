"""What Ctrl-C (or SIGTERM, or a terminal that is closed) means at each moment of a measured run.

Before the first message there is nothing to keep: the command ends, and cleans up behind itself undisturbed. While it
measures, the run decides. While processes are ended and results are written the user's wish has been heard already:
one more signal must not cost the data. During the report it ends the report.
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
    """The handler of all three signals; what it does is set with :meth:`during` and :meth:`ignored`."""

    def __init__(self) -> None:
        self._listener: Callable[[int], None] | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals in this block. Outside the main thread (of a test) there are none to handle."""
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
        """Tell ``listener`` the number of each signal; afterwards signals are ignored until told otherwise."""
        self._listener = listener
        try:
            yield
        finally:
            self.ignore()

    def ignore(self) -> None:
        """From now on nothing may be interrupted."""
        self._listener = _nothing

    def allow(self) -> None:
        """From now on a signal raises KeyboardInterrupt, once."""
        self._listener = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._listener is not None:
            self._listener(number)
            return
        self.ignore()  # what cleans up must be able to
        raise KeyboardInterrupt


def _nothing(_number: int) -> None:
    """The answer to a signal while results are written."""
