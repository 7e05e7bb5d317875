"""Kinds of page: a new kind is a model and functions, and needs no change to the rendering."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import pytest

from perftest.results.trust import Check, Status
from reports.html.render import render
from reports.pages import kinds
from reports.pages.kinds import CheckList, Data, PageKind, Remark, Section, articles
from reports.pages.model import Column, Page, Sentence, Table
from reports.pages.page import page


@dataclass(frozen=True)
class Hosts:
    """The model of a tiny kind: how far the clocks of load hosts are apart."""

    offsets_ns: dict[str, int]
    prefix: str = ""
    title: str = "Clocks of the load hosts"
    subtitle: str = "two hosts"
    chips: tuple[()] = ()
    banners: tuple[()] = ()


def _clocks(hosts: Hosts) -> Section:
    columns = (Column(name="host", title="host"), Column(name="offset_ns", title="offset"))
    rows = tuple((host, f"{offset} ns") for host, offset in hosts.offsets_ns.items())
    table = Table(caption="Clocks", file="clocks.csv", columns=columns, rows=rows)
    said = Remark(Sentence(text="An offset <is> not an error."))
    return Section(anchor="clocks", title="Clocks", links=(("clocks", "Clocks"),), blocks=(said, Data(table=table)))


def _doubts(hosts: Hosts) -> Section | None:
    if max(hosts.offsets_ns.values()) < 1000:
        return None
    doubt = Check(check="clocks", status=Status.WARN, text="The clocks are far apart.")
    return Section(anchor="doubts", title="Doubts", blocks=(CheckList((doubt,)),))


@pytest.fixture
def hosts_kind() -> Iterator[PageKind]:
    """The kind, registered for one test."""
    yield kinds.register(PageKind("doubts", (_clocks, _doubts)))
    del kinds.KINDS["doubts"]


@pytest.mark.parametrize(("offset_ns", "sections"), [(5, ["Clocks"]), (5000, ["Clocks", "Doubts"])])
def test_a_registered_kind_becomes_a_page(hosts_kind: PageKind, offset_ns: int, sections: list[str]) -> None:
    """Its sections stand in their order; a section that has nothing to say is left out."""
    made = Page(title="Clocks", generated="", parts=((hosts_kind.name, Hosts({"a": 0, "b": offset_ns})),))
    (article,) = articles(made)
    assert [section.title for section in article.sections] == sections
    text = render(made)
    assert '<article class="doubts">' in text and "An offset &lt;is&gt; not an error." in text
    assert f"{offset_ns} ns" in text and '<a href="#clocks">Clocks</a>' in text
    assert ("The clocks are far apart." in text) == (offset_ns > 1000)


def test_a_kind_has_one_meaning(hosts_kind: PageKind) -> None:
    """Two kinds of one name would show the second wherever somebody asks for the first."""
    with pytest.raises(AssertionError, match="doubts"):
        kinds.register(PageKind("doubts", ()))


def test_the_pages_of_runs_are_kinds_like_any_other(sample_tables: ModuleType) -> None:
    """One run is one article; of several, the comparison comes first."""
    sweep = sample_tables.SWEEP
    one = page(sample_tables.tables(sweep), generated="")
    two = page(sample_tables.tables(sweep, sample_tables.Sample(run_id="other")), generated="")
    assert [kind for kind, _ in one.parts] == ["run"]
    assert [kind for kind, _ in two.parts] == ["overview", "run", "run"]
    titles = [section.title for section in articles(one)[0].sections]
    assert titles[:3] == ["", "Can I trust this?", "Figures"] and titles[-1] == "Provenance"
