"""The node's figures for machines: for Prometheus over HTTP (:mod:`~reference_broker.node.endpoints.http_port`), and
the same as JSON on the control port.

A figure that RabbitMQ has, too, has RabbitMQ's name. Nothing is counted for this module alone: figures are read off the
node at each request, so a node without requests pays nothing. The module is imported only when there is a port to
serve, or a question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from reference_broker.anatomy.anatomy import Series
from reference_broker.classic.counters import COUNTERS as CLASSIC_COUNTERS
from reference_broker.log.counters import COUNTERS
from reference_broker.machines.cluster.metadata import QueueRecord
from reference_broker.node.endpoints.status import usage
from reference_broker.node.hosting.dead_letters import OUTCOMES
from reference_broker.node.hosting.endings import Ending
from reference_broker.node.links.link_octets import PURPOSES, Sent
from reference_broker.node.replication.group_runner import GroupRunner
from reference_broker.queues.port import QueueMember, QueueOwner
from reference_broker.storage.counter_spec import CounterSpec
from reference_broker.storage.modelled_drive import COUNTED

if TYPE_CHECKING:
    from reference_broker.node.shard import Shard

_BUCKET_BITS: Final = range(13, 35)  # 8 us to 17 s
_FSYNC: Final = "fsync."
_LOG_PREFIX: Final = "rabbitmq_raft_log_"
_DRIVE: Final = "reference_broker_modelled_drive_"
_DRIVE_COUNTERS: Final = (
    ("operations", "operations", "Operations that lasted as long as the drive model says"),
    ("late_operations", "late", "Operations that ended late by more than a fifth of the median length"),
    ("journal_commits", "commits", "Commits of the modelled file system's journal"),
)
_DRIVE_QUANTILES: Final = (
    ("service", "service_ns_p", "How long operations should last"),
    ("lateness", "late_ns_p", "How much later than they should operations ended"),
)
_QUEUE_GAUGES: Final = (
    ("rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers"),
    ("rabbitmq_queue_messages_unacked", "Messages delivered to consumers and not yet acknowledged"),
    ("rabbitmq_queue_messages", "Sum of ready and unacknowledged messages"),
    ("rabbitmq_queue_consumers", "Consumers on a queue"),
)
_RAFT_GAUGES: Final = (
    ("rabbitmq_raft_log_snapshot_index", "Raft log snapshot index"),
    ("rabbitmq_raft_log_last_applied_index", "Raft log last applied index"),
    ("rabbitmq_raft_log_commit_index", "Raft log commit index"),
    ("rabbitmq_raft_log_last_written_index", "Raft log last written index"),
    ("rabbitmq_raft_log_last_index", "Raft log last index"),
    ("rabbitmq_raft_leader", "1 on the node that leads the queue"),
)


class NodeCollector:
    """Reads the figures off a node whenever the registry is asked for them."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._process()
        yield from self._log()
        yield from self._drives()
        yield from self._classic()
        yield from self._findings()
        yield from self._links()
        yield self._proxied()
        shard = self._shard
        here = [queue for queue in shard.queues.values() if queue.member is not None]
        members = [
            (queue.record, shard.runners[queue.record.group]) for queue in here if queue.record.group in shard.runners
        ]
        counted = [(queue.record, queue.member) for queue in here if queue.member is not None]
        yield from _gauges(_QUEUE_GAUGES, counted, _queue_values)
        yield from _gauges(_RAFT_GAUGES, members, _raft_values)
        terms = CounterMetricFamily("rabbitmq_raft_term", "Current Raft term number", labels=_OF_QUEUE)
        for record, runner in members:
            terms.add_metric(_place(record), runner.core.term)
        yield terms
        yield from self._stages()

    def _stages(self) -> Iterator[Metric]:
        """The latency anatomy, coarsely: the control port has it in full."""
        snapshot = self._shard.anatomy.snapshot()
        text = "Time that messages spent in a stage of their way through the broker"
        stages = HistogramMetricFamily("reference_broker_stage_seconds", text, labels=("chain", "stage"))
        for chain, of_chain in snapshot.chains.items():
            for stage, series in of_chain.items():
                stages.add_metric((str(chain), str(stage)), _buckets(series), series.total / 1e9)
        yield stages
        syncs = HistogramMetricFamily("reference_broker_fsync_seconds", "Length of syncs", labels=("role",))
        for name, series in snapshot.gauges.items():
            if name.startswith(_FSYNC):
                syncs.add_metric((name.removeprefix(_FSYNC),), _buckets(series), series.total / 1e9)
        yield syncs

    def _process(self) -> Iterator[Metric]:
        shard, used = self._shard, usage()
        info = InfoMetricFamily("rabbitmq_identity", "Node and cluster")
        info.add_metric((), {"rabbitmq_node": shard.config.name, "rabbitmq_cluster": shard.config.cluster})
        yield info
        connections = len(shard.clients.connections)
        yield GaugeMetricFamily("rabbitmq_connections", "Connections currently open", connections)
        yield GaugeMetricFamily("rabbitmq_queues", "Queues available", len(shard.queues))
        delivered = "Messages delivered to consumers of this node"
        yield CounterMetricFamily("rabbitmq_global_messages_delivered", delivered, shard.clients.delivered)
        again = "Messages redelivered to consumers of this node"
        yield CounterMetricFamily("rabbitmq_global_messages_redelivered", again, shard.clients.redelivered)
        letters = CounterMetricFamily(
            "reference_broker_dead_letters", "What became of dead letters", labels=("outcome",)
        )
        for outcome in OUTCOMES:
            letters.add_metric((outcome,), shard.dead_letters.counts[outcome])
        yield letters
        text = "Dead letters that an earlier leader was told of, too, and that may so have arrived twice"
        yield CounterMetricFamily("reference_broker_dead_letters_repeated", text, shard.dead_letters.repeated)
        text = "Queues deleted that no client has asked to delete"
        ended = CounterMetricFamily("reference_broker_queues_ended", text, labels=("reason",))
        for ending in Ending:
            ended.add_metric((ending,), shard.endings.count[ending])
        yield ended
        yield CounterMetricFamily("process_cpu_seconds", "User and system CPU time", used["cpu_ns"] / 1e9)
        held = shard.alarms.memory_held()
        yield GaugeMetricFamily("rabbitmq_process_resident_memory_bytes", "Memory used in bytes", held)
        yield GaugeMetricFamily("process_resident_memory_max_bytes", "Largest resident set", used["rss_max_bytes"])

    def _links(self) -> Iterator[Metric]:
        """Figures of this node's links, by peer and purpose; both metrics have a sample for each purpose."""
        shard, labels = self._shard, ("peer", "purpose")
        octets = CounterMetricFamily("reference_broker_link_octets", "Octets sent to a peer, by purpose", labels=labels)
        frames = CounterMetricFamily("reference_broker_link_frames", "Frames sent to a peer, by purpose", labels=labels)
        for node in shard.nodes.all:
            for purpose in PURPOSES if node != shard.node else ():
                sent = shard.link_octets.sent.get((node, purpose), Sent())
                octets.add_metric((shard.nodes.name(node), purpose), sent.octets)
                frames.add_metric((shard.nodes.name(node), purpose), sent.frames)
        yield octets
        yield frames

    def _proxied(self) -> Metric:
        shard = self._shard
        text = "Octets sent to a peer for queues that it leads, or that this node leads for clients of the peer"
        links = CounterMetricFamily("reference_broker_proxied_sent_bytes", text, labels=("peer", "queue_type"))
        for node in shard.nodes.all:
            for kind in shard.hosting.kinds if node != shard.node else ():
                links.add_metric((shard.nodes.name(node), kind), shard.link_octets.proxied[node, kind])
        return links

    def _log(self) -> Iterator[Metric]:
        return _described(_LOG_PREFIX, COUNTERS, self._shard.log.counters())

    def _drives(self) -> Iterator[Metric]:
        """Modelled drives, if the node has any."""
        drives = self._shard.drives.status()
        if not drives:
            return
        for name, key, text in _DRIVE_COUNTERS:
            counter = CounterMetricFamily(f"{_DRIVE}{name}", text, labels=("drive",))
            for drive in drives:
                counter.add_metric((drive["name"],), drive[key])
            yield counter
        for name, key, text in _DRIVE_QUANTILES:
            gauge = GaugeMetricFamily(f"{_DRIVE}{name}_seconds", text, labels=("drive", "quantile"))
            for drive in drives:
                for quantile in ("50", "99"):
                    gauge.add_metric((drive["name"], f"0.{quantile}"), drive[f"{key}{quantile}"] / 1e9)
            yield gauge
        for key in COUNTED:
            used = CounterMetricFamily(f"{_DRIVE}{key}", f"{key} by purpose", labels=("drive", "purpose"))
            for drive in drives:
                for purpose, counts in drive["purposes"].items():
                    used.add_metric((drive["name"], purpose), counts[key])
            yield used
        profiles = InfoMetricFamily(f"{_DRIVE}profile", "What each modelled drive stands for", labels=("drive",))
        for drive in drives:
            profiles.add_metric((drive["name"],), {"profile": drive["profile"]})
        yield profiles

    def _classic(self) -> Iterator[Metric]:
        return _described("reference_broker_", CLASSIC_COUNTERS, self._shard.owned.counters())

    def _findings(self) -> Iterator[Metric]:
        """Losses and damage found at the start, by store."""
        text = "Files that the start of this node found damaged, missing or set aside"
        found = GaugeMetricFamily("reference_broker_start_findings", text, labels=("store",))
        text = "Messages that the start of this node found lost, as far as their number is known"
        lost = GaugeMetricFamily("reference_broker_start_lost_messages", text, labels=("store",))
        for store, findings in self._shard.findings.by_store.items():
            found.add_metric((store,), len(findings))
            lost.add_metric((store,), sum(finding.messages for finding in findings))
        yield found
        yield lost


