"""Kinds of page: a kind is an ordered list of sections, and a section is made from a model by a function.

:data:`KINDS` is the registry. A new kind needs a model, a function for each section, and one call of :func:`register`;
rendering needs no change as long as the sections consist of the blocks below.

==========  ========================================  =================================
kind        model                                     what its page shows
==========  ========================================  =================================
run         :class:`~reports.pages.model.Run`         one run, or one group of its load
background  :class:`~reports.pages.model.Background`  a background load of a run
hosts       :class:`~reports.pages.model.Hosts`       the hosts of a run on several of them
layouts     :class:`~reports.pages.model.Layouts`     layouts of drives, over all runs that had one
overview    :class:`~reports.pages.model.Overview`    several runs side by side
comparison  :class:`~reports.pages.model.Comparison`  a baseline and a candidate
history     :class:`~reports.pages.model.History`     a metric over time, with its changes
published   :class:`~reports.pages.model.PublishedPage`   published findings over all sources
==========  ========================================  =================================
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from perftest.results.trust import Check
from reports.pages import words
from reports.pages.model import (
    Background,
    Banner,
    Chart,
    Chip,
    Comparison,
    DrawnHost,
    DrawnLayout,
    History,
    Hosts,
    Layouts,
    Overview,
    Page,
    Provenance,
    PublishedPage,
    PublishedPart,
    Run,
    Sentence,
    Table,
)
from reports.pages.reproduction import named

UNFOLDED_MAX: Final = 12
"""Largest number of rows with which a folded table is open at first."""
RUNS_MAX: Final = 50
"""Most runs that a page lists openly."""
FIGURES_MAX: Final = 25
"""Most figures of a page: a browser keeps all drawn ones."""
OPENING_PX: Final = 340
"""Height of a picture beside the answer."""
LOWERED_MAX_PX: Final = 480
"""Largest height of a picture that is lowered to :data:`OPENING_PX`."""
DATA_MAX_BYTES: Final = 2_000_000
"""Most data of all figures of a page together, as JSON."""


@dataclass(frozen=True, slots=True)
class Minute:
    """The answer for a reader with one minute: the first of the sentences, large, beside the picture that decides; the
    other sentences, and the table that carries them. ``left_out`` says how many rows the table leaves out, and where
    these rows are."""

    sentences: tuple[Sentence, ...]
    headline: Table | None
    picture: Chart | None = None
    left_out: Sentence | None = None


@dataclass(frozen=True, slots=True)
class CheckList:
    """The trust list."""

    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence as a paragraph; ``style`` is "remark", "how" for an instruction to the reader, or empty."""

    sentence: Sentence
    style: str = "remark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A table. With a ``fold`` (its title) the table is folded away, unless ``unfolded``; ``csv`` gives it a button; a
    folded table may have an ``anchor``."""

    table: Table
    anchor: str = ""
    sortable: bool = True
    csv: bool = True
    fold: str = ""
    unfolded: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """Layouts of drives, drawn: a box for each drive."""

    layouts: tuple[DrawnLayout, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Hosts, drawn: a box for each, with what ran on it."""

    hosts: tuple[DrawnHost, ...]


