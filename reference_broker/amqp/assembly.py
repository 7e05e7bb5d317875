"""A content of several frames, put together as they come: what the fast path leaves.

Between a basic.publish and the end of its content only its own header and body frames may come on the channel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reference_broker.amqp.errors import HardError, MethodId, ReplyCode, SoftError
from reference_broker.amqp.fields import check_properties
from reference_broker.amqp.frames import BODY, CONTENT_HEAD, FRAME_HEAD, HEADER, reframe
from reference_broker.amqp.link import Link
from reference_broker.machines.commands import NO_TTL

if TYPE_CHECKING:
    from reference_broker.amqp.channel import Route

BASIC_CLASS: Final = 60
_PUBLISH: Final[MethodId] = (60, 40)
_PROPERTY_FLAGS_OCTETS: Final = 2


@dataclass(slots=True)
class Assembly:
    """A content that is still coming on a channel."""

    route: Route
    number: int
    link: Link
    remaining: int = -1
    """Octets of body still due; -1 while the content header is."""
    body_size: int = 0
    ttl_ms: int = NO_TTL
    frames: list[bytes] = field(default_factory=list)

    @property
    def due(self) -> str:
        """What must come next."""
        return "header" if self.remaining < 0 else "body"

    def header(self, payload: bytes) -> bytes | None:
        """Take a content header frame's payload; returns the content if it is complete with that (an empty body)."""
        if self.remaining >= 0:
            text = "expected content body, got non content body frame instead"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text, _PUBLISH)
        if len(payload) < CONTENT_HEAD.size + _PROPERTY_FLAGS_OCTETS:
            raise HardError(ReplyCode.FRAME_ERROR, f"content header of {len(payload)} octets is cut short", _PUBLISH)
        class_id, weight, body_size = CONTENT_HEAD.unpack_from(payload)
        if class_id != BASIC_CLASS or weight:
            text = f"expected content header for class 60, got one for class {class_id}, weight {weight} instead"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text, _PUBLISH)
        limit = self.link.config.max_message_bytes
        if body_size > limit:
            text = f"message size {body_size} is larger than configured max size {limit}"
            raise SoftError(ReplyCode.PRECONDITION_FAILED, text, _PUBLISH)
        self.ttl_ms = check_properties(payload, CONTENT_HEAD.size, len(payload), self.link.user)
        self.frames.append(FRAME_HEAD.pack(HEADER, self.number, len(payload)) + payload + b"\xce")
        self.remaining = self.body_size = body_size
        return self._content_if_complete()

    def body(self, payload: bytes) -> bytes | None:
        """Take a body frame's payload; returns the content once it is complete."""
        if self.remaining < 0:
            text = "expected content header, got non content header frame instead"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text, _PUBLISH)
        if len(payload) > self.remaining:
            text = f"content body is longer than the announced {self.body_size} octets"
            raise HardError(ReplyCode.FRAME_ERROR, text, _PUBLISH)
        if payload:
            self.frames += [FRAME_HEAD.pack(BODY, self.number, len(payload)), payload, b"\xce"]
        self.remaining -= len(payload)
        return self._content_if_complete()

    def _content_if_complete(self) -> bytes | None:
        if self.remaining:
            return None
        content = b"".join(self.frames)
        if len(content) > 2 * self.body_size + self.link.frame_max:
            # Frames of a few octets each: nobody shall store and carry more framing than body.
            return reframe(content, self.number, self.link.frame_max)
        return content
