"""Words for the person at the terminal, on stderr: progress, notes, what went wrong."""

from __future__ import annotations

import sys


def tell(text: str) -> None:
    """Write a line to stderr at once. A character that the terminal lacks becomes a question mark."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    sys.stderr.write(text.encode(encoding, "replace").decode(encoding) + "\n")
    sys.stderr.flush()
