"""The names of metrics: what people write is read, and what is printed has one spelling."""

from __future__ import annotations

import pytest

from perftest.metrics.names import (
    COMPARED,
    METRICS,
    SHORT_NAMES,
    MetricNameError,
    filters_of,
    metric_named,
    metrics_like,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("e2e.p99", "e2e.p99"),
        ("e2e p99", "e2e.p99"),
        ("e2e_sched p99.9", "e2e.p99.9"),
        (" E2E  P999 ", "e2e.p99.9"),
        ("confirm_sched.p50", "confirm.p50"),
        ("confirm_service.max", "confirm_service.max"),
        ("delivered/s", "delivered"),
        ("Broker CPU", "broker_cpu"),
        ("loss", "loss"),
    ],
)
def test_every_spelling_means_one_metric(text: str, name: str) -> None:
    """Names that earlier output had stand in scripts."""
    assert metric_named(text) == name


@pytest.mark.parametrize("name", METRICS)
def test_every_name_is_its_own_spelling(name: str) -> None:
    assert metric_named(name) == name


@pytest.mark.parametrize(
    ("text", "known", "says"),
    [
        ("p99", METRICS, "say of what: e2e.p99 or confirm.p99"),
        ("confirm", COMPARED, "'confirm' needs a statistic: write confirm.p99, or .p50, .p99.9"),
        ("e2ep99", METRICS, "did you mean e2e.p99?"),
        ("confrim.p99", METRICS, "did you mean confirm.p99?"),
        ("e2e.p75", COMPARED, "did you mean e2e.p"),
        ("xyzzy", COMPARED, "use delivered, published, e2e.p50"),
        ("xyzzy", METRICS, "use e2e.p99, confirm.p99, rate, loss"),
    ],
)
def test_what_is_no_metric_gets_a_proposal(text: str, known: tuple[str, ...], says: str) -> None:
    with pytest.raises(MetricNameError) as caught:
        metric_named(text, known)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("p99", ("e2e.p99", "confirm.p99")),
        ("p99.9", ("e2e.p99.9", "confirm.p99.9")),
        ("e2e", ("e2e.p50", "e2e.p99", "e2e.p99.9")),
        ("e2e.p99", ("e2e.p99",)),
        ("e2e p99", ("e2e.p99",)),
        ("rate", ("delivered", "published")),
        ("delivered/s", ("delivered",)),
    ],
)
def test_a_filter_means_whole_names(text: str, names: tuple[str, ...]) -> None:
    """p99 is not p99.9: a gate on the one must not fail by the other."""
    assert metrics_like(text, COMPARED) == names


def test_every_filter_means_something() -> None:
    """What the shell offers can be used."""
    assert all(metrics_like(each, COMPARED) for each in filters_of(COMPARED))
    assert {*SHORT_NAMES.values()} < {*COMPARED} < {*METRICS}


def test_a_filter_without_a_match_gets_a_proposal() -> None:
    with pytest.raises(MetricNameError, match=r"there is no metric 'p98'.*did you mean p9"):
        metrics_like("p98", COMPARED)
