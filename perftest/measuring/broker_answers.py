"""A broker's answers over HTTP as records of ``broker.jsonl``. Pure: answers in, records out.

Two kinds of answers are understood: the text format of Prometheus (RabbitMQ's ``rabbitmq_prometheus``: ``/metrics``,
``/metrics/per-object``, ``/metrics/detailed``; the bundled broker's ``/metrics``), and the JSON of RabbitMQ's
management API. Names are RabbitMQ's. A figure that the answer does not have is left out of the record, never guessed.

RabbitMQ tells the CPU time of its Erlang VM as user time only (``erlang:statistics(runtime)``). The record then has
``cpu_kind`` "user".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

Record = dict[str, Any]

QUEUES_SAMPLED: Final = 4
"""Number of queues that are named for each node, the deepest first."""

USER: Final = "user"
"""Value of ``cpu_kind`` in a record whose CPU time leaves out the kernel's work for the broker."""

_GAUGES: Final = {
    "rabbitmq_connections": "connections",
    "rabbitmq_channels": "channels",
    "rabbitmq_queues": "queues",
    "rabbitmq_disk_space_available_bytes": "disk_free_bytes",
    "rabbitmq_io_write_bytes_total": "disk_write_bytes",
    "rabbitmq_io_write_ops_total": "disk_writes",
    "rabbitmq_io_sync_ops_total": "disk_syncs",
}
"""Samples without labels, and their names in a record."""
_DEPTHS: Final = {
    "queue_messages": "messages",
    "queue_messages_ready": "messages_ready",
    "queue_messages_unacked": "messages_unacked",
}
"""Samples of each queue, or of all queues of the node, without their prefix."""
_PREFIXES: Final = ("rabbitmq_detailed_", "rabbitmq_")
_LOG: Final = "rabbitmq_raft_log_"
_LOG_COUNTERS: Final = ("wal_syncs", "wal_bytes", "wal_writes", "wal_entries", "sync_ns_total", "segment_files")
"""Counters of the bundled broker's log, under their own names."""
_MEMORY: Final = ("rabbitmq_process_resident_memory_bytes", "process_resident_memory_bytes")
_SENT: Final = "erlang_vm_dist_send_bytes"
"""Octets that a node of RabbitMQ has sent to each of its peers since it connected, with the label ``peer``."""
_SENT_FOR: Final = "distribution"
"""Purpose of these octets in the record: Erlang's distribution carries everything that nodes tell each other."""
_COMMANDS: Final = "rabbitmqcli"
"""Beginning of the name of a peer that is a command, not a node."""
_WANTED: Final = (
    *("rabbitmq_identity_info", "process_start_time_seconds", "process_cpu_seconds_total", *_MEMORY, *_GAUGES, _LOG),
    *(
        "erlang_vm_statistics_runtime_milliseconds",
        "rabbitmq_queue_messages",
        "rabbitmq_detailed_queue_messages",
        _SENT,
    ),
)
_OF_NODE: Final = {
    "disk_free": "disk_free_bytes",
    "io_write_bytes": "disk_write_bytes",
    "io_write_count": "disk_writes",
    "io_sync_count": "disk_syncs",
}
"""Keys of ``/api/nodes``, and their names in a record."""
_OF_QUEUE: Final = {
    "messages": "messages",
    "messages_ready": "messages_ready",
    "messages_unacknowledged": "messages_unacked",
}


def of_text(text: str, place: str) -> Record | None:
    """The record of a node that answered in the text format; None if the text has no figures of a broker.

    :param place: name for a node that does not tell its own name
    """
    # Only wanted lines are parsed, because parsing is slow and thousands of queues have many lines.
    lines = [line for line in text.splitlines() if line.startswith(_WANTED)]
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    samples = [sample for family in families for sample in family.samples]
    if not samples:
        return None
    plain = {sample.name: sample.value for sample in samples if not sample.labels}
    names = (sample.labels.get("rabbitmq_node") for sample in samples if sample.name == "rabbitmq_identity_info")
    record: Record = {"node": next(filter(None, names), place), "role": "", **_process(plain)}
    metrics = {word: _number(plain[name]) for name, word in _GAUGES.items() if name in plain}
    metrics |= _log(plain)
    queues = _queues(samples)
    metrics |= _depths(plain, queues)
    return {**record, "metrics": metrics, "queues": _deepest(queues), **_links(samples)}


