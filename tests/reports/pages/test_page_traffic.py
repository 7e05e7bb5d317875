"""Traffic by link, on the page: which messages took a way over another node, and what that cost."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from reports.html.render import render
from reports.pages.model import Traffic
from reports.pages.page import page

PUBLISHED = {("node2", "node1"): "commands"}
DELIVERED = {("node1", "node3"): "deliveries"}


def _traffic(sample_tables: ModuleType, **more: Any) -> Traffic:
    sample = replace(sample_tables.SINGLE, with_links=True, **more)
    found = page(sample_tables.tables(sample), generated="").runs[0].traffic
    assert found is not None
    return found


def test_a_broker_that_does_not_tell_gets_no_section(sample_tables: ModuleType) -> None:
    """RabbitMQ tells no purposes; an empty section would look like a queue without traffic."""
    made = page(sample_tables.tables(sample_tables.SINGLE), generated="")
    assert made.runs[0].traffic is None
    assert "Traffic by link" not in render(made)


def test_the_section_stands_on_the_page(sample_tables: ModuleType) -> None:
    html = render(page(sample_tables.tables(replace(sample_tables.SINGLE, with_links=True)), generated=""))
    assert 'id="traffic"' in html and "Octets per message from node to node" in html


def test_matrix_purposes_and_figure_say_the_same(sample_tables: ModuleType) -> None:
    """Three views of one table: a reader who adds up one of them must find the others."""
    told = _traffic(sample_tables, proxied=PUBLISHED | DELIVERED)
    drawn = sum(float(row[5] or 0) for row in told.chart.table.rows)
    assert sum(float(row[2] or 0) for row in told.purposes.rows) == pytest.approx(drawn)
    cells = [float(cell) for row in told.matrix.rows for cell in row[1:] if cell is not None]
    assert sum(cells) == pytest.approx(drawn) and len(cells) == 6
    bodies = {str(row[1]): row[3] for row in told.purposes.rows}
    assert bodies == pytest.approx({"replication": 2.2, "consensus": 0.08, "commands": 1.02, "deliveries": 1.02})


@pytest.mark.parametrize(
    ("proxied", "there", "back"),
    [
        ({}, "Publishes were not proxied", "deliveries were not proxied"),
        (PUBLISHED, "leader or owner of its queue in 1.02 bodies", "deliveries were not proxied"),
        (PUBLISHED | DELIVERED, "Publishes were proxied", "deliveries were proxied, in 1.02 bodies a message"),
    ],
    ids=["local", "publisher away", "both away"],
)
def test_a_sentence_says_what_was_proxied(sample_tables: ModuleType, proxied: Any, there: str, back: str) -> None:
    """The question of who places clients: does it matter to which node they connect?"""
    said = _traffic(sample_tables, proxied=proxied).sentences[-1].text
    assert there in said and back in said


def test_purposes_of_earlier_versions_are_shown_and_not_judged(sample_tables: ModuleType) -> None:
    """They did not tell publishes from deliveries."""
    tables = sample_tables.tables(replace(sample_tables.SINGLE, with_links=True))
    earlier = replace(tables, links=tables.links.assign(purpose="raft"))
    told = page(earlier, generated="").runs[0].traffic
    assert told is not None and len(told.sentences) == 1
    assert "Raft: replication, with votes and answers." in told.chart.how_to_read
