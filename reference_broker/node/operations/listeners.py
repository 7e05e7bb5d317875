"""The ports that a node listens on, as rows of the management API. Pure."""

from __future__ import annotations

from typing import Any

from reference_broker.node.config import NodeConfig


def listeners_of(config: NodeConfig) -> list[dict[str, Any]]:
    """A row for each port of the node, with RabbitMQ's name of the protocol. The control port speaks none of these."""
    me, tls = config.me, config.client_tls
    ports = [("amqp", "amqp_port", me.amqp_port), ("clustering", "peer_port", me.peer_port)]
    if tls is not None:
        ports.append(("amqp/ssl", "amqp_port", tls.port))
    if me.metrics_port:
        ports.append(("http", "metrics_port", me.metrics_port))
    return [
        {"node": config.name, "protocol": protocol, "ip_address": me.bound(key)[1], "port": port}
        for protocol, key, port in ports
    ]
