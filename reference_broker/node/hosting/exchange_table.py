"""The exchanges and bindings as one node uses them: the table that it routes by, and changes that hold on every node.

A node routes by the metadata that it has applied, and asks no other node. So a change is answered only when every node
in reach has applied it (:mod:`reference_broker.node.replication.everywhere`). From the answer on, a publish on any node
goes by the change. A lost peer applies the missed changes when it is back; until then a client of that node may still
publish by the old bindings.

A declaration needs no such care. A node that does not know an exchange asks what was declared before it answers 404, as
for queues.
"""

from __future__ import annotations

from collections.abc import Callable

from reference_broker.machines.cluster.exchanges import Bind, ExchangeOutcome, Unbind
from reference_broker.node.replication.everywhere import Everywhere
from reference_broker.node.replication.metadata_group import ExchangeAnswered, MetadataHost
from reference_broker.routing.records import Binding, Exchange
from reference_broker.routing.table import RoutingTable


class Exchanges:
    """The exchanges of a virtual host on one node. Each ``answered`` is called once."""

    def __init__(self, metadata: MetadataHost, everywhere: Everywhere, vhost: str) -> None:
        self._metadata = metadata
        self._everywhere = everywhere
        self._vhost = vhost

    @property
    def table(self) -> RoutingTable:
        """By which this node routes. Another table takes its place when the node jumps over a part of the log."""
        return self._metadata.machine.routing(self._vhost)

    def declare(self, exchange: Exchange, answered: Callable[[Exchange], None]) -> None:
        """Create the exchange if its name is free; ``answered`` gets the exchange of that name."""

        def committed(outcome: ExchangeOutcome) -> None:
            if outcome.exchange is None:  # declared and deleted again within entries that this node jumped over
                self.declare(exchange, answered)
            else:
                answered(outcome.exchange)

        self._metadata.declare_exchange(self._vhost, exchange, committed)

    def delete(self, name: str, answered: ExchangeAnswered, *, if_unused: bool) -> None:
        """Delete the exchange and its bindings on every node."""
        self._metadata.delete_exchange(self._vhost, name, self._when_everywhere(answered), if_unused=if_unused)

    def bind(self, binding: Binding, answered: ExchangeAnswered) -> None:
        """Add the binding on every node."""
        self._metadata.change_binding(Bind, self._vhost, binding, self._when_everywhere(answered))

    def unbind(self, binding: Binding, answered: ExchangeAnswered) -> None:
        """Remove the binding on every node."""
        self._metadata.change_binding(Unbind, self._vhost, binding, self._when_everywhere(answered))

    def _when_everywhere(self, answered: ExchangeAnswered) -> ExchangeAnswered:
        def committed(outcome: ExchangeOutcome) -> None:
            if outcome.is_refused:
                answered(outcome)
            else:
                self._everywhere.then(lambda: answered(outcome))

        return committed