_Of = TypeVar("_Of")
_OF_QUEUE: Final = ("vhost", "queue")
"""The labels of a queue's metrics, as in RabbitMQ's detailed ones."""


def _gauges(
    specs: tuple[tuple[str, str], ...],
    of_queues: list[tuple[QueueRecord, _Of]],
    values: Callable[[_Of], tuple[int, ...]],
) -> Iterator[Metric]:
    families = [GaugeMetricFamily(name, text, labels=_OF_QUEUE) for name, text in specs]
    for record, each in of_queues:
        for family, value in zip(families, values(each), strict=True):
            family.add_metric(_place(record), value)
    yield from families


def _place(record: QueueRecord) -> tuple[str, str]:
    return record.vhost, record.short_name


def _buckets(series: Series) -> list[tuple[str, float]]:
    below = [(repr(edge / 1e9), float(count)) for edge, count in series.cumulated(_BUCKET_BITS)]
    return [*below, ("+Inf", float(series.counts.sum()))]


def _queue_values(member: QueueMember | QueueOwner) -> tuple[int, ...]:
    counts = member.counts()
    return counts.ready, counts.unacked, counts.ready + counts.unacked, counts.consumers


def _raft_values(runner: GroupRunner) -> tuple[int, ...]:
    core, log = runner.core, runner.core.log
    leads = core.role == "leader"
    return log.snapshot_index, runner.applied, core.commit_index, log.synced_index, log.last_index, int(leads)


def registry(shard: Shard) -> CollectorRegistry:
    """The figures of a node. Others may register collectors of their own."""
    metrics = CollectorRegistry(auto_describe=False)
    metrics.register(NodeCollector(shard))
    return metrics


def as_json(metrics: CollectorRegistry) -> list[dict[str, Any]]:
    """The same figures: families with their samples."""
    return [
        {
            "name": family.name,
            "type": family.type,
            "help": family.documentation,
            "samples": [{"name": s.name, "labels": s.labels, "value": s.value} for s in family.samples],
        }
        for family in metrics.collect()
    ]


def _described(prefix: str, specs: Iterable[CounterSpec], values: Mapping[str, int]) -> Iterator[Metric]:
    """The figures that a store keeps about itself."""
    for spec in specs:
        family = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
        yield family(f"{prefix}{spec.name}", f"{spec.help} ({spec.unit})", values[spec.name])
