"""The names of the views; the help needs them without what the views need."""

from typing import Final

UI_NAMES: Final = ("auto", "live", "line", "json", "none")
