"""The page as text: one file, the reports' colours, and small enough to send."""

from __future__ import annotations

import json
import re

from reference_broker.worldpage.events import WorldEvent
from reference_broker.worldpage.page import COLOURS, head_of, packed, page
from reference_broker.worldpage.window import EVENTS_MAX
from reports.charts.theme import PALETTES

MEGABYTES_MAX = 2


def test_the_colours_are_those_of_the_reports() -> None:
    """Reports and worlds are pages of one family, though the broker does not import the reports."""
    for theme, colours in COLOURS.items():
        assert {name: PALETTES[theme][name] for name in colours} == colours


def test_nothing_in_an_event_becomes_a_part_of_the_page() -> None:
    """A queue may be named by anybody."""
    evil = '</script><img src=x onerror="alert(1)">'
    event = WorldEvent(0.0, "c1", "publish", {"queue": evil, "messages": [1]})
    html = page([head_of([event], title=evil, text=evil, command=evil), event])
    assert evil not in html and "<img" not in html
    assert html.count("</script>") == 2


def test_the_page_loads_nothing() -> None:
    html = page([WorldEvent(0.0, "n1", "start", {"boot": 1})])
    assert "default-src 'none'" in html
    assert not re.search(
        r"""(?:src|href)=["']?(?!#)|@import|url\(""", html.replace('<a class="skip" href="#chart">', "")
    )


def test_each_text_stands_once_and_times_are_differences() -> None:
    events = [WorldEvent(1.5 + at / 1000, "n1", "drop", {"group": "orders", "index": at}) for at in range(3)]
    table = packed(events)
    assert table["texts"] == ["n1", "orders"]
    assert [row[0] for row in table["events"]] == [1_500_000, 1000, 1000]


def test_the_largest_page_stays_below_two_megabytes() -> None:
    """Twenty thousand of the longest usual events: a page that cannot be mailed is not sent."""
    word = "enqueue 123456 as n3/12.345.1 #2345; settle ids 1000-1010 of c5.3 on n3/12.345.3"
    events = [
        WorldEvent(at / 1000, f"n{at % 5}", "append", {"group": "orders", "index": at // 3, "term": 12,
                   "words": f"{word} {at // 3}", "messages": [123456, 123457]})
        if at % 10 == 0 else
        WorldEvent(at / 1000, f"n{at % 5}", "message", {"to": "n3", "kind": "AppendEntries", "group": "orders",
                   "term": 12, "first": at, "last": at + 3, "ok": True, "got": at / 1000 + 0.000512, "lost": False})
        for at in range(EVENTS_MAX)
    ]  # fmt: skip
    html = page(events)
    assert len(html.encode()) <= MEGABYTES_MAX * 1_000_000
    json.loads(html.partition('id="world">')[2].partition("</script>")[0])