Block = Topology | Drawing | Minute | CheckList | Remark | Data | Chart | Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page under a heading of its own; without a ``title`` the blocks stand below the page's head.

    ``links`` are the section's lines in the table of contents: anchors and titles.
    """

    anchor: str = ""
    title: str = ""
    links: tuple[tuple[str, str], ...] = ()
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """A model as a page shows it: the head, then the sections."""

    kind: str
    prefix: str
    name: str
    title: str
    subtitle: str
    chips: tuple[Chip, ...]
    banners: tuple[Banner, ...]
    sections: tuple[Section, ...]

    @property
    def anchor(self) -> str:
        """The anchor of the part; empty for the only part of a page."""
        return f"{self.prefix}run" if self.prefix else ""

    @property
    def opens(self) -> bool:
        """Whether the part begins with its answer."""
        return any(isinstance(block, Minute) for section in self.sections[:1] for block in section.blocks)

    @property
    def links(self) -> list[tuple[str, str]]:
        """The table of contents: anchors and titles."""
        return [link for section in self.sections for link in section.links]


def charts(section: Section) -> list[Chart]:
    """The figures of a section, in its order."""
    found = (block.picture if isinstance(block, Minute) else block for block in section.blocks)
    return [chart for chart in found if isinstance(chart, Chart)]


@dataclass(frozen=True, slots=True)
class PageKind:
    """A kind of page. A section is left out where its function gives None."""

    name: str
    sections: tuple[Callable[[Any], Section | None], ...]


KINDS: Final[dict[str, PageKind]] = {}
"""Every kind by its name."""


def register(kind: PageKind) -> PageKind:
    """Make a kind known to :func:`articles`."""
    assert kind.name not in KINDS, f"there is a kind {kind.name} already"
    KINDS[kind.name] = kind
    return kind


def articles(page: Page) -> list[Article]:
    """Every part of a page with its sections. Figures beyond :data:`FIGURES_MAX` or :data:`DATA_MAX_BYTES` are tables
    only."""
    budget = _Budget()
    found = [_article(KINDS[kind], model) for kind, model in page.parts]
    return [replace(part, sections=tuple(map(budget.within, part.sections))) for part in found]


class _Budget:
    """The figures and data that a page may still draw."""

    def __init__(self) -> None:
        self._figures = FIGURES_MAX
        self._octets = DATA_MAX_BYTES

    def within(self, section: Section) -> Section:
        """The section, with tables in place of the figures that the page has no room for."""
        return replace(section, blocks=tuple(map(self._block, section.blocks)))

    def _block(self, block: Block) -> Block:
        if isinstance(block, Minute) and block.picture is not None:
            return block if self._takes(block.picture) else replace(block, picture=None)
        if not isinstance(block, Chart) or self._takes(block):
            return block
        return Data(
            table=block.table,
            fold=f"{block.title} (table only: this page has no room for the figure)",
            anchor=block.anchor,
        )

    def _takes(self, chart: Chart) -> bool:
        octets = len(json.dumps(chart.figure, ensure_ascii=False))
        fits = self._figures > 0 and octets <= self._octets
        self._figures -= fits
        self._octets -= octets * fits
        return fits


def _article(kind: PageKind, model: Any) -> Article:
    found = (section(model) for section in kind.sections)
    name = model.name if isinstance(model, Run) else ""
    return Article(
        kind=kind.name,
        prefix=model.prefix,
        name=name or model.title,
        title=", ".join(filter(None, (model.title, name))),
        subtitle=model.subtitle,
        chips=model.chips,
        banners=model.banners,
        sections=tuple(section for section in found if section is not None),
    )


def _section(run: Run, name: str, title: str, *blocks: Block, link: str = "") -> Section:
    anchor = f"{run.prefix}{name}"
    return Section(anchor=anchor, title=title, links=((anchor, link or title),), blocks=blocks)


def _result(run: Run) -> Section:
    """The answer; the first figure of the run is its picture."""
    picture = run.charts[0] if run.charts else None
    left_out = _left_out(run.headline, run.steps, what="step", anchor=f"{run.prefix}steps")
    return _opening(run.prefix, "result", Minute(run.sentences, run.headline, picture, left_out))


def _left_out(shown: Table | None, whole: Table | None, *, what: str, anchor: str) -> Sentence | None:
    """The number of rows that the table of an opening leaves out, with the place of all; None if it has all."""
    left = 0 if shown is None or whole is None else len(whole.rows) - len(shown.rows)
    if whole is None or left <= 0:
        return None
    text = f"{left} of {words.plural(len(whole.rows), what)} {'is' if left == 1 else 'are'} left out of this table."
    return Sentence(text=text, anchor=anchor, see=f"all {what}s")


def _opening(prefix: str, name: str, minute: Minute) -> Section:
    anchor = f"{prefix}{name}"
    result = (anchor, "Result")
    if minute.picture is None:
        return Section(anchor=anchor, links=(result,), blocks=(minute,))
    links = (result, (minute.picture.anchor, minute.picture.title))
    return Section(anchor=anchor, links=links, blocks=(replace(minute, picture=_lowered(minute.picture)),))


def _lowered(picture: Chart) -> Chart:
    """The picture as high as the sentences beside it. One with a line of its own for each row keeps its height."""
    layout = picture.figure["layout"]
    if layout["height"] > LOWERED_MAX_PX:
        return picture
    lower = layout | {"height": min(layout["height"], OPENING_PX)}
    return replace(picture, figure=picture.figure | {"layout": lower})


def _findings(model: Run | Overview) -> Section | None:
    if not model.verdicts:
        return None
    anchor = f"{model.prefix}findings"
    title = "Findings of the source"
    blocks = [block for each in model.verdicts for block in (Remark(named(each, among=model.verdicts), ""), each.chart)]
    return Section(anchor=anchor, title=title, links=((anchor, title),), blocks=tuple(blocks))


def _trust(run: Run) -> Section:
    return _section(run, "trust", "Can I trust this?", CheckList(run.checks))


def _stated(run: Run) -> Section | None:
    if run.stated is None:
        return None
    tables = tuple(Data(table=table) for table in run.stated.tables)
    return _section(run, "stated", run.stated.title, Remark(Sentence(text=run.stated.text), "how"), *tables)


def _figures(run: Run) -> Section:
    links = tuple((chart.anchor, chart.title) for chart in run.charts[1:])
    blocks: tuple[Block, ...] = (*map(Remark, run.notes), *run.charts[1:])
    return Section(anchor=f"{run.prefix}figures", title="Figures", links=links, blocks=blocks)


def _factors(run: Run) -> Section | None:
    if not run.factors:
        return None
    return _section(run, "settings", "What each setting does", *run.factors)


def _anatomy(run: Run) -> Section | None:
    if run.anatomy is None:
        return None
    blocks: tuple[Block, ...] = (*map(Remark, run.anatomy.sentences), *run.anatomy.charts)
    stages = Data(table=run.anatomy.table, fold="Every stage with its percentiles")
    return _section(run, "anatomy", "Where the time went", *blocks, stages)


def _traffic(run: Run) -> Section | None:
    if run.traffic is None:
        return None
    text = (
        "Octets that nodes of the broker sent to each other, as the nodes counted them. A body is as many octets as "
        "the body of a message has. A quorum queue needs a body for each member but the leader, one more if the "
        "publisher is on another node than the leader, and one more if the consumer is on a node without a member. A "
        "classic queue needs one if the publisher is on another node than the queue, and one if the consumer is."
    )
    tables = (Data(table=run.traffic.purposes), Data(table=run.traffic.matrix))
    said = (*map(Remark, run.traffic.sentences), Remark(Sentence(text=text), "how"))
    return _section(run, "traffic", "Traffic by link", *said, run.traffic.chart, *tables)


def _recovery(run: Run) -> Section | None:
    if run.recoveries is None:
        return None
    text = (
        "How the load went on after each action on the broker, to 20 ms. All times count from the action. The rate "
        "before is that of the 5 s before the action. The rate is back when 90 % of it are confirmed, on average over "
        "the next second. What counts ends with the next action or with the step. An empty cell: it did not happen, or "
        "cannot be told. An outage is a time without a confirm that is much longer than any before the action."
    )
    return _section(run, "recovery", "Recovery", Remark(Sentence(text=text), "how"), Data(table=run.recoveries))


def _steps(run: Run) -> Section:
    text = (
        "Steady state only: warm-up is cut. Every percentile is read from the merged histogram of the step. Click a "
        "heading to sort."
    )
    return _section(run, "steps", "All steps", Remark(Sentence(text=text), "how"), Data(table=run.steps))


def _ledger(run: Run) -> Section:
    account = () if run.ledger is None else (Data(table=run.ledger, sortable=False),)
    said = Remark(Sentence(text=run.ledger_text), "")
    return _section(run, "ledger", "Ledger: what became of every message", said, *account, link="Ledger")


def _events(run: Run) -> Section:
    if not run.events.rows:
        return _section(run, "events", "Events", Remark(Sentence(text="No event was recorded."), ""))
    few = len(run.events.rows) <= UNFOLDED_MAX
    return _section(run, "events", "Events", Data(table=run.events, fold=run.events.caption, unfolded=few))


def _provenance(run: Run) -> Section:
    files = run.provenance.files
    raw = () if files is None else (Data(table=files, sortable=False, csv=False, fold=files.caption, unfolded=True),)
    return _section(run, "provenance", "Provenance", run.provenance, *raw)


def _all_runs(overview: Overview) -> Section:
    """The answer over all runs; the first chart is its picture."""
    picture = overview.charts[0] if overview.charts else None
    return _opening(overview.prefix, "result", Minute(overview.sentences, overview.headline, picture))


def _side_by_side(overview: Overview) -> Section:
    fold = f"All {len(overview.runs)} runs" if len(overview.runs) > RUNS_MAX else ""
    table = Data(table=overview.table, fold=fold, unfolded=bool(overview.table.links))
    others = overview.charts[1:]
    links = (("runs", "Runs"), *((chart.anchor, chart.title) for chart in others))
    return Section(anchor="runs", title="Runs", links=links, blocks=(*map(Remark, overview.notes), table, *others))


register(
    PageKind(
        "run",
        (
            *(
                _result,
                _findings,
                _trust,
                _stated,
                _figures,
                _factors,
                _recovery,
                _anatomy,
                _traffic,
                _steps,
                _ledger,
                _events,
            ),
            _provenance,
        ),
    )
)


def _beside_result(background: Background) -> Section:
    """The answer; the first figure is its picture."""
    picture = background.charts[0] if background.charts else None
    left_out = _left_out(background.headline, background.steps, what="step", anchor=f"{background.prefix}beside")
    minute = Minute(background.sentences, background.headline, picture, left_out)
    return _opening(background.prefix, "background", minute)


def _beside(background: Background) -> Section:
    anchor, title = f"{background.prefix}beside", "Beside the measured load"
    how = "Steady state only. Each row tells what the background load did beside a step of the measured load."
    others = background.charts[1:]
    account = () if background.ledger is None else (Data(table=background.ledger, sortable=False),)
    said = Remark(Sentence(text=background.ledger_text), "")
    blocks = (Remark(Sentence(text=how), "how"), Data(table=background.steps), *others, said, *account)
    links = ((anchor, title), *((chart.anchor, chart.title) for chart in others))
    return Section(anchor=anchor, title=title, links=links, blocks=blocks)


register(PageKind("background", (_beside_result, _beside)))
register(PageKind("overview", (_all_runs, _findings, _side_by_side)))


def _by_layout(layouts: Layouts) -> Section:
    """The answer; the rates by layout are its picture."""
    picture = layouts.cells[0] if layouts.cells else None
    return _opening(layouts.prefix, "result", Minute(layouts.sentences, layouts.headline, picture))


def _other_cells(layouts: Layouts) -> Section | None:
    anchor = f"{layouts.prefix}cells"
    title, charts = "Latency by layout", layouts.cells[1:]
    return Section(anchor=anchor, title=title, links=((anchor, title),), blocks=charts) if charts else None


def _drawn(layouts: Layouts) -> Section:
    anchor = f"{layouts.prefix}drawn"
    how = "Each box is a drive of every node; in the box are the kinds of files that lie on the drive."
    blocks: tuple[Block, ...] = (Remark(Sentence(text=how), "how"), Drawing(layouts.drawn))
    return Section(anchor=anchor, title="Layouts", links=((anchor, "Layouts"),), blocks=blocks)


def _charts_of(name: str, title: str) -> Callable[[Layouts], Section | None]:
    """A section with the charts of one part of the model; none without charts."""

    def section(layouts: Layouts) -> Section | None:
        charts: tuple[Chart, ...] = getattr(layouts, name)
        anchor = f"{layouts.prefix}{name.replace('_', '-')}"
        links = ((anchor, title),)
        return Section(anchor=anchor, title=title, links=links, blocks=charts) if charts else None

    return section


def _judged(layouts: Layouts) -> Section | None:
    if not layouts.verdicts:
        return None
    anchor = f"{layouts.prefix}findings"
    blocks = tuple(Remark(sentence, "") for sentence in layouts.verdicts)
    return Section(anchor=anchor, title="Verdicts", links=((anchor, "Verdicts"),), blocks=blocks)


register(
    PageKind(
        "layouts",
        (
            _by_layout,
            _judged,
            _other_cells,
            _drawn,
            _charts_of("interference", "What a background load costs"),
            _charts_of("spectra", "Length of syncs by drive"),
            _charts_of("per_message", "Octets and syncs per message"),
            _charts_of("over_time", "Writes over time"),
        ),
    )
)


def _history_result(history: History) -> Section:
    """The answer; the series that changed last is its picture."""
    picture = history.charts[0] if history.charts else None
    return _opening(history.prefix, "result", Minute(history.sentences, history.changes, picture))


def _over_time(history: History) -> Section | None:
    """The other series, and what a change is."""
    links = (("runs", "Every run"), *((chart.anchor, chart.title) for chart in history.charts[1:]))
    how = (
        "A change is a place from which on the values of the runs are others than before, by more than chance makes. A "
        "run counts once, whatever its length. p is how often values without any order look as much like a change."
    )
    blocks: tuple[Block, ...] = (Remark(Sentence(text=how), "how"), *history.charts[1:])
    return Section(anchor="runs", title="Every run", links=links, blocks=blocks)


register(PageKind("history", (_history_result, _over_time)))


def _all_sources(published: PublishedPage) -> Section:
    return _opening(published.prefix, "result", Minute(published.sentences, published.headline, published.picture))


def _score(part: PublishedPart) -> Section:
    return _opening(part.prefix, "score", Minute(part.sentences, None, part.score))


def _of_source(part: PublishedPart) -> Section:
    """The ratios, the table and the stated figures."""
    anchor = f"{part.prefix}source"
    table = Data(table=part.table, anchor=f"{part.prefix}rows", fold="Every finding", unfolded=True)
    links = tuple((chart.anchor, chart.title) for chart in (*part.ratios, *part.levels))
    blocks: tuple[Block, ...] = (Remark(part.source, ""), *part.ratios, table, *part.levels)
    return Section(anchor=anchor, title="Findings", links=links, blocks=blocks)


register(PageKind("published", (_all_sources,)))
register(PageKind("published_part", (_score, _of_source)))


def _part(hosts: Hosts, name: str, title: str, *blocks: Block, how: str = "") -> Section:
    anchor = f"{hosts.prefix}{name}"
    said: tuple[Block, ...] = (Remark(Sentence(text=how), "how"),) if how else ()
    return Section(anchor=anchor, title=title, links=((anchor, title),), blocks=(*said, *blocks))


def _hosts_result(hosts: Hosts) -> Section:
    picture = hosts.each[0] if hosts.each else None
    return _opening(hosts.prefix, "hosts", Minute(hosts.sentences, None, picture))


def _topology(hosts: Hosts) -> Section:
    how = "Each box is a host; in the box is what ran on it. Round trips are those of messages from the coordinator."
    facts = Data(table=hosts.facts, fold="All that is known of the hosts")
    return _part(hosts, "topology", "Topology", Topology(hosts.drawn), facts, how=how)


def _round_trips(hosts: Hosts) -> Section | None:
    if hosts.round_trips is None:
        return None
    how = (
        "Each row is a load host, each column a node. The time is that of a packet to the node and back, before the "
        "load began: the least of several TCP connections. Where both are on one host, no network lies between them. "
        "No latency of a confirm can be shorter than the round trip to the node of its connection."
    )
    said = (Remark(each, "") for each in hosts.round_trips_text)
    return _part(hosts, "round-trips", "Round trips to the nodes", *said, Data(table=hosts.round_trips), how=how)


def _hosts_limits(hosts: Hosts) -> Section:
    how = (
        "A load host without processor time is the limit whatever the broker does; next comes a network at its speed. "
        "If there is neither, and the step did not keep a schedule, the limit was the broker."
    )
    table, lanes = Data(table=hosts.limits), hosts.saturation
    return _part(hosts, "limits", "Saturation: what set the rate", table, *lanes, how=how)


def _each_host(hosts: Hosts) -> Section | None:
    """The figures of each host; the first stands beside the answer."""
    return _part(hosts, "each", "Each host by itself", *hosts.each[1:]) if hosts.each[1:] else None


def _clocks(hosts: Hosts) -> Section:
    how = (
        "An offset is the clock of the host minus the clock of the coordinator. Latencies are corrected by it; the "
        "bound stays in them. A latency between two hosts that is shorter than the bound says nothing."
    )
    return _part(hosts, "clocks", "Clocks", Data(table=hosts.clock_facts), *hosts.clocks, how=how)


def _replication(hosts: Hosts) -> Section | None:
    if hosts.nodes is None and not hosts.links:
        return None
    nodes: list[Block] = [Data(table=table) for table in (hosts.nodes, hosts.leaders) if table is not None]
    nodes += [Remark(each, "") for each in hosts.elections]
    links: list[Block] = list(hosts.links) or [Remark(Sentence(text=hosts.links_missing), "")]
    how = "A node is a leader here if it led a queue. A change of role is an election."
    title = "Replication, leaders, and octets per link"
    return _part(hosts, "replication", title, *nodes, *hosts.nodes_time, *links, how=how)


def _skew(hosts: Hosts) -> Section:
    table = () if hosts.skew is None else (Data(table=hosts.skew),)
    return _part(hosts, "skew", "Start and stop", Remark(Sentence(text=hosts.skew_text), ""), *table)


def _missing(hosts: Hosts) -> Section:
    said = hosts.missing or (Sentence(text="No host was lost, and none was late."),)
    return _part(hosts, "missing", "What is missing, and why", *(Remark(each, "") for each in said))


register(
    PageKind(
        "hosts",
        (_hosts_result, _topology, _round_trips, _hosts_limits, _each_host, _clocks, _replication, _skew, _missing),
    )
)


def _verdict_sentences(comparison: Comparison) -> Section | None:
    anchor = f"{comparison.prefix}verdicts"
    left_out = _left_out(comparison.headline, comparison.verdicts, what="figure", anchor=anchor)
    minute = Minute(comparison.sentences, comparison.headline, comparison.gravest, left_out)
    return _opening(comparison.prefix, "minute", minute)


def _alike(comparison: Comparison) -> Section | None:
    table = () if comparison.differences is None else (Data(table=comparison.differences),)
    return _side_part(comparison, "alike", "Can they be compared?", Remark(comparison.alike, ""), *table)


def _verdict_table(comparison: Comparison) -> Section | None:
    if comparison.verdicts is None:
        return None
    how = Remark(
        Sentence(
            text="Regressed metrics come first, and nothing is left out. Baseline and candidate are the "
            "medians of the repetitions. The shift is the median of all ratios between a run of one side and a run of "
            "the other (Hodges and Lehmann), and the interval is that of the shift; click a heading to sort."
        ),
        "how",
    )
    return _side_part(comparison, "verdicts", "Verdicts", how, Data(table=comparison.verdicts), *comparison.forest)


def _distributions(comparison: Comparison) -> Section | None:
    if not comparison.spectra:
        return None
    return _side_part(comparison, "spectra", "Latency of both sides", *comparison.spectra)


def _both_over_time(comparison: Comparison) -> Section | None:
    return _side_part(comparison, "time", "Over time", *comparison.over_time) if comparison.over_time else None


def _changed_along(comparison: Comparison) -> Section | None:
    if not comparison.inside and comparison.resources is None:
        return None
    used = (
        () if comparison.resources is None else (Data(table=comparison.resources, fold=comparison.resources.caption),)
    )
    return _side_part(comparison, "inside", "What changed along", *comparison.inside, *used)


def _side_part(comparison: Comparison, name: str, title: str, *blocks: Block, link: str = "") -> Section | None:
    anchor = f"{comparison.prefix}{name}"
    return Section(anchor=anchor, title=title, links=((anchor, link or title),), blocks=blocks)


register(
    PageKind(
        "comparison",
        (_verdict_sentences, _alike, _verdict_table, _distributions, _both_over_time, _changed_along),
    )
)
