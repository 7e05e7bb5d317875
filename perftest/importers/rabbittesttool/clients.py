"""Converts the publishers and consumers of a topology into sections of a workload."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from perftest.importers.rabbittesttool.policy import properties
from perftest.importers.section import SourceSection
from perftest.importers.write import plain_number
from perftest.spec.rules import FRAME_MAX_MIN, PREFETCH_MAX
from perftest.spec.units import UNLIMITED

ROUTING: Final = {word.lower(): word for word in ("None", "Random", "FixedValue", "MultiValue", "Index", "StreamKey")}
_STREAM: Final = (
    "maxBatchSize", "maxBatchSizeBytes", "maxBatchWaitMs", "maxSubEntrySizeBytes", "singleMessageBucketSize",
    "streamPublishMode",
)  # fmt: skip


@dataclass(slots=True)
class Publishers:
    """Publishers with one prefix: their load and their destination."""

    source: SourceSection
    prefix: str
    count: int
    load: dict[str, Any]
    publishing: dict[str, Any] = field(default_factory=dict)
    frame_max: int = 0
    queue_prefix: str = ""
    exchange: str = ""
    mode: str = "None"
    keys: list[str] = field(default_factory=list)

    @property
    def alike(self) -> tuple[object, ...]:
        """The parts that must be equal for two groups of publishers to count as one group."""
        return (self.load, self.publishing, self.queue_prefix, self.exchange, self.mode, self.keys)


@dataclass(slots=True)
class Consumers:
    """Consumers with one prefix."""

    source: SourceSection
    prefix: str
    count: int
    queue_prefix: str
    load: dict[str, Any]
    consuming: dict[str, Any] = field(default_factory=dict)
    frame_max: int = 0


def publishers_of(source: SourceSection) -> Publishers | None:
    """Read publishers; None if they are not included, or if their number is 0."""
    if not _is_included(source):
        return None
    confirms = source.section("publishMode")
    window = _window(confirms)
    _is_amqp(confirms)
    confirms.drop("the key is about streams", *_STREAM, unless=(0, 1, 1000, 64000, "single"))
    confirms.finish()
    transient = source.choice("deliveryMode", default="persistent", known={"persistent": "", "transient": "yes"})
    load: dict[str, Any] = {
        "in_flight": window,
        "size": source.body_size("messageSize", source.count("messageSize", default=16)),
        "persistent": not transient,
    }
    rate = source.number("msgsPerSecondPerPublisher")
    if rate:
        load["rate"] = plain_number(rate)
    found = Publishers(source, source.text("prefix", "group"), source.count("scale", default=1), load)
    headers = _headers(source)
    found.publishing = {"properties": headers} if headers else {}
    found.frame_max = _frame_max(source)
    _destination(source, found)
    source.drop("a publisher has one sequence of numbers", "streams", "sequences", unless=(1,))
    source.drop("nothing is published beforehand", "initialPublish", unless=(0,),
                fix="let consumers begin later, with consuming.start_delay, to have a backlog")  # fmt: skip
    source.finish()
    return found


def _is_included(source: SourceSection) -> bool:
    """Whether the clients are included and their number is above 0. Clients that the tool skips need no note."""
    return source.flag("include", default=True) and source.count("scale", default=1) > 0


def _window(source: SourceSection) -> int | str:
    confirms, limit = source.flag("useConfirms"), source.count("inFlightLimit")
    if confirms and not limit:
        source.different("inFlightLimit", "confirms without a limit become in_flight: unlimited")
    return (limit or UNLIMITED) if confirms else 0


def _is_amqp(source: SourceSection) -> None:
    if source.text("protocol", default="amqp091").lower() != "amqp091":
        source.wrong("protocol", "only AMQP 0-9-1 is measured", "use PerfTest's stream or MQTT tools")


def _frame_max(source: SourceSection) -> int:
    size = source.count("frameMax")
    if 0 < size < FRAME_MAX_MIN:
        source.different("frameMax", f"the protocol has at least {FRAME_MAX_MIN}, not {size}")
    return max(size, FRAME_MAX_MIN) if size else 0


def _headers(source: SourceSection) -> dict[str, Any]:
    """The first headers, as many as each message has. The tool would draw them for each message."""
    number, headers = source.count("headersPerMessage"), properties(source, "availableHeaders")
    if number > len(headers):
        source.wrong("headersPerMessage", f"there are {len(headers)} availableHeaders, not {number}", "name more")
    if 0 < number < len(headers):
        what = f"every message has the first {number} of {len(headers)} headers, not random headers"
        source.different("headersPerMessage", what)
    return dict(list(headers.items())[:number])


def _destination(source: SourceSection, found: Publishers) -> None:
    to_queues, to_exchange = source.section("sendToQueuePrefix", "sendToQueueGroup"), source.section("sendToExchange")
    if to_queues.data:
        found.queue_prefix = to_queues.text("queuePrefix", "queueGroup")
        if to_queues.choice("mode", default="counterpart", known={"counterpart": "", "random": "yes"}):
            to_queues.different(
                "mode", "each publisher has one queue, in turn: no publisher draws a queue for each message"
            )
    elif to_exchange.data:
        found.exchange = to_exchange.text("exchange")
        found.mode = to_exchange.choice("routingKeyMode", default="none", known=ROUTING)
        found.keys = [str(key) for key in to_exchange.values("routingKeys")]
        if found.mode == "FixedValue":
            found.keys = [to_exchange.text("routingKey")]
        to_exchange.ignore("routingKey")
    else:
        source.wrong("prefix", "these publishers publish to nothing", "add sendToQueuePrefix or sendToExchange")
    to_queues.finish()
    to_exchange.finish()


def consumers_of(source: SourceSection) -> Consumers | None:
    """Read consumers; None if they are not included, or if their number is 0."""
    if not _is_included(source):
        return None
    acks = source.section("ackMode")
    manual = acks.flag("manualAcks")
    prefetch, interval = acks.count("consumerPrefetch"), acks.count("ackInterval", default=1)
    after_ms = acks.count("ackIntervalMs", default=1000)
    found = Consumers(source, source.text("prefix", "group"), source.count("scale", default=1),
                      source.text("queuePrefix", "queueGroup"), {})  # fmt: skip
    found.load = _acknowledging(acks, prefetch, interval, after_ms) if manual else {"prefetch": 0, "ack_interval": 0}
    if acks.flag("globalPrefetch") and manual:
        acks.different("globalPrefetch", "the prefetch counts for each consumer, because a channel has one consumer")
    acks.drop("no message goes back to its queue", "requeueEveryNth", "requeueEveryN", unless=(0,),
              fix="consuming.nack: true sends every message back")  # fmt: skip
    acks.finish()
    working_ms = source.number("processingMs")
    if working_ms:
        found.load["consumer_latency"] = f"{working_ms:g}ms"
    found.frame_max = _frame_max(source)
    _is_amqp(source)
    source.finish()
    return found


def _acknowledging(acks: SourceSection, prefetch: int, interval: int, after_ms: int) -> dict[str, Any]:
    if prefetch > PREFETCH_MAX:
        acks.different("consumerPrefetch", f"the protocol has at most {PREFETCH_MAX}, not {prefetch}")
        prefetch = PREFETCH_MAX
    interval = max(interval, 1)
    if 0 < prefetch < interval:
        acks.different(
            "ackInterval",
            f"the ack interval is {prefetch}, like the prefetch, not {interval}: more messages never wait",
        )
        interval = prefetch
    if interval > 1:
        acks.different(
            "ackInterval",
            f"an acknowledgement follows exactly {interval} messages; the tool waits for one message more",
        )
    load: dict[str, Any] = {"prefetch": prefetch, "ack_interval": interval}
    if after_ms and interval > 1:
        load["ack_after"] = f"{after_ms}ms"
    return load
