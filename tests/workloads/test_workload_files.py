"""The bundled experiments are the published ones."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

import workloads
from perftest.spec import Isolation, Plan, plan_for
from perftest.spec.layout_file import load_layout
from perftest.spec.models import json_schema
from perftest.spec.units import AUTOMATIC_ACK, NO_CONFIRMS, format_duration


def swept(plan: Plan) -> list[float]:
    """The values of the first swept setting, each once; nothing without a sweep."""
    if not plan.swept:
        return []
    found = (getattr(step.settings, plan.swept[0]) for step in plan.steps)
    return list(dict.fromkeys(value if 0 < value < 1 else round(value) for value in found if value is not None))


def test_in_flight_is_the_published_benchmark() -> None:
    """Trends can be compared with the published ones only if the experiment is the same."""
    plan = plan_for(workloads.path_of("flow_control/in_flight"), ())
    assert swept(plan) == [1, 5, 20, 200, 1000, 10_000]
    assert plan.isolation is Isolation.LIVE
    assert {(s.settings.prefetch, s.settings.ack_interval, s.settings.size_bytes) for s in plan.steps} == {
        (1000, 1, 1000)
    }
    assert {(s.duration_s, s.warmup_s) for s in plan.steps} == {(300, 10)}


def test_prefetch_is_isolated_as_published() -> None:
    """A prefetch of 1 fills the queue; the next value must not start with that backlog."""
    plan = plan_for(workloads.path_of("flow_control/prefetch"), ())
    assert swept(plan) == [1, 10, 100, 1000, 10_000]
    assert plan.isolation is Isolation.ISOLATED
    assert {s.settings.in_flight for s in plan.steps} == {1000}


def test_ack_interval_is_the_published_benchmark() -> None:
    """The sweet spot lies at 5 to 10 % of the prefetch: both ends must be in the sweep."""
    plan = plan_for(workloads.path_of("flow_control/ack_interval"), ())
    assert swept(plan) == [1, 10, 50, 100, 250, 500]
    assert {(s.settings.in_flight, s.settings.prefetch) for s in plan.steps} == {(1000, 1000)}


BACKGROUNDS = {"pure": None, "light": 10, "medium": 50}
LOADS = {"one_queue": (1, [None]), "four_queues": (4, [None]), "forty_queues": (40, [10, 50])}


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("load", LOADS)
def test_disks_are_the_published_benchmarks(background: str, load: str) -> None:
    """Three loads beside three backgrounds. Bodies of lazy queues have room for the stamp, unlike the published 16."""
    plan = plan_for(workloads.path_of(f"disks/{background}_{load}"), ())
    clients, rates = LOADS[load]
    assert [step.settings.rate for step in plan.steps] == rates
    for step in plan.steps:
        settings = step.settings
        assert (settings.publishers, settings.consumers, len(plan.queues)) == (clients, clients, clients)
        assert (settings.in_flight, settings.prefetch, settings.ack_interval) == (1000, 1000, 1)
        assert (settings.size_bytes, settings.persistent, step.duration_s) == (1024, True, 300)
    lazy = [(group.steps[0].settings.rate, len(group.queues)) for group in plan.background]
    assert lazy == ([] if BACKGROUNDS[background] is None else [(BACKGROUNDS[background], 40)])
    for queue in (queue for group in plan.background for queue in group.queues):
        assert (queue.type, queue.durable, queue.arguments) == ("classic", True, {"x-queue-mode": "lazy"})


STRESS = {
    # publishers = consumers, rate, queues; in-flight limits; ack interval beside 1
    "20_at_1000": ((20, 1000, 10), [10, 20, 50, 100, 200, 1000], None),
    "20_at_2000": ((20, 2000, 10), [20, 40, 100, 200, 400, 2000], 200),
    "500_at_30": ((500, 30, 100), [2, 3, 6, 15, 30, 60], None),
    "500_at_60": ((500, 60, 100), [2, 6, 12, 30, 60, 120], 6),
    "1000_at_100": ((1000, 100, 200), [2, 5, 10, 20, 100, 200], 10),
}


@pytest.mark.parametrize("kind", ["quorum", "mirrored"])
@pytest.mark.parametrize("load", STRESS)
def test_stress_loads_are_the_published_benchmarks(load: str, kind: str) -> None:
    """Without confirms and with growing limits, isolated from each other; the prefetch is the rate of a publisher."""
    plan = plan_for(workloads.path_of(f"stress/{kind}_{load}"), ())
    (clients, rate, queues), limits, acks = STRESS[load]
    swept = [(step.settings.in_flight, step.settings.ack_interval) for step in plan.steps]
    assert swept == [(limit, ack) for limit in [NO_CONFIRMS, *limits] for ack in ([1, acks] if acks else [1])]
    assert len(plan.queues) == queues
    assert {queue.type for queue in plan.queues} == {"quorum" if kind == "quorum" else "classic"}
    for step in plan.steps:
        settings = step.settings
        assert (settings.publishers, settings.consumers) == (clients, clients)
        assert (settings.rate, settings.prefetch) == (rate, rate)
        assert (settings.size_bytes, settings.persistent, step.duration_s) == (1000, True, 300)


@pytest.mark.parametrize("name", ["confirms", "confirms_mirrored"])
def test_confirms_and_acknowledgements_are_left_out_alone_and_together(name: str) -> None:
    plan = plan_for(workloads.path_of(f"flow_control/{name}"), ())
    swept = [(step.settings.in_flight, step.settings.ack_interval) for step in plan.steps]
    assert swept == [(limit, ack) for limit in (NO_CONFIRMS, 1000) for ack in (AUTOMATIC_ACK, 100)]


BENCHMARKS = [
    name
    for name in workloads.names()
    if name.startswith(("stress/", "flow_control/")) and name != "stress/intake_beyond_consumers"
]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_findings_name_their_place_and_steps_that_there_are(name: str) -> None:
    plan = plan_for(workloads.path_of(name), ())
    labels = [step.label for step in plan.steps]
    assert len(plan.findings) >= 2
    for finding in plan.findings:
        assert finding.place.startswith("benchmark") and finding.says.endswith(".")
        assert all(step in labels for step in finding.labels)


@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("load", LOADS)
def test_disks_state_what_their_source_found_about_layouts(background: str, load: str) -> None:
    """A finding about a layout that is not bundled could never be judged."""
    plan = plan_for(workloads.path_of(f"disks/{background}_{load}"), ())
    bundled = [f"{count}_{kind}" for count in ("one", "two", "three") for kind in ("ssd", "hdd")]
    titles = {load_layout(workloads.layout_path_of(f"disks/{name}"))[0].title for name in bundled}
    named = {layout for finding in plan.findings for layout in finding.layouts}
    assert len(plan.findings) >= 3 and {"one_ssd", "one_hdd", "three_hdd"} <= named <= titles
    for finding in plan.findings:
        assert finding.place.startswith(background) and finding.says.endswith(".")
        assert all(step in [each.label for each in plan.steps] for step in finding.labels)


@pytest.mark.parametrize("name", workloads.names())
def test_the_name_in_the_file_is_its_place(name: str) -> None:
    """A report that names a workload must lead back to its file."""
    assert plan_for(workloads.path_of(name), ()).name == name


@pytest.mark.parametrize("name", workloads.names())
def test_every_workload_is_in_the_table(name: str) -> None:
    """The table of the README is how people find an experiment."""
    readme = (workloads.DIRECTORY / "README.md").read_text()
    plan = plan_for(workloads.path_of(name), ())
    row = next(line for line in readme.splitlines() if f"`{name}`" in line)
    words = {NO_CONFIRMS: "no_confirms"} if plan.swept[:1] == ("in_flight",) else {}
    assert ", ".join(words.get(value, str(value)) for value in swept(plan)) in row
    assert re.search(rf"\b{plan.isolation}\b", row)


def test_the_schema_file_is_current() -> None:
    """Editors complete and check with it: an old one would refuse right files. REWRITE=1 writes it again."""
    path, text = workloads.DIRECTORY / "schema.json", json.dumps(json_schema(), indent=2) + "\n"
    if os.environ.get("REWRITE"):
        path.write_text(text)
    assert path.read_text() == text


def test_the_table_has_the_keys_of_the_code() -> None:
    """A key that is only in the schema is found by nobody who reads. REWRITE=1 writes the table again."""
    path, schema = workloads.DIRECTORY / "README.md", json_schema()
    before, begin, rest = path.read_text().partition("<!-- keys: begin -->\n")
    inside, end, after = rest.partition("<!-- keys: end -->\n")
    assert begin and end
    table = "".join(["| key | default | meaning |\n|---|---|---|\n", *rows(schema, schema["$defs"], "", {})])
    if os.environ.get("REWRITE"):
        path.write_text(before + begin + table + end + after)
    else:
        assert inside == table


def rows(section: Any, sections: Any, place: str, told: dict[str, str]) -> Iterator[str]:
    """A row of each key of a section, and of the sections below. A section that stands in several places is ``told``
    once."""
    for key, value in section["properties"].items():
        if place == "groups[]." and key in sections["BackgroundLoad"]["properties"]:
            continue
        kinds = re.findall(r"#/\$defs/(\w+)", json.dumps(value))
        inner = next((each for each in kinds if "properties" in sections[each] and each != "Layout"), "")
        name = f"{place}{key}" + ("[]" if inner and value.get("type") == "array" else "")
        default = "required" if key in section.get("required", ()) else "–" if inner else shown(value)
        again = f"; keys of `{told[inner]}`" if inner in told else ""
        meaning = value["description"] + words(value, [sections[each] for each in kinds]) + again
        yield f"| `{name}` | {default} | {meaning} |\n"
        if inner and not again:
            told[inner] = name
            yield from rows(sections[inner], sections, f"{name}.", told)


def words(key: Any, kinds: list[Any]) -> str:
    """The words of a key that takes only these."""
    found = [each["enum"] for each in (key, *key.get("anyOf", ()), *kinds) if "enum" in each]
    return f" (`{'`, `'.join(found[0])}`)" if found else ""


def shown(key: Any) -> str:
    """The default of a key as a person would write it."""
    default, ways = key.get("default"), key.get("anyOf", [])
    if default in (None, "", {}):
        return next((f"`{way['const']}`" for way in ways if "const" in way and default is None), "none")
    if any("|min|" in way.get("pattern", "") for way in ways):
        return format_duration(default) if default else "0"
    return f"`{default}`" if isinstance(default, str) else json.dumps(default).removesuffix(".0")