def of_management(nodes: Any, queues: Any, overview: Any) -> list[Record]:
    """The records of all nodes that the management API knows. Absent and malformed figures are left out."""
    totals = _mapping(_mapping(overview).get("object_totals"))
    every = [queue for queue in _mappings(queues) if isinstance(queue.get("name"), str)]
    found = [node for node in _mappings(nodes) if isinstance(node.get("name"), str)]
    records = []
    for number, node in enumerate(found):
        metrics = {word: _number(node[key]) for key, word in _OF_NODE.items() if _is_number(node.get(key))}
        mine = [_named(queue) for queue in every if queue.get("node") == node["name"]]
        metrics |= {word: sum(queue.get(word, 0) for queue in mine) for word in _OF_QUEUE.values()}
        if number == 0:  # figures of the whole cluster: in one record only, so that a sum over the nodes is right
            metrics |= {
                key: totals[key] for key in ("connections", "channels", "queues") if _is_number(totals.get(key))
            }
        record: Record = {"node": node["name"], "role": ""}
        if str(node.get("os_pid", "")).isdecimal():
            record["pid"] = int(node["os_pid"])
        if _is_number(node.get("mem_used")):
            record["rss_bytes"] = int(node["mem_used"])
        records.append({**record, "metrics": metrics, "queues": _deepest(mine)})
    return records


def joined(records: Iterable[Record]) -> list[Record]:
    """One record for each node. If several addresses tell the same figure of a node, the first address counts."""
    found: dict[str, Record] = {}
    for record in records:
        known = found.setdefault(record["node"], record)
        if known is not record:
            metrics = {**record["metrics"], **known["metrics"]}
            queues = known["queues"] or record["queues"]
            known.update({**record, **known, "metrics": metrics, "queues": queues})
    return [found[name] for name in sorted(found)]


def _process(plain: Mapping[str, float]) -> Record:
    """Memory, CPU time and start time of the process. A new start time means a CPU time from 0."""
    found: Record = {}
    if "process_start_time_seconds" in plain:
        found["pid"] = int(plain["process_start_time_seconds"])
    if "process_cpu_seconds_total" in plain:
        found["cpu_ns"] = round(plain["process_cpu_seconds_total"] * 1e9)
    elif "erlang_vm_statistics_runtime_milliseconds" in plain:
        found["cpu_ns"] = round(plain["erlang_vm_statistics_runtime_milliseconds"] * 1e6)
        found["cpu_kind"] = USER
    memory = next((plain[name] for name in _MEMORY if name in plain), None)
    return found if memory is None else {**found, "rss_bytes": int(memory)}


def _log(plain: Mapping[str, float]) -> dict[str, float]:
    """The counters of the log. In the text format, the name of each counter ends in ``_total``."""
    places = {word: (f"{_LOG}{word}", f"{_LOG}{word}_total") for word in _LOG_COUNTERS}
    return {word: _number(plain[name]) for word, names in places.items() for name in names if name in plain}


def _links(samples: Iterable[Sample]) -> dict[str, dict[str, dict[str, int]]]:
    """The octets sent to each peer, under ``links``; nothing for a broker that does not tell them."""
    sent = {sample.labels.get("peer", ""): {_SENT_FOR: int(sample.value)} for sample in samples if sample.name == _SENT}
    peers = {peer: octets for peer, octets in sent.items() if peer and not peer.startswith(_COMMANDS)}
    return {"links": peers} if peers else {}


def _queues(samples: Iterable[Sample]) -> list[Record]:
    """The figures of each queue."""
    found: dict[tuple[str, str], Record] = {}
    for sample in samples:
        word = _depth(sample.name)
        if word is not None and "queue" in sample.labels:
            place = (sample.labels.get("vhost", ""), sample.labels["queue"])
            found.setdefault(place, {"name": place[1]})[word] = _number(sample.value)
    return list(found.values())


def _depths(plain: Mapping[str, float], queues: Sequence[Record]) -> dict[str, float]:
    """The number of messages in the node's queues: the sum that the node tells, or else the sum over its queues."""
    told = {word: _number(plain[name]) for name in plain if (word := _depth(name)) is not None}
    summed = {word: sum(queue[word] for queue in queues if word in queue) for word in _DEPTHS.values()}
    return told or {word: total for word, total in summed.items() if any(word in queue for queue in queues)}


def _depth(name: str) -> str | None:
    bare = next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)
    return _DEPTHS.get(bare)


def _named(queue: Mapping[str, Any]) -> Record:
    depths = {word: _number(queue[key]) for key, word in _OF_QUEUE.items() if _is_number(queue.get(key))}
    return {"name": queue["name"], **depths}


def _deepest(queues: Iterable[Record]) -> list[Record]:
    return sorted(queues, key=lambda queue: (-queue.get("messages", 0), queue["name"]))[:QUEUES_SAMPLED]


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
