"""The API on the port of the node's figures: who asks, what may be asked, and how a refusal looks.

Users log in with every request (HTTP Basic). A user needs a tag: *management* for what it may see and do by its own
permissions, *policymaker*, *monitoring* or *administrator* for more. Users of the node's own file are administrators.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from reference_broker.access.records import Tag
from reference_broker.management.browsers import check_origin, check_type, page, page_policy
from reference_broker.management.cluster import ManagedCluster, OperationError
from reference_broker.management.errors import BAD_REQUEST, NOT_AUTHORISED, TOO_SLOW, ApiError, of_amqp
from reference_broker.management.importing import IMPORTERS
from reference_broker.management.listing import listed, with_columns
from reference_broker.management.reading import READERS, Reader, check_vhost
from reference_broker.management.session import RefusedError
from reference_broker.management.shapes import Row
from reference_broker.management.writing import WRITERS, Writer
from reference_broker.node.clients.authorization import is_loopback
from reference_broker.node.endpoints.http_port import POLICY
from reference_broker.node.shard import Shard

log = logging.getLogger(__name__)

_MANY: Final = 500
"""Number of rows from which writing a list takes milliseconds."""
BODY_MAX: Final = 16 << 20
"""Octets of the largest body of a request."""
_INCLUDED: Final = {
    Tag.ADMINISTRATOR: frozenset(Tag),
    Tag.MONITORING: frozenset({Tag.MONITORING, Tag.MANAGEMENT}),
    Tag.POLICYMAKER: frozenset({Tag.POLICYMAKER, Tag.MANAGEMENT}),
    Tag.MANAGEMENT: frozenset({Tag.MANAGEMENT}),
}
"""The tags that each tag includes."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_to(app: web.Application, shard: Shard) -> None:
    """Serve the API of the node's cluster."""
    cluster = ManagedCluster(shard)
    app.middlewares.append(_told)
    app.router.add_get("/", _page(cluster))
    app.router.add_get("/api/auth", _auth)
    for path, (tag, reader) in READERS.items():
        app.router.add_get(f"/api/{path}", _read(cluster, tag, reader))
    for (method, path), (tag, writer) in {**WRITERS, **IMPORTERS}.items():
        app.router.add_route(method, f"/api/{path}", _write(cluster, tag, writer))


def _page(cluster: ManagedCluster) -> Handler:
    """The page for the browser. It asks the API again and again, with the login of the page."""

    async def answer(request: web.Request) -> web.Response:
        _asked(cluster, request, Tag.MANAGEMENT)
        return web.Response(text=page(), content_type="text/html", headers={POLICY: page_policy()})

    return answer


