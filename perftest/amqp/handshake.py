"""What is said of us in the handshake, what is agreed in it, and who it is that answers otherwise."""

from __future__ import annotations

from pamqp.common import FieldTable

import perftest


def client_properties(name: str) -> FieldTable:
    """What we say of ourselves; without ``authentication_failure_close`` a refused login would be a silent hang-up."""
    capabilities = ("publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked")
    return {
        "product": "perftest",
        "version": perftest.__version__,
        "platform": "CPython",
        "connection_name": name,
        "capabilities": dict.fromkeys((*capabilities, "authentication_failure_close"), True),
    }


def agreed_heartbeat_s(wanted_s: int | None, offered_s: int) -> int:
    """The lower of the two, as the specification has it; the broker's when we want none in particular."""
    if wanted_s is None:
        return offered_s
    return min(wanted_s, offered_s) if offered_s else wanted_s


def stranger(octets: bytes) -> str:
    """Who answered, to judge by the first octets, where ``connection.start`` was due."""
    if octets.startswith(b"AMQP"):
        return "the broker does not speak AMQP 0-9-1: it answered with a protocol header"
    if octets.startswith(b"HTTP"):
        return "the port speaks HTTP, not AMQP"
    if octets[0] == 0x15 and octets[1] == 3:
        return "the port speaks TLS: the URI must start with amqps://"
    return f"the port does not speak AMQP: the first octets are {octets.hex(' ')}"
