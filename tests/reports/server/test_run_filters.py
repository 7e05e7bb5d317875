"""The filters of the list of runs: from an address to the runs that fit, and back to an address."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from reports.server.filters import TAGS_MAX, VALUE_MAX, Filters, filters_of
from reports.server.listed_run import ListedRun, ListedVerdict

DAY_NS = 86_400 * 10**9
RUNS = (
    ListedRun(
        name="a",
        workload="flow_control/in_flight",
        title="One queue",
        started_ns=20_000 * DAY_NS,  # 2024-10-04
        state="finished",
        broker="RabbitMQ 4.0.5",
        queues=("quorum",),
        layout="fast",
        verdict=ListedVerdict.VALID,
        tags=("baseline", "nightly"),
        note="new drive",
    ),
    ListedRun(
        name="b",
        workload="smoke[1]",
        started_ns=20_001 * DAY_NS,
        state="finished",
        broker="reference_broker 1.0.0",
        queues=("classic", "quorum"),
        verdict=ListedVerdict.INVALID,
        tags=("nightly",),
    ),
    ListedRun(name="c", state="damaged", verdict=ListedVerdict.DAMAGED, reason="its manifest cannot be read"),
)


def found(address: str) -> str:
    filters, problems = filters_of(parse_qsl(urlsplit(address).query, keep_blank_values=True))
    assert not problems
    return "".join(run.name for run in RUNS if filters.takes(run))


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("/", "abc"),
        ("/?unknown=1&q=&name=&broker=&tag=", "abc"),
        ("/?q=QUORUM+finished", "ab"),
        ("/?q=drive", "a"),
        ("/?q=invalid", "b"),
        ("/?q=nothing", ""),
        ("/?name=flow_control/*", "a"),
        ("/?name=smoke[1]", "b"),  # a whole name, although it reads as a pattern
        ("/?name=smoke", ""),
        ("/?broker=rabbit", "a"),
        ("/?broker=reference_broker+1.0.0", "b"),
        ("/?queue=classic", "b"),
        ("/?queue=quorum", "ab"),
        ("/?layout=fast", "a"),
        ("/?tag=nightly", "ab"),
        ("/?tag=nightly&tag=baseline", "a"),
        ("/?verdict=damaged", "c"),
        ("/?since=2024-10-04", "ab"),
        ("/?since=2024-10-05", "b"),
        ("/?until=2024-10-04", "a"),  # of a damaged run no day is known
        ("/?since=2024-10-04&until=2024-10-05&verdict=valid", "a"),
        ("/?verdict=valid&verdict=invalid", "b"),  # the last one counts
    ],
)
def test_an_address_finds_the_runs_that_fit(address: str, names: str) -> None:
    assert found(address) == names


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("since=yesterday", "“yesterday” is no day: write it as 2026-11-21"),
        ("until=2026-02-30", "“2026-02-30” is no day"),
        ("since=2026-W48-1", "is no day"),
        ("page=0", "“0” is no number of a page"),
        ("page=-1", "is no number of a page"),
        ("page=99999999", "is no number of a page"),
        ("verdict=good", "“good” is no verdict: choose one of valid, invalid, unsafe"),
        ("since=2026-11-02&until=2026-11-01", "the first day, 2026-11-02, is after the last day"),
    ],
)
def test_a_value_that_means_nothing_gets_a_sentence(query: str, said: str) -> None:
    filters, problems = filters_of(parse_qsl(query))
    assert len(problems) == 1 and said in problems[0]
    assert filters.page == 1 and not filters.verdict


@pytest.mark.parametrize(
    "filters",
    [
        Filters(),
        Filters(q="a b", name="flow_control/*", broker="RabbitMQ 4", queue="quorum", layout="2 drives & more", page=3),
        Filters(tags=("a", "b"), verdict="valid", since="2026-11-01", until="2026-11-30"),
    ],
)
def test_an_address_says_all_filters(filters: Filters) -> None:
    address = filters.address(page=filters.page)
    assert filters_of(parse_qsl(urlsplit(address).query)) == (filters, [])


def test_another_filter_begins_at_the_first_page() -> None:
    filters = Filters(q="a", page=3)
    assert filters.address(tags=("x",)) == "/?q=a&tag=x"
    assert Filters(page=2).address() == "/" and not Filters(page=2).any


def test_an_endless_address_counts_in_part() -> None:
    filters, problems = filters_of([("q", "x" * 10_000), *(("tag", f"t{number}") for number in range(1_000))])
    assert not problems and len(filters.q) == VALUE_MAX and len(filters.tags) == TAGS_MAX
