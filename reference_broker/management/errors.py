"""What the API answers when it refuses: a code of HTTP, a word, and a sentence."""

from __future__ import annotations

import re
from typing import Any, Final

from reference_broker.amqp.errors import ReplyCode

BAD_REQUEST: Final = 400
NOT_AUTHORISED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
TOO_SLOW: Final = 408
UNSUPPORTED: Final = 415
_WORDS: Final = {
    BAD_REQUEST: "bad_request", NOT_AUTHORISED: "not_authorised", FORBIDDEN: "forbidden",
    NOT_FOUND: "Object Not Found", 405: "method_not_allowed", TOO_SLOW: "request_timeout", 413: "payload_too_large",
    UNSUPPORTED: "unsupported_media_type", 500: "internal_error", 503: "unavailable",
}  # fmt: skip
_NAME: Final = re.compile("^[A-Z_]+ - ")
_OF_AMQP: Final = {
    ReplyCode.NOT_FOUND: NOT_FOUND,
    ReplyCode.ACCESS_REFUSED: NOT_AUTHORISED,
    ReplyCode.NOT_ALLOWED: NOT_AUTHORISED,
}


class ApiError(Exception):
    """A request is refused."""

    def __init__(self, code: int, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.more = more
        """What the answer has besides."""

    @property
    def word(self) -> str:
        """RabbitMQ's word for the code."""
        return _WORDS.get(self.code, "error")


def of_amqp(code: int, text: str) -> ApiError:
    """What HTTP says for a reply code and text of AMQP, without the name of the code."""
    return ApiError(_OF_AMQP.get(ReplyCode(code), BAD_REQUEST), _NAME.sub("", text))
