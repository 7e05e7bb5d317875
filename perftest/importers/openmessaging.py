"""Converts workloads of OpenMessaging Benchmark, as its RabbitMQ driver runs them.

The driver declares a fanout exchange for each topic and a queue for each subscription. It uses confirms without a
limit, publishes transient messages by default, and consumes with automatic acknowledgement. ``producerRate`` is the
total rate of all producers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import yaml

from perftest.importers.notes import Converted, Imported, Notes
from perftest.importers.section import SourceSection
from perftest.importers.write import BACKGROUNDS_MAX, QUEUES_MAX, name_of, plain_number
from perftest.spec.condense import duration
from perftest.spec.rules import PUBLISHERS_MAX, SIZE_BYTES_MIN
from perftest.spec.units import UNLIMITED

STEPS_MAX: Final = 1000

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_KEYS: Final = ("topics", "messageSize", "producersPerTopic", "subscriptionsPerTopic")

Find = Callable[[str], str | None]
"""Finds the path of a file that the source names; None if there is no such file."""


def is_openmessaging(data: object) -> bool:
    """Whether the data looks like a workload of OpenMessaging Benchmark."""
    return isinstance(data, Mapping) and sum(key in data for key in _KEYS) >= 2


def import_openmessaging(text: str, file: str, find: Find) -> Imported:
    """The workload of a file. Raises SpecError if it cannot be read."""
    notes = Notes(file)
    try:
        data = yaml.safe_load(_resolved(text, notes))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}" if mark is not None else ""
        notes.problem(place, f"this is not YAML: {getattr(error, 'problem', error)}", "check indentation and quotes")
        data = {}
    if not isinstance(data, Mapping):
        notes.problem("", "a workload is a mapping of keys to values", "begin with `name:` and `topics:`")
        data = {}
    notes.stop_at_problems()
    section = SourceSection(data, notes)
    workload = _workload(section, find)
    section.finish()
    notes.stop_at_problems()
    return Imported([Converted(workload, notes.found)])


def _resolved(text: str, notes: Notes) -> str:
    """The text with ``${name:-15}`` replaced by its default, because the importer reads no environment."""

    def replace(match: re.Match[str]) -> str:
        name, default = match.groups()
        if default is None:
            notes.problem(f"${{{name}}}", "this variable has no default", f"write a value, or ${{{name}:-VALUE}}")
            return "0"
        notes.different(f"${{{name}}}", f"the variable gets its default: {default}")
        return str(default)

    lines = (line if line.lstrip().startswith("#") else _VARIABLE.sub(replace, line) for line in text.splitlines())
    return "\n".join(lines)


def _workload(source: SourceSection, find: Find) -> dict[str, Any]:
    topics, producers = max(source.count("topics", default=1), 1), source.count("producersPerTopic", default=1)
    subscriptions = source.count("subscriptionsPerTopic", default=1)
    consumers = subscriptions * source.count("consumerPerSubscription", default=1)
    _check_size(source, topics, producers, subscriptions, consumers)
    load, publishing = _load(source, topics, producers), _bodies(source, find)
    load["consumers"] = consumers
    if not load["publishers"] and not load["consumers"]:
        source.wrong("producersPerTopic", "nobody publishes and nobody consumes", "write 1 or more")
    title = source.text("name").strip() or "OpenMessaging workload"
    stem = name_of(title)
    if topics > 1 and subscriptions == 1:
        source.different(
            "topics", "messages go to the only queue of each topic by its name, without an exchange for the topic"
        )
        load = {**load, "publishers": load["publishers"] * topics, "consumers": load["consumers"] * topics}
        routing: dict[str, Any] = {"queues": [_queue(f"{stem}_{number}") for number in range(1, topics + 1)]}
    else:
        routing = _fanout(stem if topics == 1 else f"{stem}_1", subscriptions)
    step, consuming = _times(source, load)
    sweep = _increments(source, topics * producers)
    workload = {
        "schema": 1,
        "name": stem,
        "title": title,
        "description": "",
        "queues": routing.pop("queues"),
        "load": {key: value for key, value in load.items() if key != sweep.get("setting")},
        **routing,
        "publishing": publishing,
        "consuming": consuming,
        "background": _other_topics(source, stem, topics, subscriptions, load, publishing),
        "sweep": sweep,
        "step": {"duration": duration(source.number("producerIncrementSeconds", default=60))} if sweep else step,
    }
    _say_what_is_missing(source)
    return {key: value for key, value in workload.items() if value not in ("", {}, [])}


def _check_size(source: SourceSection, topics: int, producers: int, subscriptions: int, consumers: int) -> None:
    """Refuse what is too much at once, before it is written out and checked."""
    if topics * max(subscriptions, 1) > QUEUES_MAX:
        what = f"{topics} topics of {subscriptions} subscriptions are more than {QUEUES_MAX} queues"
        source.wrong("topics", what, "write fewer, and run several workloads beside each other")
    for key, each in (("producersPerTopic", producers), ("subscriptionsPerTopic", consumers)):
        if topics * each > PUBLISHERS_MAX:
            what = f"{topics * each} clients are more than the {PUBLISHERS_MAX} that a run can tell apart"
            source.wrong(key, what, "write fewer, or fewer topics")
    source.notes.stop_at_problems()


def _queue(name: str) -> dict[str, Any]:
    return {"name": name, "type": "classic"}


def _fanout(name: str, subscriptions: int) -> dict[str, Any]:
    """The exchange of a topic, and a queue for each subscription."""
    queues = [_queue(f"{name}_sub{number}") for number in range(1, max(subscriptions, 1) + 1)]
    return {"queues": queues, "exchange": {"name": name, "type": "fanout"}}


def _load(source: SourceSection, topics: int, producers: int) -> dict[str, Any]:
    driver = "the defaults of the RabbitMQ driver: confirms without a limit, automatic acknowledgement, transient"
    source.notes.different("", f"{driver} messages in classic queues", "change load: and queues: for safe settings")
    size, rate = source.count("messageSize", default=SIZE_BYTES_MIN), source.number("producerRate")
    size = source.body_size("messageSize", size)
    window: str | int = UNLIMITED
    if not rate:
        what = "0 asks for the highest rate: this workload publishes as fast as 1000 messages in flight allow"
        source.different("producerRate", what, "find it with `perftest search --workload FILE --slo 'e2e.p99<1s'`")
        window = 1000
    load: dict[str, Any] = {"in_flight": window, "prefetch": 0, "ack_interval": 0}
    if rate and producers:
        load["rate"] = plain_number(rate / (topics * producers))
    return {**load, "size": size, "publishers": producers, "consumers": 0, "persistent": False}


def _bodies(source: SourceSection, find: Find) -> dict[str, Any]:
    payload = source.text("payloadFile")
    random = source.flag("useRandomizedPayloads")
    ratio, pool = source.number("randomBytesRatio"), source.count("randomizedPayloadPoolSize")
    if random:
        what = f"bodies are our filler, not {pool or 'some'} random ones of which a part of {ratio:g} is random"
        source.without("useRandomizedPayloads", what, "give bodies of your own with publishing.bodies.files")
    if not payload or random:
        return {}
    path = find(payload)
    if path is None:
        source.without("payloadFile", f"there is no file {payload}: bodies are our filler of messageSize octets",
                       "give its path in publishing.bodies.files")  # fmt: skip
        return {}
    return {"bodies": {"files": [path]}}


def _times(source: SourceSection, load: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The step, and how long consumers wait until there is a backlog."""
    test, warmup = source.number("testDurationMinutes", default=1), source.number("warmupDurationMinutes", default=1)
    if not test:
        source.wrong("testDurationMinutes", "a test needs time", "write 1 or more")
    backlog, wait_s = source.number("consumerBacklogSizeGB"), 0.0
    if backlog:
        rate = source.number("producerRate")
        wait_s = backlog * 1e9 / (rate * load["size"]) if rate else 0.0
        if wait_s and load["consumers"]:
            what = f"consumers begin after {wait_s:.0f} s, when so much lies in the queues, and the step lasts longer"
            source.different("consumerBacklogSizeGB", f"{what} by as much")
        else:
            fix = "set consuming.start_delay, so that consumers begin when there is a backlog"
            source.without("consumerBacklogSizeGB", "without a rate, the time for that backlog is unknown", fix)
            wait_s = 0.0
    wait_s = float(round(wait_s)) if load["consumers"] else 0.0
    step = {"duration": duration((test + warmup) * 60 + wait_s)}
    if warmup:
        step["warmup"] = duration(warmup * 60)
    return step, {"start_delay": duration(wait_s)} if wait_s else {}


