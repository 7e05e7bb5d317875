"""Tells the clock of a host over UDP, in a process of its own: ``python -m perftest.engine.workers.timekeeper``.

A worker is busy with messages, and its answers pass through several processes. So the time that a worker tells is known
to a millisecond at best. This process does nothing else, so a question and its answer take only the time of the
network.

The first line on stdin is a secret, in hexadecimal digits. The process answers with its port on stdout, and ends when
stdin ends. A question is a nonce (8 octets) and a mark: the first 16 octets of an HMAC-SHA256 of the nonce with the
secret. An answer is the nonce, two times of the monotonic clock (when the question came, when the answer leaves; 8
octets each, big endian) and a mark of these. A question with a wrong mark is not answered, so a stranger learns nothing
and cannot mislead the coordinator. An answer is at most 16 octets longer than its question.
"""

from __future__ import annotations

import hmac
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Final

MARK: Final = 16
NONCE: Final = 8
ANSWER: Final = struct.Struct(">8sQQ")
DATAGRAM_MAX: Final = 64


def marked(secret: bytes, body: bytes) -> bytes:
    """A question or an answer with its mark."""
    return body + hmac.digest(secret, body, "sha256")[:MARK]


def body_of(secret: bytes, datagram: bytes, length: int) -> bytes | None:
    """The marked octets; None with a mark of another secret, or with another length."""
    body = datagram[:length]
    if len(datagram) != length + MARK or not hmac.compare_digest(marked(secret, body), datagram):
        return None
    return body


def answer_to(
    secret: bytes, question: bytes, received_ns: int, clock: Callable[[], int] = time.monotonic_ns
) -> bytes | None:
    """The answer to a datagram that came at ``received_ns``; None if it is no question of the coordinator's."""
    nonce = body_of(secret, question, NONCE)
    return None if nonce is None else marked(secret, ANSWER.pack(nonce, received_ns, clock()))


def bind() -> socket.socket:
    """A socket that takes datagrams of both IP versions, where there are both."""
    try:
        made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(("::", 0))
    except OSError:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("0.0.0.0", 0))
    return made


def main() -> None:
    """Answer until stdin ends."""
    secret = bytes.fromhex(sys.stdin.readline())
    with bind() as taken:
        sys.stdout.write(f"{taken.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            ready, _, _ = select.select([taken, sys.stdin], [], [])
            if sys.stdin in ready:  # the writer is gone: this is the end
                return
            datagram, sender = taken.recvfrom(DATAGRAM_MAX)
            answer = answer_to(secret, datagram, time.monotonic_ns())
            if answer is not None:
                try:
                    taken.sendto(answer, sender)
                except OSError:  # no way back: the coordinator asks again, or another way
                    continue


if __name__ == "__main__":
    main()
