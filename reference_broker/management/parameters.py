"""Parameters: what RabbitMQ keeps by component, virtual host and name. Here two components have something behind them,
operators' policies and the limits of virtual hosts, and nobody can set another."""

from __future__ import annotations

from typing import Any, Final

from reference_broker.machines.cluster.metadata import MetadataMachine
from reference_broker.management import shapes
from reference_broker.management.cluster import ManagedCluster
from reference_broker.management.shapes import Row

OPERATOR_POLICY: Final = "operator_policy"
"""The component of parameters that are operators' policies."""
VHOST_LIMITS: Final = "vhost-limits"
"""The component of parameters that are limits of virtual hosts."""
LIMITS: Final = "limits"
"""The one name in the component of limits."""
_FEATURES: Final = {
    "classic_mirrored_queue_version": "Support setting version for classic mirrored queues",
    "drop_unroutable_metric": "Count unroutable publishes to be dropped in stats",
    "empty_basic_get_metric": "Count AMQP `basic.get` on empty queues in stats",
    "implicit_default_bindings": "Default bindings are now implicit, instead of being stored in the database",
    "maintenance_mode_status": "Maintenance mode status",
    "quorum_queue": "Support queues of type `quorum`",
    "user_limits": "Configure connection and channel limits for a user",
    "virtual_host_metadata": "Virtual host metadata (description, tags, etc)",
}
"""The feature flags of RabbitMQ that a program may ask for and that hold here."""


def of_vhost(machine: MetadataMachine, vhost: str) -> list[Row]:
    """The parameters of a virtual host."""
    limits = shapes.vhost_limits(machine.access.vhosts[vhost])["value"]
    policies = [each for _key, each in sorted(machine.policies.items()) if each.vhost == vhost and each.operator]
    rows = [(OPERATOR_POLICY, each.name, _value(shapes.policy(each))) for each in policies]
    if limits:
        rows.append((VHOST_LIMITS, LIMITS, limits))
    return [{"component": of, "vhost": vhost, "name": name, "value": value} for of, name, value in rows]


def _value(policy: Row) -> Row:
    return {key: policy[key] for key in ("pattern", "definition", "priority", "apply-to")}


def of_cluster(cluster: ManagedCluster) -> list[Row]:
    """The parameters that belong to no virtual host."""
    identity: Any = cluster.shard.config.cluster
    return [{"name": name, "value": identity} for name in ("cluster_name", "internal_cluster_id")]


def feature_flags() -> list[Row]:
    """All are enabled, and nobody can do without one."""
    same = {"doc_url": "", "state": "enabled", "stability": "stable", "provided_by": "reference_broker"}
    return [{"name": name, "desc": text, **same} for name, text in _FEATURES.items()]
