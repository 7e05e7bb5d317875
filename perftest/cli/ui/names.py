"""The names of the views; the help needs them without what the views need."""

from typing import Final

UI_NAMES: Final = ("auto", "live", "line", "plain", "json", "none")
METRICS_FORMATS: Final = ("default", "compact")
"""Of PerfTest's console lines, ``plain``."""