async def _auth(_request: web.Request) -> web.Response:
    """How one logs in: with a name and a password. A page asks before it has a login."""
    return _json({"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""})


def _read(cluster: ManagedCluster, tag: Tag, reader: Reader) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        found = await reader(cluster, _asked(cluster, request, tag))
        if isinstance(found, list):
            found = await listed(found, request.query)
        else:
            (found,) = with_columns([found], request.query)
        if len(found) < _MANY or not isinstance(found, list):
            return _json(found)
        return web.Response(text=await _written(found), content_type="application/json")

    return answer


async def _written(rows: list[Any]) -> str:
    """A long list as JSON. Messages have their turn meanwhile: one call of json.dumps would keep all other threads
    waiting, so a thread is of no use."""
    parts = []
    for first in range(0, len(rows), _MANY):
        parts.append(json.dumps(rows[first : first + _MANY], default=str)[1:-1])
        await asyncio.sleep(0)
    return "[" + ", ".join(parts) + "]"


def _write(cluster: ManagedCluster, tag: Tag, writer: Writer) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        check_origin(request)
        at = _asked(cluster, request, tag)
        code, body = await writer(cluster, at, await _body(request, cluster.shard.limits.http_idle_ms))
        return web.Response(status=code) if body is None else _json(body, code)

    return answer


def _asked(cluster: ManagedCluster, request: web.Request, tag: Tag) -> Row:
    """The names in the path and the query, and the user. Raises :class:`ApiError` if the user may not ask."""
    user = _authenticated(cluster, request)
    held = _tags(cluster, user)
    if tag not in held:
        raise ApiError(NOT_AUTHORISED, f"Not_Authorized: a user needs the tag {tag}")
    rights = {"user": user, "monitors": Tag.MONITORING in held, "administers": Tag.ADMINISTRATOR in held}
    at: Row = {**request.query, **request.match_info, **rights}
    check_vhost(cluster, at)
    return at


def _authenticated(cluster: ManagedCluster, request: web.Request) -> str:
    scheme, _, coded = request.headers.get("Authorization", "").partition(" ")
    try:
        user, colon, password = base64.b64decode(coded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise ApiError(NOT_AUTHORISED, "Login failed") from error
    access = cluster.shard.access
    is_here = is_loopback(request.transport.get_extra_info("peername") if request.transport else None)
    if scheme.lower() != "basic" or not colon or not access.is_password(user, password.encode()):
        raise ApiError(NOT_AUTHORISED, "Login failed")
    if not is_here and user in access.loopback_users:
        raise ApiError(NOT_AUTHORISED, "User can only log in via localhost")
    return user


def _tags(cluster: ManagedCluster, user: str) -> frozenset[Tag]:
    known = cluster.machine.access.users.get(user)
    if known is None:
        return frozenset(Tag)  # of the node's own file
    held = (Tag(tag) for tag in known.tags if tag in set(Tag))
    return frozenset().union(*(_INCLUDED[tag] for tag in held))


async def _body(request: web.Request, idle_ms: int) -> Row:
    """What the request brings along."""
    check_type(request)
    octets = await _octets(request, idle_ms)
    try:
        found: Any = json.loads(octets) if octets else {}
    except (ValueError, RecursionError) as error:
        raise ApiError(BAD_REQUEST, f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ApiError(BAD_REQUEST, "the body is no JSON object")
    return found


async def _octets(request: web.Request, idle_ms: int) -> bytes:
    """The body, which may take so many milliseconds to come: the size of a chunk may announce more than anybody sends,
    and aiohttp waits for the rest for ever. Raises :class:`ApiError` if the client does not send what it announced."""
    try:
        async with asyncio.timeout(idle_ms / 1000):
            return await request.read()
    except TimeoutError as error:
        raise ApiError(TOO_SLOW, f"the body did not come within {idle_ms} ms") from error
    except ConnectionResetError as error:
        raise ApiError(BAD_REQUEST, "the connection ended before the body did") from error
    except web.RequestPayloadError as error:
        raise ApiError(BAD_REQUEST, "the body is not in the encoding that its head names") from error


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Have every refusal look like RabbitMQ's."""
    try:
        return await handler(request)
    except ApiError as error:
        return _refusal(error)
    except RefusedError as refused:
        return _refusal(of_amqp(refused.code, refused.text))
    except OperationError as error:
        return _refusal(ApiError(BAD_REQUEST, str(error)))
    except TimeoutError:
        return _refusal(ApiError(503, "the nodes that it takes did not answer in time; it may still be done"))
    except web.HTTPRequestEntityTooLarge:
        return _refusal(ApiError(413, f"the body is larger than {BODY_MAX} octets"))
    except web.HTTPException as error:
        return _refusal(ApiError(error.status, error.reason))
    except Exception:
        log.exception("defect while answering %s %s", request.method, request.path)
        return _refusal(ApiError(500, "defect in the broker, see its log"))


def _refusal(error: ApiError) -> web.Response:
    headers = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'} if error.code == NOT_AUTHORISED else {}
    first = {"status": "failed"} if error.code == 503 else {"error": error.word}
    body = {**first, "reason": error.reason, **error.more}
    answer = _json(body, error.code, headers)
    if error.code == TOO_SLOW:
        answer.force_close()  # the rest of the body would be taken for the next request
    return answer


def _json(found: Any, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(found, status=code, headers=headers, dumps=lambda each: json.dumps(each, default=str))
