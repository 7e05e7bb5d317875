"""One interval of measurement: the record behind the screen, the plain lines, the JSON mode and the run directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from perftest.metrics.histogram import SparseCounts

LOCAL_HOST: Final = "local"
"""The name of the load host in records and tags when the run has only one."""


class Phase(StrEnum):
    """A part of a step. Only STEADY intervals make results. DRAIN follows the last publish."""

    WARMUP = "warmup"
    STEADY = "steady"
    DRAIN = "drain"


class Series(StrEnum):
    """The latencies that are recorded, in nanoseconds.

    E2E and CONFIRM start at the actual send (service time). E2E_SCHED and CONFIRM_SCHED start at the intended time of
    the schedule; they are recorded only where there is a schedule (open loop). LAG is the time from the intended to the
    actual send. ACK is the time from a delivery to the write of the acknowledgement that covers the delivery.
    """

    E2E = "e2e"
    E2E_SCHED = "e2e_sched"
    CONFIRM = "confirm"
    CONFIRM_SCHED = "confirm_sched"
    LAG = "lag"
    ACK = "ack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One worker's figures of one load between two instants. An interval never spans two steps or two phases.

    ``host`` is the load host that the worker runs on. ``group`` names the load where a run measures several side by
    side; a run with only one load leaves the group empty. Background load is not ``measured``: it is in no figure of
    the measured load. ``start_ns`` is Unix time.

    The record has counts, not rates: rates follow from ``length_ns``. ``intended`` is the number of messages that the
    schedule asked for; in a closed loop it equals ``published``. ``reordered``, ``duplicated``, ``unexpected`` and
    ``damaged`` count the harm that the ledger found within the interval. Losses are known only after the queues were
    drained. ``processed`` counts the deliveries that consumers were done with; it is None where consumers do not
    work on messages, so that every message is done as it comes.

    ``worker_cpu_ns`` is the CPU time of the worker, and ``worker_wait_ns`` the time for which the worker was ready to
    run and got no core. ``loop_lag_ns`` is the longest delay of the worker's event loop. ``gc_collections`` counts the
    garbage collections of the worker, and ``gc_pause_ns`` is the longest of them. ``steal_ns`` is CPU time of all cores
    of the host that its hypervisor gave to others; all workers of a host report the same ``steal_ns``.

    The clocks of two hosts leave open up to ``clock_bound_ns`` of the latency of a message that was sent on one and
    arrived on the other; on one host it is 0. ``below_bound`` of the latencies in E2E are less than their bound. Of
    these, ``below_zero`` came out negative and are recorded as 0, and ``beyond_bound`` so negative that a clock must be
    wrong. ``negative_latencies`` belong to messages that stayed on one host: they are recorded nowhere.

    ``latencies`` holds the bucket counts of each series that saw a value. A histogram is encoded once, for
    ``latency.hlog``: on the host that recorded it.
    """

    worker: str
    host: str = LOCAL_HOST
    group: str = ""
    measured: bool = True
    step: int
    phase: Phase
    start_ns: int
    length_ns: int
    intended: int = 0
    published: int = 0
    confirmed: int = 0
    nacked: int = 0
    returned: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    processed: int | None = None
    published_bytes: int = 0
    unconfirmed: int = 0
    negative_latencies: int = 0
    worker_cpu_ns: int = 0
    loop_lag_ns: int = 0
    worker_wait_ns: int = 0
    gc_collections: int = 0
    gc_pause_ns: int = 0
    steal_ns: int = 0
    reordered: int = 0
    duplicated: int = 0
    unexpected: int = 0
    damaged: int = 0
    clock_bound_ns: int = 0
    below_bound: int = 0
    below_zero: int = 0
    beyond_bound: int = 0
    latencies: dict[Series, SparseCounts] = field(default_factory=dict)

    @property
    def handled(self) -> int:
        """Deliveries that consumers were done with: what PerfTest calls received."""
        return self.delivered if self.processed is None else self.processed

    @property
    def source(self) -> tuple[str, str]:
        """The worker, with its host: worker names are unique on a host only."""
        return self.host, self.worker
