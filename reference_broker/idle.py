"""The parts that an unused queue does without."""

from __future__ import annotations

from typing import Any, Final

NOTHING: Final[Any] = ()
"""Stands for a deque that nothing was put into yet. An empty deque takes 760 octets, and a queue has a dozen; the code
that adds an item makes the deque first."""

NONE: Final[frozenset[Any]] = frozenset()
"""Stands for a set that nothing was put into yet. Each empty set takes 216 octets, a frozen one too."""
