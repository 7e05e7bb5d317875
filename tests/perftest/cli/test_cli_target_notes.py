"""What a URI asks for that nobody heeds is told."""

from __future__ import annotations

from perftest.options.targets import unused_parameters


def test_parameters_without_effect_are_named_once() -> None:
    uris = ["amqp://a?heartbeat=5&failover=x", "amqp://b?verify=none&failover=y", "nonsense?z=1", "amqp://c"]
    assert unused_parameters(uris) == ["failover", "verify"]
