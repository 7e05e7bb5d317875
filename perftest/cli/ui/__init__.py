"""What a person sees: the live screen, plain lines, JSON, and the summary at the end.

All views render the same records (:class:`~perftest.metrics.interval.Interval` and events) through one
:class:`~perftest.cli.ui.board.Board`. No process that measures draws a view.
"""

from typing import Final

UI_NAMES: Final = ("auto", "live", "line", "plain", "json", "none")
METRICS_FORMATS: Final = ("default", "compact")
"""Of PerfTest's console lines, ``plain``."""
