"""Asks the timekeeper of a host for the time, over UDP (:mod:`perftest.engine.workers.timekeeper`).

A thread waits for the answer, so that nothing else that the coordinator does comes between the network and the clock.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Callable
from typing import Final

from perftest.engine.workers.timekeeper import ANSWER, DATAGRAM_MAX, NONCE, body_of, marked
from perftest.metrics.host_clock import ClockExchange

PATIENCE_S: Final = 0.25
"""Longest wait for an answer: a later answer says nothing about the clock."""

Times = tuple[int, int, int, int]


class TimeQuestions:
    """The questions to one timekeeper. ``clock`` is the monotonic clock of the coordinator.

    Raises OSError for an address that cannot be.
    """

    def __init__(self, address: str, port: int, secret: bytes, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._secret = secret
        self._clock = clock
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(place)

    async def ask(self) -> ClockExchange | None:
        """One exchange, in times of two monotonic clocks; None without an answer."""
        return await asyncio.to_thread(self._ask)

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()

    def _ask(self) -> ClockExchange | None:
        nonce = secrets.token_bytes(NONCE)
        question = marked(self._secret, nonce)
        try:
            sent_ns = self._clock()
            self._socket.send(question)
            while True:  # an answer to an earlier question may come late
                answer = self._socket.recv(DATAGRAM_MAX)
                received_ns = self._clock()
                body = body_of(self._secret, answer, ANSWER.size)
                if body is not None and body[:NONCE] == nonce:
                    _, host_received_ns, host_sent_ns = ANSWER.unpack(body)
                    return ClockExchange(sent_ns, host_received_ns, host_sent_ns, received_ns)
                if received_ns - sent_ns > PATIENCE_S * 1e9:
                    return None
        except OSError:  # refused, unreachable, or too late
            return None
