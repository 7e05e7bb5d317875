"""Errors of the clients of places (Arrow, delta-rs, obstore) as OSError, in the words of the system or the service."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

_LOCAL: Final = re.compile(r"\(os error (\d+)\)")
_NO_ANSWER: Final = re.compile(r"\(Connect\)|dns error|operation timed out|tcp connect error")
_NO_CREDENTIALS: Final = re.compile(
    r"169\.254\.169\.254|no credentials|loading credentials|latest/api/token", re.IGNORECASE
)
_CODE: Final = re.compile(r"<Code>(\w+)</Code>|AWS Error (\w+)(?:.*HTTP status (\d+))?")
_STATUS: Final = re.compile(r"\b(401|403|404)\b (?:Unauthorized|Forbidden|Not Found)")


def plain_error(error: Exception, *, is_local: bool = False) -> OSError:
    """An error of a client at a place."""
    text = str(error)
    if is_local:
        known = _LOCAL.search(text)
        return OSError(int(known[1]), os.strerror(int(known[1]))) if known else _as_it_is(error)
    code, status = _CODE.search(text), _STATUS.search(text)
    if code:
        return of_service(code[1] or code[2], one_line(error), int(code[3] or 0))
    if _NO_CREDENTIALS.search(text):
        return PermissionError(errno.EACCES, "there are no credentials")
    if _NO_ANSWER.search(text):
        return of_service("NetworkConnection", text)
    return of_service("", one_line(error), int(status[1])) if status else _as_it_is(error)


def _as_it_is(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else OSError(errno.EIO, one_line(error))


def one_line(error: Exception) -> str:
    """The first line of an error's text."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def of_service(code: str, text: str, status: int = 0) -> OSError:
    """An error of an object storage as OSError: by its code, as Arrow or delta-rs writes the code, or by the status of
    HTTP."""
    word = code.replace("_", "").lower()
    if word == "nosuchbucket":
        return OSError(errno.ENXIO, "there is no such bucket")
    if word in ("invalidaccesskeyid", "signaturedoesnotmatch", "expiredtoken", "invalidclienttokenid"):
        return PermissionError(errno.EACCES, f"the service does not accept the credentials ({code})")
    if word in ("accessdenied", "forbidden", "403", "allaccessdisabled") or status in (401, 403):
        return PermissionError(errno.EACCES, "access denied by the service")
    if word == "networkconnection":
        return OSError(errno.EHOSTUNREACH, "the service does not answer")
    return OSError(errno.EIO, text)
