"""The kinds of frames between nodes. docs/internals/node.md has the body of each kind."""

from __future__ import annotations

from enum import IntEnum


class FrameKind(IntEnum):
    """The kind of a frame."""

    HELLO = 0
    HEARTBEAT = 1
    RAFT = 2
    PROPOSE = 3
    REQUEST = 4
    ANSWER = 5
    ATTACH = 6
    LEADING = 7
    CATCH_UP = 8
    EFFECTS = 9
    APPLIED = 10
    PART = 11
    LAST_PART = 12
    RING = 13
    NOTE = 14
    COPY = 15
    FILL = 16
    LEAVING = 17
