"""A node that writes down which functions of the broker run: the number of calls by file and function, over all
threads.

SIGUSR1 begins and writes the file ``tracing`` beside ``node.json``. SIGUSR2 ends and writes ``trace.json`` there.

The trace is of calls, not of time, so it is the same on a fast machine and on a slow one.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import reference_broker
from reference_broker.node.__main__ import main

ROOT = str(Path(reference_broker.__file__).parent) + "/"


class Trace:
    """Counts calls of functions that have a file below the broker's directory, while it is on."""

    def __init__(self) -> None:
        self._calls: Counter[CodeType] = Counter()
        self._is_on = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._is_on and event == "call" and frame.f_code.co_filename.startswith(ROOT):
            self._calls[frame.f_code] += 1

    def begin(self) -> None:
        self._calls.clear()
        self._is_on = True

    def end(self) -> dict[str, int]:
        """The calls by ``file function``, since :meth:`begin`."""
        self._is_on = False
        return {f"{code.co_filename[len(ROOT) :]} {code.co_qualname}": calls for code, calls in self._calls.items()}


if __name__ == "__main__":
    trace = Trace()
    place = Path(sys.argv[sys.argv.index("--config") + 1]).parent

    def begin(*_: object) -> None:
        (place / "tracing").touch()
        trace.begin()

    def end(*_: object) -> None:
        (place / "trace.new").write_text(json.dumps(trace.end()))
        (place / "trace.new").rename(place / "trace.json")

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    threading.setprofile(trace)
    sys.setprofile(trace)
    sys.exit(main())
