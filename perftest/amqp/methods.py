"""Methods without content: their frames, and their names as the specification writes them."""

from __future__ import annotations

from pamqp import commands, frame
from pamqp.base import Frame as Method


def encode(channel: int, method: Method) -> bytes:
    """The frame of a method without content."""
    return frame.marshal(method, channel)


def method_name(class_id: int, method_id: int) -> str:
    """The name of a method: ``queue.declare`` for 50, 10; empty for 0, 0; the numbers if the method is unknown."""
    if not class_id:
        return ""
    known = commands.INDEX_MAPPING.get(class_id << 16 | method_id)
    if known is None:
        return f"method {class_id}.{method_id}"
    group, _, name = str(getattr(known, "name", "")).partition(".")
    return f"{group.lower()}.{''.join('-' + c.lower() if c.isupper() else c for c in name).lstrip('-')}"
