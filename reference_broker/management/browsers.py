"""What a browser may be made to do by pages of others, and what the status page may do.

A browser that knows the login of this API sends it along with whatever any page asks for. A page of another origin
cannot read the answer, but the request would be carried out. Two rules keep such requests out: a request that changes
something comes from no other origin, as far as its browser says where it comes from, and a body is JSON by its type.
Every browser asks before it sends JSON to another origin (a preflight of CORS), and nobody here gives the permission.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from reference_broker.management.errors import FORBIDDEN, UNSUPPORTED, ApiError

_PAGE: Final = Path(__file__).with_name("page.html")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
_JSON: Final = "application/json"
_OF_CURL: Final = "application/x-www-form-urlencoded"
"""The content type that ``curl -d``, wget, PowerShell and Python's urllib give any body unless they are told
another."""
_PORTS: Final = {"http": 80, "https": 443}


def check_origin(request: web.Request) -> None:
    """Raise :class:`ApiError` for a change that a page of another origin has asked for."""
    if request.method in _READS:
        return
    origin = request.headers.get("Origin")
    is_foreign = not _is_own(origin, request.host) if origin is not None else _is_from_afar(request)
    if is_foreign:
        where = f"the origin {origin!r}" if origin is not None else "another site"
        raise ApiError(FORBIDDEN, f"a page of {where} may change nothing here, only one of {request.host!r} may")


def _is_from_afar(request: web.Request) -> bool:
    """Whether a browser says so. Pages of other ports of the same host count: they are of another origin."""
    return request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none")


def _is_own(origin: str, host: str) -> bool:
    """Whether an origin is where the browser has sent the request. A proxy may have taken TLS off, so both schemes
    do."""
    try:
        told = urlsplit(origin)
        asked = urlsplit(f"{told.scheme}://{host}")
        port = _PORTS[told.scheme]
        return bool(told.hostname) and (told.hostname, told.port or port) == (asked.hostname, asked.port or port)
    except (ValueError, KeyError):
        return False  # such as null: a page from a file, or in a sandbox


def check_type(request: web.Request) -> None:
    """Raise :class:`ApiError` for a body that is no JSON by its type. Programs may leave the type out."""
    told = request.headers.get("Content-Type")
    if told is None or not request.body_exists:
        return
    kind = told.partition(";")[0].strip().lower()
    if kind not in (_JSON, _OF_CURL):
        raise ApiError(UNSUPPORTED, f"a body of type {kind!r} is not taken: send JSON with Content-Type: {_JSON}")


@cache
def page() -> str:
    """The status page."""
    return _PAGE.read_text(encoding="utf-8")


@cache
def page_policy() -> str:
    """The Content-Security-Policy of the status page: its own script and style, whole, and requests to this port."""
    return (
        f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(element: str) -> str:
    (text,) = re.findall(f"<{element}>(.*?)</{element}>", page(), re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