def _increments(source: SourceSection, producers: int) -> dict[str, Any]:
    """The sweep of ``producerIncrementRate``: the rate grows in steps from the start to the end."""
    grows, start = source.number("producerIncrementRate"), source.number("producerStartRate", default=10_000)
    seconds, end = source.number("producerIncrementSeconds", default=60), source.number("producerRate")
    if not grows:
        if end and source.has("producerStartRate"):
            source.without(
                "producerStartRate", "the key says where a search for the highest rate begins, but there is a rate"
            )
        return {}
    if not producers or not end or start >= end or (end - start) / grows >= STEPS_MAX:
        source.without("producerIncrementRate", "the rate does not grow from producerStartRate to producerRate in a "
                       f"number of steps below {STEPS_MAX}")  # fmt: skip
        return {}
    rates = [start + grows * number for number in range(int((end - start) / grows) + 1)]
    rates += [end] if rates[-1] < end else []
    what = f"{len(rates)} steps of {seconds:g} s each, whatever the durations of test and warm-up are"
    source.different("producerIncrementRate", f"the rate of the measured load grows in {what}")
    return {"setting": "rate", "values": [plain_number(rate / producers) for rate in rates]}


def _other_topics(
    source: SourceSection, stem: str, topics: int, subscriptions: int, load: dict[str, Any], publishing: dict[str, Any]
) -> list[dict[str, Any]]:
    """Background loads for the topics beside the first, if topics have several subscriptions and so an exchange
    each."""
    if topics == 1 or subscriptions == 1:
        return []
    shown = min(topics - 1, BACKGROUNDS_MAX)
    source.different(
        "topics", f"the first topic is measured; {shown} other topics are background loads, which are in no figure"
    )
    if shown < topics - 1:
        fix = "run the rest from further hosts"
        source.without(
            "topics", f"{topics - 1 - shown} topics are left out, because each topic would be a process", fix
        )
    return [
        {
            "name": f"topic_{number}",
            "queues": (routing := _fanout(f"{stem}_{number}", subscriptions))["queues"],
            "load": load,
            "exchange": routing["exchange"],
            **({"publishing": publishing} if publishing else {}),
        }
        for number in range(2, shown + 2)
    ]


def _say_what_is_missing(source: SourceSection) -> None:
    partitions, keys = source.count("partitionsPerTopic", default=1), source.text("keyDistributor", default="NO_KEY")
    if partitions > 1:
        what = f"a topic has one queue per subscription, not {partitions} partitions; the RabbitMQ driver refuses them"
        source.without("partitionsPerTopic", what, "raise topics: instead, for queues in parallel")
    if keys.upper() != "NO_KEY":
        source.without("keyDistributor", "a fanout exchange, or a queue's name, ignores keys")
    source.drop("the key says what the tool counts as a backlog while it searches for a rate", "acceptableBacklog",
                fix="`perftest search` asks that 99 % be delivered")  # fmt: skip
    source.drop("the run does not watch how a backlog drains", "backlogDrainRatio", "producerPauseBeforeDrain",
                "producerPauseDuringDrain", unless=(0, 0.0))  # fmt: skip
    source.drop("subscriptions have no filters", "messageRateReceivedForSubscription", unless=(100,))
    source.drop("the warm-up has the rate of the test", "warmupProducerRate", fix="use publishing.rate_cycle")
