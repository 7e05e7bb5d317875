"""Measures round trips over loopback and to a broker."""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

from pamqp import commands

from perftest.amqp.transport import Connection
from perftest.amqp.uri import AmqpUri
from perftest.doctor.check import DoctorCheck, Figures, judged, percentile

ROUNDS: Final = 1000
BROKER_ROUNDS: Final = 200
SLOW_LOOPBACK_US: Final = 500
_PING: Final = b"x" * 64


def loopback() -> DoctorCheck:
    """Measure the round trip of 64 octets between two threads. No latency on this machine can be shorter."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_echo, args=(server,), daemon=True)
        echo.start()
        with socket.create_connection(server.getsockname(), timeout=5) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = sorted(_round_trip_us(client) for _ in range(ROUNDS))
        echo.join(timeout=5)
    p50, p99 = percentile(times, 50), percentile(times, 99)
    text = f"a round trip over loopback takes {p50} µs, {p99} µs at the 99th percentile"
    slow = ": waking up another process is slow on this machine, and is part of every latency"
    return judged("loopback", text, slow if p99 > SLOW_LOOPBACK_US else "", {"p50_us": p50, "p99_us": p99})


async def broker(uri: AmqpUri) -> DoctorCheck:
    """Measure the time to connect and log in, and the round trip of a method without effect. Raises AmqpError."""
    name = f"broker {uri.redacted}"
    began = time.monotonic_ns()
    connection = await Connection.open(uri, name="perftest doctor", clock=time.monotonic_ns)
    login_us = (time.monotonic_ns() - began) // 1000
    try:
        channel = await connection.open_channel()
        times = []
        for _ in range(BROKER_ROUNDS):
            began = time.monotonic_ns()
            await connection.call(channel, commands.Basic.Qos(prefetch_count=1), commands.Basic.QosOk)
            times.append((time.monotonic_ns() - began) // 1000)
    finally:
        await connection.close()
    times.sort()
    p50, p99 = percentile(times, 50), percentile(times, 99)
    said = connection.server_properties
    product = f"{said.get('product', '')} {said.get('version', '')}".strip() or "a broker that does not say what it is"
    figures: Figures = {"product": product, "login_us": login_us, "p50_us": p50, "p99_us": p99}
    text = f"{product}: login in {login_us / 1000:.1f} ms, a round trip takes {p50} µs, {p99} µs at the 99th percentile"
    return judged(name, text, "", figures)


def _echo(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while got := peer.recv(4096):
            peer.sendall(got)


def _round_trip_us(client: socket.socket) -> int:
    began = time.monotonic_ns()
    client.sendall(_PING)
    left = len(_PING)
    while left:
        left -= len(client.recv(left))
    return (time.monotonic_ns() - began) // 1000
