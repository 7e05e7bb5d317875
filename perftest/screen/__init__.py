"""The views of a run while it lasts: the live screen, plain lines, or JSON.

All views render the same records (:class:`~perftest.metrics.interval.Interval` and events) through one
:class:`~perftest.screen.board.Board`. No process that measures draws a view.
"""

from typing import Final

UI_NAMES: Final = ("auto", "live", "line", "plain", "json", "none")
METRICS_FORMATS: Final = ("default", "compact")
"""Of PerfTest's console lines, ``plain``."""
