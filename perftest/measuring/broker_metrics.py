"""Requests for a broker's own figures over HTTP while a run lasts (``--broker-metrics``).

Theory of operation. The process of the command asks each address separately and with a time limit, so the load workers
notice nothing. The first good answer tells which kind of endpoint an address is
(:mod:`perftest.measuring.broker_answers`); from then on only that kind is asked for. A failure is one event, and so is
the next success; a failure never ends a run. User and password are removed from the address before anything can show
it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp

from perftest.measuring import broker_answers
from perftest.measuring.broker_answers import Record

TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 32 << 20
"""Longest answer that is read; a broker with very many queues may send a longer one."""
_QUEUES: Final = "/api/queues?columns=name,vhost,node,messages,messages_ready,messages_unacknowledged"


class AnswerError(Exception):
    """An address answered, but not with figures of a broker."""


@dataclass(slots=True)
class _Address:
    """An address. User and password are in ``headers``, not in ``base``; the first good answer sets ``kind``."""

    base: str
    headers: dict[str, str]
    kind: str = ""
    failing: bool = False

    @classmethod
    def of(cls, url: str) -> _Address:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        basic = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
        base = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), parts.query, ""))
        return cls(base, basic if parts.username else {})

    @property
    def root(self) -> str:
        """Scheme, host and port, and the path before ``/api``."""
        parts = urlsplit(self.base)
        return urlunsplit((parts.scheme, parts.netloc, parts.path.partition("/api")[0], "", ""))


class BrokerMetrics:
    """The metrics addresses of a run. ``tell`` takes the events ``metrics_lost`` and ``metrics_back``."""

    def __init__(self, urls: Sequence[str], tell: Callable[[dict[str, object]], None]) -> None:
        self._addresses = [_Address.of(url) for url in urls]
        self._tell = tell

    @property
    def shown(self) -> list[str]:
        """The addresses without user and password."""
        return [address.base for address in self._addresses]

    async def sample(self, t_ns: int) -> list[Record]:
        """A record for each node that any address knows."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
            answers = await asyncio.gather(*(self._ask(session, address, t_ns) for address in self._addresses))
        found = broker_answers.joined(record for answer in answers for record in answer)
        return [{"t_ns": t_ns, **record} for record in found]

    async def _ask(self, session: aiohttp.ClientSession, address: _Address, t_ns: int) -> list[Record]:
        try:
            records = await _records(session, address)
        except (aiohttp.ClientError, AnswerError, TimeoutError, OSError, ValueError) as error:
            if not address.failing:
                address.failing = True
                text = f"no figures of the broker from {address.base}: {_reason(error)}"
                self._tell({"t_ns": t_ns, "kind": "metrics_lost", "text": text})
            return []
        if address.failing:
            address.failing = False
            text = f"{address.base} tells the broker's figures again"
            self._tell({"t_ns": t_ns, "kind": "metrics_back", "text": text})
        return records


async def _records(session: aiohttp.ClientSession, address: _Address) -> list[Record]:
    """The records of an address. If its kind is not known yet, try each kind until one answers."""
    if address.kind == "management":
        return await _management(session, address)
    if address.kind:
        return await _text(session, address, address.kind)
    refused: Exception = AnswerError("")
    for kind in dict.fromkeys((address.base, f"{address.root}/metrics", "management")):
        try:
            found = await (_management(session, address) if kind == "management" else _text(session, address, kind))
        except (aiohttp.ClientResponseError, AnswerError, ValueError) as error:
            refused = error
            continue
        address.kind = kind
        return found
    raise _unrecognised(refused) from refused


def _unrecognised(refused: Exception) -> Exception:
    if isinstance(refused, aiohttp.ClientResponseError) and refused.status in (401, 403):
        return AnswerError("user or password is refused: write http://user:password@host:15672")
    return AnswerError(
        "neither metrics for Prometheus nor RabbitMQ's management API: write http://host:15692/metrics, or "
        "http://user:password@host:15672"
    )


async def _text(session: aiohttp.ClientSession, address: _Address, url: str) -> list[Record]:
    body = await _get(session, address, url)
    record = await asyncio.to_thread(broker_answers.of_text, body.decode(errors="replace"), urlsplit(url).netloc)
    if record is None:
        raise AnswerError("no figures of a broker")
    return [record]


async def _management(session: aiohttp.ClientSession, address: _Address) -> list[Record]:
    paths = ("/api/nodes", _QUEUES, "/api/overview")
    bodies = await asyncio.gather(*(_get(session, address, address.root + path) for path in paths))
    nodes, queues, overview = [json.loads(body) for body in bodies]
    records = await asyncio.to_thread(broker_answers.of_management, nodes, queues, overview)
    if not records:
        raise AnswerError("no nodes")
    return records


async def _get(session: aiohttp.ClientSession, address: _Address, url: str) -> bytes:
    async with session.get(url, headers=address.headers, raise_for_status=True) as response:
        body = await response.content.read(ANSWER_BYTES_MAX)
        while part := await response.content.read(ANSWER_BYTES_MAX):
            body += part
            if len(body) > ANSWER_BYTES_MAX:
                raise AnswerError(f"the answer is longer than {ANSWER_BYTES_MAX >> 20} MiB")
        return body


def _reason(error: Exception) -> str:
    """The error in words, without addresses, because an address may hold a password."""
    match error:
        case aiohttp.ClientResponseError():
            return f"HTTP {error.status} {error.message}"
        case TimeoutError():
            return f"no answer within {TIMEOUT_S:g} s"
        case aiohttp.ClientConnectorError():
            return error.os_error.strerror or "cannot connect"
        case AnswerError():
            return str(error)
    return type(error).__name__
