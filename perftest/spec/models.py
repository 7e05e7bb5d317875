"""The workload file as a person writes it, checked key by key.

Unknown keys are refused, so that a misspelt key cannot silently measure something else. Sections that are parts of the
plan are read as these parts, whose fields are the keys (:mod:`perftest.spec.fields`).
:mod:`perftest.spec.check` checks the relations between keys, and :mod:`perftest.spec.expand` makes a plan of the file.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from pydantic.json_schema import GenerateJsonSchema

from perftest.spec.behaviour import Connecting, Consuming, Exchange, Publishing
from perftest.spec.cluster import ClusterSpec
from perftest.spec.expected.trends import Finding, StatedFigure
from perftest.spec.fields import Count, Key, Quantity, Seconds, by_key
from perftest.spec.keys import Model
from perftest.spec.plan import Isolation, QueueSpec, Settings
from perftest.spec.timed_action import TimedAction

SCHEMA_VERSION: Final = 1
"""The version a workload file names. Raised when a file of the previous version would be misread."""

Swept = Literal[
    "in_flight",
    "prefetch",
    "ack_interval",
    "rate",
    "size",
    "ack_after",
    "consumer_latency",
    "failing",
    "publishers",
    "consumers",
]
Value = int | float | str


class Sweep(Model):
    """A step for each value of one setting, for each combination of several settings, or for each entry of a list.

    A sweep has one of these three: ``setting`` with ``values``; ``grid``, whose first setting changes slowest;
    ``steps``, each with the same settings.
    """

    setting: Annotated[Swept | None, Key("the setting to sweep")] = None
    values: Annotated[list[Value], Key("values of the setting, one step each")] = Field(default_factory=list)
    grid: Annotated[
        dict[Swept, Annotated[list[Value], Field(min_length=1)]],
        Key("instead of setting and values: every combination of these, {in_flight: [10, 100], prefetch: [100, 1000]}"),
    ] = Field(default_factory=dict)
    steps: Annotated[
        list[dict[Swept, Value]],
        Key(
            "instead of these: settings that change together, [{publishers: 1, rate: 1k}, {publishers: 10, rate: 100}]"
        ),
    ] = Field(default_factory=list)
    mode: Annotated[Isolation, Key("whether each step gets fresh queues and connections")] = Isolation.LIVE
    order: Annotated[Literal["given", "random"], Key("random: drawn by the seed, so that drift is no trend")] = "given"


class Timing(Model):
    """The times of a step."""

    duration: Annotated[Seconds, Key("length of each step, warm-up included")]
    warmup: Annotated[Seconds, Key("first part of each step, which is recorded but left out of the result")] = 0.0
    drain: Annotated[Seconds, Key("longest wait for confirmed messages at the end, or after isolated steps")] = 10.0


class OwnStep(Model):
    """A step of a background load: other settings than those of its load, and how long they hold."""

    set: Annotated[dict[Swept, Value], Key("settings that differ from the load of this group")]
    duration: Annotated[Seconds, Key("length of the step; the last step goes on until the load ends")]


_QUEUES = Annotated[
    list[Annotated[QueueSpec, Key("a queue")]],
    Field(min_length=1),
    Key("queues to declare before the run and to delete after it"),
]
_LOAD = Annotated[Settings, Key("settings of publishers and consumers, unless the sweep changes them")]
_EXCHANGE = Annotated[Exchange, Key("exchange that publishers publish to")]
_PUBLISHING = Annotated[Publishing, Key("how publishers behave")]
_CONSUMING = Annotated[Consuming, Key("how consumers behave")]


class BackgroundLoad(Model):
    """A load beside the measured load, in none of its figures. Its times stand still while the measured load drains
    between isolated steps."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=40), Key("name: small letters, digits and _")]
    queues: _QUEUES
    load: _LOAD = Settings()
    exchange: _EXCHANGE = Exchange()
    publishing: _PUBLISHING = Publishing()
    consuming: _CONSUMING = Consuming()
    ahead: Annotated[Seconds, Key("how long the load begins before the first step of the measured load")] = 0.0
    start: Annotated[Seconds, Key("how long the load begins after the first step of the measured load began")] = 0.0
    stop: Annotated[Seconds | None, Key("end of the load, after the first step began; none: with the run")] = None
    steps: Annotated[
        list[OwnStep], Key("settings of the load, one after the other: [{set: {rate: 10}, duration: 1m}]")
    ] = Field(default_factory=list)
    workers: Annotated[Count, Key("number of worker processes of this load; 0: as many as it is expected to need")] = 0


