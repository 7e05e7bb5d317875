"""A content that comes in several frames, put together as the frames arrive.

The fast path leaves such contents to this module. Between a basic.publish and the end of its content, only the header
frame and the body frames of that content may come on the channel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from reference_broker.amqp.errors import BASIC_PUBLISH, HardError, ReplyCode, SoftError
from reference_broker.amqp.fields import check_properties
from reference_broker.amqp.frames import BASIC_CLASS, BODY, CONTENT_HEAD, FRAME_HEAD, HEADER, reframe
from reference_broker.amqp.state import ConnectionState
from reference_broker.types import NO_TTL

_PROPERTY_FLAGS_OCTETS: Final = 2


@dataclass(slots=True)
class PartialContent:
    """A content that is not complete yet, on channel ``number``."""

    number: int
    state: ConnectionState
    remaining: int = -1
    """Octets of the body that are still due; -1 while the content header is still due."""
    body_size: int = 0
    ttl_ms: int = NO_TTL
    frames: list[bytes] = field(default_factory=list)

    @property
    def due(self) -> str:
        """The part that must come next: header or body."""
        return "header" if self.remaining < 0 else "body"

    def header(self, payload: bytes) -> bytes | None:
        """Take the payload of a content header frame. Returns the content if its body is empty, else None."""
        if self.remaining >= 0:
            text = "expected content body, got non content body frame instead"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text, BASIC_PUBLISH)
        if len(payload) < CONTENT_HEAD.size + _PROPERTY_FLAGS_OCTETS:
            raise HardError(
                ReplyCode.FRAME_ERROR, f"content header of {len(payload)} octets is cut short", BASIC_PUBLISH
            )
        class_id, weight, body_size = CONTENT_HEAD.unpack_from(payload)
        if class_id != BASIC_CLASS or weight:
            text = f"expected content header for class 60, got one for class {class_id}, weight {weight} instead"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text, BASIC_PUBLISH)
        limit = self.state.config.max_message_bytes
        if body_size > limit:
            text = f"message size {body_size} is larger than configured max size {limit}"
            raise SoftError(ReplyCode.PRECONDITION_FAILED, text, BASIC_PUBLISH)
        self.ttl_ms = check_properties(payload, CONTENT_HEAD.size, len(payload), self.state.user_id)
        self.frames.append(FRAME_HEAD.pack(HEADER, self.number, len(payload)) + payload + b"\xce")
        self.remaining = self.body_size = body_size
        return self._content_if_complete()

    def body(self, payload: bytes) -> bytes | None:
        """Take the payload of a body frame. Returns the content if this was its last frame, else None."""
        if self.remaining < 0:
            text = "expected content header, got non content header frame instead"
            raise HardError(ReplyCode.UNEXPECTED_FRAME, text, BASIC_PUBLISH)
        if len(payload) > self.remaining:
            text = f"content body is longer than the announced {self.body_size} octets"
            raise HardError(ReplyCode.FRAME_ERROR, text, BASIC_PUBLISH)
        if payload:
            self.frames += [FRAME_HEAD.pack(BODY, self.number, len(payload)), payload, b"\xce"]
        self.remaining -= len(payload)
        return self._content_if_complete()

    def _content_if_complete(self) -> bytes | None:
        if self.remaining:
            return None
        content = b"".join(self.frames)
        if len(content) > 2 * self.body_size + self.state.frame_max:
            # The client sent frames of a few octets. Nobody shall store and carry more framing than body.
            return reframe(content, self.number, self.state.frame_max)
        return content
