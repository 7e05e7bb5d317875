"""Places for the labels of points, so that no label lies on a line, on a point, or on another label.

All lengths are pixels of a chart of usual size; a narrower chart has the same places, and less room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, hypot
from typing import Final

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right and top."""

CHART_PX: Final[Point] = (365.0, 200.0)
"""Width and height of the room of all points in a chart beside an answer."""
LETTER_PX: Final = 8.0
HEIGHT_PX: Final = 15.0
GAP_PX: Final = 6.0
"""Distance of a label from the middle of its point."""
STEP_PX: Final = 4.0
"""Distance of the points by which a line is looked at."""
SIDES: Final = (
    "top left",
    "middle left",
    "top center",
    "top right",
    "middle right",
    "bottom right",
    "bottom center",
    "bottom left",
)
LEFT_SIDES: Final = ("top left", "middle left", "bottom left")


def box(at: Point, text: str, side: str) -> Box:
    """The room of a label on one side of its point."""
    width = LETTER_PX * len(text)
    upright, across = side.split()
    left = {"left": -GAP_PX - width, "center": -width / 2, "right": GAP_PX}[across]
    bottom = {"top": GAP_PX, "middle": -HEIGHT_PX / 2, "bottom": -GAP_PX - HEIGHT_PX}[upright]
    return (at[0] + left, at[1] + bottom, at[0] + left + width, at[1] + bottom + HEIGHT_PX)


def along(line: Sequence[Point]) -> Iterator[Point]:
    """Points on a line, at most :data:`STEP_PX` apart."""
    for (x, y), (to_x, to_y) in pairwise(line):
        count = ceil(hypot(to_x - x, to_y - y) / STEP_PX) or 1
        yield from ((x + (to_x - x) * at / count, y + (to_y - y) * at / count) for at in range(count))
    yield from line[-1:]


def is_free(room: Box, inked: Sequence[Point], taken: Sequence[Box], left: float) -> bool:
    """Whether a label there lies on nothing, and not left of the axis."""
    low_x, low_y, high_x, high_y = room
    return (
        low_x >= left
        and not any(low_x <= x <= high_x and low_y <= y <= high_y for x, y in inked)
        and not any(
            low_x < other[2] and other[0] < high_x and low_y < other[3] and other[1] < high_y for other in taken
        )
    )


def side_of(
    at: Point,
    text: str,
    wanted: str,
    inked: Sequence[Point],
    taken: Sequence[Box],
    left: float,
    sides: Sequence[str] = SIDES,
) -> str | None:
    """The wanted side if it is free, or the first other free one of ``sides``; None if no side is free."""
    ordered = (wanted, *(side for side in sides if side != wanted))
    return next((side for side in ordered if is_free(box(at, text, side), inked, taken, left)), None)
