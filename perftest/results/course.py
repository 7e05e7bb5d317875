"""Follows a run through its records, for the facts that its trust list needs (its course).

The same code serves the writer (as the run goes) and the reader (of a run without a recorded list). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perftest.results.bottleneck import Bottleneck, HostUse, NodeUse, bottleneck, unknown_speeds
from perftest.results.hosts import HostRecords, has_load, roles_of
from perftest.results.integrity import Damages
from perftest.results.noise import noise_of
from perftest.results.steadiness import SteadySlots
from perftest.results.summary import BrokerUse, PhaseTotals, Tally
from perftest.results.trust_list import Course

Rows = list[dict[str, Any]]


class CourseFollower:
    """Follows slots of steady time, hosts and nodes; :attr:`slots` takes intervals, and :attr:`hosts` and :attr:`nodes`
    the records of ``host.jsonl`` and ``broker.jsonl``."""

    def __init__(self, plan: Mapping[str, Any], *, complete: bool = False) -> None:
        """As :class:`~perftest.results.steadiness.SteadySlots`."""
        self.slots = SteadySlots(plan, complete=complete)
        self.hosts = HostRecords()
        self.nodes = BrokerUse()

    def with_host_cpu(self, rows: Rows, manifest: Mapping[str, Any], tally: Tally) -> Rows:
        """The rows with ``host_cpu_percent`` of the busiest load host over the steady time, if it is known."""
        idle = {str(host.get("name")) for host in manifest.get("hosts") or () if not has_load(host)}
        found = []
        for row in rows:
            totals = _totals(tally, row)
            use = self.hosts.use(totals.start_ns, totals.end_ns)
            known = [each["cpu_percent"] for name, each in use.items() if name not in idle]
            busiest = max((percent for percent in known if percent is not None), default=None)
            found.append(row if busiest is None else {**row, "host_cpu_percent": round(busiest, 2)})
        return found

    def with_noise(self, rows: Rows) -> Rows:
        """The rows with ``noise``, where a step has intervals enough (:mod:`perftest.results.noise`)."""
        found = zip(rows, self.slots.timelines(rows), strict=True)
        return [{**row, "noise": scales} if (scales := noise_of(each.slots)) else row for row, each in found]

    def course(self, rows: Rows, manifest: Mapping[str, Any], tally: Tally, damages: Damages) -> Course:
        """The course for these rows."""
        limits = list(self._bottlenecks(rows, manifest.get("hosts") or (), tally))
        return Course(timelines=self.slots.timelines(rows), bottlenecks=limits, damages=damages)

    def _bottlenecks(self, rows: Rows, hosts: Sequence[Mapping[str, Any]], tally: Tally) -> Iterator[Bottleneck]:
        if len(hosts) < 2:
            return
        unknown = unknown_speeds([host.get("link_bits_per_s") for host in hosts])
        for row in rows:
            totals = _totals(tally, row)
            shares = self.nodes.shares(totals.start_ns, totals.end_ns)
            nodes = [NodeUse(node=name, host="", cpu_share=share) for name, share in shares.items()]
            yield bottleneck(row, list(self._hosts(totals, hosts)), nodes, unknown)

    def _hosts(self, totals: PhaseTotals, hosts: Sequence[Mapping[str, Any]]) -> Iterator[HostUse]:
        use = self.hosts.use(totals.start_ns, totals.end_ns)
        shares = totals.cpu_shares()
        named = {str(host.get("name")): host for host in hosts}
        for name in sorted(shares.keys() | use.keys()):
            of_host, figures = named.get(name, {}), use.get(name, {})
            yield HostUse(
                host=name,
                roles=roles_of(of_host),
                workers=len(shares.get(name, ())),
                worker_cpu_share=max(shares.get(name, ()), default=None),
                cpu_percent=figures.get("cpu_percent"),
                rx_bytes_per_s=figures.get("rx_bytes_per_s"),
                tx_bytes_per_s=figures.get("tx_bytes_per_s"),
                link_bits_per_s=of_host.get("link_bits_per_s"),
            )


def _totals(tally: Tally, row: Mapping[str, Any]) -> PhaseTotals:
    return tally.steady[row["step"], row.get("group", "")]
