"""What a queue does without while nobody uses it."""

from __future__ import annotations

from typing import Any, Final

NOTHING: Final[Any] = ()
"""Stands for a deque that nothing was put into yet. A deque takes 760 octets however little it holds, and a queue has a
dozen; whoever puts something in makes the deque first."""

NONE: Final[frozenset[Any]] = frozenset()
"""Stands for a set that nothing was put into yet. Each empty set takes 216 octets, a frozen one too."""
