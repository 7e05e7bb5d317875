"""CPU, WAL and host figures of each step, what nodes wrote for which purpose, and what they sent to each other: from
the samples of the broker's nodes and of the hosts.

A node and a host serve every group of load: each group of a step has the figures of the whole node and the whole host.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program gives it

from reports.pipeline.frames import NS, since_start
from reports.pipeline.parsing import HOST_OCTETS

COVERED_MIN: Final = 0.8
"""The part of a step's steady time that samples of a node must cover for a figure of that node's use."""

PURPOSES: Final = {
    "wal": (("wal_bytes",), ("wal_syncs",), "sync_ns_total"),
    "meta": ((), ("meta_syncs",), "meta_sync_ns_total"),
    "snapshot": (("snapshot_bytes",), ("snapshot_syncs",), "snapshot_sync_ns_total"),
    "segment": (("segment_bytes", "segment_compacted_bytes"), ("segment_syncs",), "segment_sync_ns_total"),
    "classic": (
        ("classic_queue_bytes", "classic_shared_bytes", "classic_index_bytes"),
        ("classic_queue_syncs", "classic_shared_syncs", "classic_index_syncs"),
        "classic_sync_ns_total",
    ),
}
"""What a node writes for: its counters of octets, its counters of syncs, and the counter of the time in these syncs."""


def differences(samples: DataFrame, runs: DataFrame) -> DataFrame:
    """Broker samples with rates since the node's previous sample.

    Figures are cumulative since the start of a process. So the first sample of a process (a new pid, or a counter that
    went back) has no rate.
    """
    before = Window.partitionBy("run_id", "node", "pid").orderBy("t_ns")
    length_ns = F.col("t_ns") - F.lag("t_ns").over(before)

    def since(name: str) -> Column:
        return F.col(name) - F.lag(name).over(before)

    def per_s(name: str) -> Column:
        changed = F.col(f"{name}_delta")
        return F.when((F.col("length_s") > 0) & (changed >= 0), changed / F.col("length_s"))

    return (
        samples.withColumn("length_s", length_ns / F.lit(NS))
        .withColumns({f"{name}_delta": since(name) for name in ("cpu_ns", "wal_syncs", "wal_bytes")})
        .withColumns({f"{name}_per_s": per_s(name) for name in ("cpu_ns", "wal_syncs", "wal_bytes")})
        .withColumn("cpu_share", F.col("cpu_ns_per_s") / F.lit(NS))
        .join(F.broadcast(runs), "run_id")
        .withColumn("t_s", since_start("t_ns"))
    )


def writes(brokers: DataFrame) -> DataFrame:
    """What a node wrote for each purpose since its previous sample: octets and syncs per second, mean length of a sync.

    Takes the samples as :func:`differences` gives them. A purpose that a broker does not count has no rows.
    """

    def total(names: tuple[str, ...]) -> Column:
        counters = [F.get_json_object("metrics", f"$.{name}").cast("double") for name in names]
        return reduce(Column.__add__, counters) if counters else F.lit(None).cast("double")

    def since(name: str) -> Column:
        before = Window.partitionBy("run_id", "node", "pid", "purpose").orderBy("t_ns")
        return F.col(name) - F.lag(name).over(before)

    told = F.array(
        *(
            F.struct(
                F.lit(purpose).alias("purpose"),
                total(octets).alias("bytes"),
                total(syncs).alias("syncs"),
                total((time,)).alias("sync_ns"),
            )
            for purpose, (octets, syncs, time) in PURPOSES.items()
        )
    )
    counted = brokers.withColumn("told", F.explode(told)).select("*", "told.*").where(F.col("syncs").isNotNull())
    grown = counted.withColumns({f"{name}_grown": since(name) for name in ("bytes", "syncs", "sync_ns")})
    return (
        grown.where((F.col("length_s") > 0) & (F.col("syncs_grown") >= 0))
        .withColumn("bytes_per_s", F.col("bytes_grown") / F.col("length_s"))
        .withColumn("syncs_per_s", F.col("syncs_grown") / F.col("length_s"))
        .withColumn("sync_mean_ns", F.when(F.col("syncs_grown") > 0, F.col("sync_ns_grown") / F.col("syncs_grown")))
    )


def of_brokers(brokers: DataFrame, step_totals: DataFrame) -> DataFrame:
    """Cores, syncs and octets per second of all nodes over each step's steady time.

    The rate of a node holds between two samples, and counts for the part of that time that is steady. A figure is null
    if the samples of a node cover less than COVERED_MIN of the steady time.
    """
    windows = F.broadcast(step_totals.select("run_id", "step", "group", "start_ns", "end_ns"))
    begins_ns = F.col("t_ns") - F.col("length_s") * NS
    overlap_ns = F.least(F.col("t_ns"), F.col("end_ns")) - F.greatest(begins_ns, F.col("start_ns"))
    sampled = brokers.where(F.col("cpu_share").isNotNull()).join(windows, "run_id")
    weighted = sampled.withColumn("overlap", overlap_ns / F.lit(NS)).where(F.col("overlap") > 0)

    def mean(name: str) -> Column:
        return (F.sum(F.col(name) * F.col("overlap")) / F.sum("overlap")).alias(name)

    per_node = weighted.groupBy("run_id", "step", "group", "node", "start_ns", "end_ns").agg(
        mean("cpu_share"), mean("wal_syncs_per_s"), mean("wal_bytes_per_s"), F.sum("overlap").alias("covered")
    )
    covered = F.col("covered") * NS / (F.col("end_ns") - F.col("start_ns"))
    return (
        per_node.groupBy("run_id", "step", "group")
        .agg(
            F.sum("cpu_share").alias("broker_cpu_share"),
            F.sum("wal_syncs_per_s").alias("wal_syncs_per_s"),
            F.sum("wal_bytes_per_s").alias("wal_bytes_per_s"),
            F.min(covered).alias("covered"),
        )
        .where(F.col("covered") >= COVERED_MIN)
        .drop("covered")
    )


def host_rates(samples: DataFrame) -> DataFrame:
    """Samples of hosts with octets per second since the host's previous sample.

    The first sample of a host has none, nor has a sample after a counter that went back: the host was started again.
    """
    before = Window.partitionBy("run_id", "host").orderBy("t_ns")
    grown = samples.withColumn("length_s", (F.col("t_ns") - F.lag("t_ns").over(before)) / F.lit(NS))

    def per_s(name: str) -> Column:
        since = F.col(name) - F.lag(name).over(before)
        return F.when((F.col("length_s") > 0) & (since >= 0), since / F.col("length_s"))

    return grown.withColumns({f"{name}_per_s": per_s(name) for name in HOST_OCTETS})


def of_hosts(samples: DataFrame, step_totals: DataFrame, hosts: DataFrame) -> DataFrame:
    """CPU of the busiest load host, per step over its steady time."""
    # A host that no manifest names made load: else it would have no samples.
    known = samples.join(F.broadcast(hosts.select("run_id", "host", "has_load")), ["run_id", "host"], "left")
    loaded = known.where(F.coalesce("has_load", F.lit(True)))
    per_host = (
        _within_steps(loaded, step_totals)
        .groupBy("run_id", "step", "group", "host")
        .agg(F.avg("cpu_percent").alias("cpu"))
    )
    return per_host.groupBy("run_id", "step", "group").agg(F.max("cpu").alias("host_cpu_percent"))


def of_each_host(samples: DataFrame, step_totals: DataFrame) -> DataFrame:
    """Mean CPU, and mean octets per second of network and drives, of each host over each step's steady time."""
    rates = tuple(f"{name}_per_s" for name in HOST_OCTETS)
    means = (F.avg("cpu_percent").alias("host_cpu_percent"), *(F.avg(name).alias(name) for name in rates))
    return _within_steps(samples, step_totals).groupBy("run_id", "step", "group", "host").agg(*means)


