"""The virtual hosts as one node sees them: the names that a client of each may use.

A client knows queues and exchanges by their names within its virtual host. A lookup here finds nothing else, so no name
that a client can think of reaches what belongs to another virtual host.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference_broker.access import names
from reference_broker.node.hosting.exchange_table import Exchanges
from reference_broker.node.replication.everywhere import Everywhere
from reference_broker.node.replication.known_groups import Groups
from reference_broker.node.replication.metadata_group import MetadataHost
from reference_broker.queues.port import Queue


class VirtualHost:
    """One virtual host: ``queues`` are those that this node knows, by their short names."""

    def __init__(self, name: str, queues: Mapping[str, Queue], exchanges: Exchanges) -> None:
        self.name = name
        self.queues = queues
        self.exchanges = exchanges

    def qualified(self, short_name: str) -> str:
        """The name in the cluster of a queue that may not exist."""
        return names.qualified(self.name, short_name)

    def queue_called(self, short_name: str) -> str:
        """RabbitMQ's words for a queue that may not exist."""
        return f"queue '{short_name}' in vhost '{self.name}'"

    def exchange_called(self, name: str) -> str:
        """RabbitMQ's words for an exchange that may not exist."""
        return f"exchange '{name}' in vhost '{self.name}'"


class VirtualHosts:
    """All virtual hosts of one node, each made at its first use."""

    def __init__(self, groups: Groups, metadata: MetadataHost, everywhere: Everywhere) -> None:
        self._groups = groups
        self._metadata = metadata
        self._everywhere = everywhere
        self._known: dict[str, VirtualHost] = {}

    def named(self, name: str) -> VirtualHost:
        """The virtual host of this name. One that was deleted is empty."""
        found = self._known.get(name)
        if found is None:
            exchanges = Exchanges(self._metadata, self._everywhere, name)
            found = self._known[name] = VirtualHost(name, self._groups.of_vhost(name), exchanges)
        return found