class GroupLoad(BackgroundLoad):
    """A load of its own beside the load at the top of the file: background load, or measured with figures of its
    own."""

    measured: Annotated[
        bool, Key("true: figures of its own, the steps of the measured load, and its own settings in all of them")
    ] = False


class Workload(Model):
    """A workload file."""

    version: Annotated[Literal[1], Field(alias="schema"), Key("version of the file format: 1")]
    name: Annotated[
        str,
        Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+)*$", max_length=80),
        Key("name: small letters, digits and _, in parts separated by /; the last part becomes part of the run's id"),
    ]
    title: Annotated[str, Field(min_length=1), Key("heading of the report")]
    source: Annotated[str, Key("address of the published experiment that the file repeats")] = ""
    source_title: Annotated[str, Key("title of that publication")] = ""
    description: Annotated[str, Key("expected result of the experiment")] = ""
    queues: _QUEUES
    load: _LOAD = Settings()
    exchange: _EXCHANGE = Exchange()
    publishing: _PUBLISHING = Publishing()
    consuming: _CONSUMING = Consuming()
    connecting: Annotated[Connecting, Key("how connections are made, kept and ended")] = Connecting()
    background: Annotated[list[BackgroundLoad], Key("loads beside the measured load")] = Field(default_factory=list)
    groups: Annotated[list[GroupLoad], Key("loads beside this one, measured or not")] = Field(default_factory=list)
    cluster: Annotated[ClusterSpec, Key("cluster that is started if no broker is named")] = ClusterSpec()
    timeline: Annotated[
        list[Annotated[TimedAction, Key("an action")]],
        Key("actions on nodes, drives, hosts and links while the load runs"),
    ] = Field(default_factory=list)
    sweep: Annotated[Sweep | None, Key("settings that change from step to step; none: one step")] = None
    published: Annotated[
        list[Annotated[StatedFigure, Key("a figure")]], Key("figures that the source states, to draw beside ours")
    ] = Field(default_factory=list)
    findings: Annotated[list[Annotated[Finding, Key("a finding")]], Key("what the source found, as trends")] = Field(
        default_factory=list
    )
    slo: Annotated[
        list[str], Key("objectives of the run, as of run --slo: [loss==0, e2e.p99<1s]; a missed one ends it with 4")
    ] = Field(default_factory=list)
    step: Annotated[Timing, Key("times of each step")]
    quick: Annotated[Timing, Key("times that --quick uses")] = Timing(duration=4.0, warmup=1.0, drain=5.0)
    interval: Annotated[Seconds, Key("time between two records of the measurement: 100ms to 1m")] = 1.0
    confirm_timeout: Annotated[Seconds, Key("longest wait for a confirm")] = 30.0
    workers: Annotated[Count, Key("number of worker processes; 0: as many as the load is expected to need")] = 0
    seed: Annotated[int, Field(ge=0, lt=2**32), Key("seed of every random choice of the run")] = 1


class _SchemaOfFile(GenerateJsonSchema):
    """Defaults as a file has them: by its keys, with times in seconds, and no empty lists."""

    def default_schema(self, schema: Any) -> dict[str, Any]:
        default, show = schema.get("default"), schema["schema"].get("serialization", {}).get("function")
        if default == ():
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema | {"default": show(default)} if show else schema)

    def encode_default(self, dft: Any) -> Any:
        return super().encode_default(by_key(dft, Quantity.in_base_unit) if is_dataclass(dft) else dft)


def json_schema() -> dict[str, object]:
    """The JSON schema of a workload file, for editors; ``workloads/schema.json`` is this."""
    schema = Workload.model_json_schema(by_alias=True, schema_generator=_SchemaOfFile)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