def _within_steps(samples: DataFrame, step_totals: DataFrame) -> DataFrame:
    windows = F.broadcast(step_totals.select("run_id", "step", "group", "start_ns", "end_ns"))
    # A sample tells of the time before it: a sample at the very end of a step belongs to it, one at the start does not.
    within = (F.col("t_ns") > F.col("start_ns")) & (F.col("t_ns") <= F.col("end_ns"))
    return samples.join(windows, "run_id").where(within)


def links(brokers: DataFrame, step_totals: DataFrame) -> DataFrame:
    """The table ``links``: octets that each node sent to each peer for each purpose, over each step's steady time.

    Takes the samples as :func:`differences` gives them. As in :func:`of_brokers`, a rate holds between two samples of a
    process, and there is no figure for a step of which the samples cover less than COVERED_MIN.
    """
    steps = step_totals.groupBy("run_id", "step").agg(
        F.min("start_ns").alias("start_ns"),
        F.max("end_ns").alias("end_ns"),
        *(F.sum(name).alias(name) for name in ("delivered", "published")),
    )
    begins_ns = F.col("t_ns") - F.col("length_s") * NS
    overlap_ns = F.least(F.col("t_ns"), F.col("end_ns")) - F.greatest(begins_ns, F.col("start_ns"))
    weighted = (
        _told_links(brokers)
        .join(F.broadcast(steps), "run_id")
        .withColumn("overlap", overlap_ns / F.lit(NS))
        .where(F.col("overlap") > 0)
    )
    keys = ("run_id", "step", "node", "peer", "purpose")
    steady_s = (F.col("end_ns") - F.col("start_ns")) / F.lit(NS)
    sums = weighted.groupBy(*keys, "start_ns", "end_ns", "delivered", "published").agg(
        (F.sum(F.col("bytes_per_s") * F.col("overlap")) / F.sum("overlap")).alias("bytes_per_s"),
        F.sum("overlap").alias("covered"),
    )
    messages = F.when(F.col("delivered") > 0, F.col("delivered")).otherwise(F.col("published"))
    per_message = F.when(messages > 0, F.col("bytes_per_s") * steady_s / messages)
    found = sums.where(F.col("covered") >= COVERED_MIN * steady_s).withColumn("bytes_per_message", per_message)
    places = brokers.groupBy("run_id", "node").agg(F.max("host").alias("host"))
    peers = places.withColumnsRenamed({"node": "peer", "host": "peer_host"})
    placed = found.join(places, ["run_id", "node"], "left").join(peers, ["run_id", "peer"], "left")
    return placed.withColumns({name: F.coalesce(name, F.lit("")) for name in ("host", "peer_host")})


def _told_links(brokers: DataFrame) -> DataFrame:
    """A row per sample, peer and purpose with ``bytes_per_s`` since the previous sample of the process."""
    of_peers = F.from_json("links", "map<string,map<string,bigint>>")
    by_peer = brokers.where(F.col("links").isNotNull()).select("*", F.explode(of_peers).alias("peer", "of_peer"))
    told = by_peer.select("*", F.explode("of_peer").alias("purpose", "sent_bytes"))
    before = Window.partitionBy("run_id", "node", "pid", "peer", "purpose").orderBy("t_ns")
    grown = told.withColumn("grown", F.col("sent_bytes") - F.lag("sent_bytes").over(before))
    usable = grown.where((F.col("length_s") > 0) & (F.col("grown") >= 0))
    return usable.withColumn("bytes_per_s", F.col("grown") / F.col("length_s")).drop("host")
