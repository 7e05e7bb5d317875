"""Names that the format of workload files allows."""

from __future__ import annotations

import re
from typing import Final

NAME_MAX: Final = 80


def name_of(text: str, room: int = NAME_MAX) -> str:
    """Small letters, digits and single underscores, at most ``room`` of them: what is left of a title or a path."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:room].strip("_")
    return plain or "imported"
