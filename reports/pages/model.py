"""The page as values: everything that is said, in the order it is said, before it becomes HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from perftest.results.trust import Check, Status
from reports.charts.theme import Figure


class Kind(StrEnum):
    """The content of a column; decides alignment, digits, and whether the choice of a latency unit applies."""

    TEXT = "text"
    COUNT = "count"
    RATE = "rate"
    NUMBER = "number"
    LATENCY = "latency"
    CHANGE = "change"


Cell = str | int | float | None
"""Text, or a number in the unit of its column (latencies: nanoseconds); None is "not measured"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. ``name`` heads the CSV file and carries the unit, as in the store; ``title`` heads the page.

    ``unit`` is empty for text and for plain counts; of latencies it is the unit the page starts with.
    """

    name: str
    title: str
    kind: Kind = Kind.TEXT
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells, one per column. ``file`` is the name of its CSV download. ``doubtful`` are the places (row,
    column) of percentiles that have too few samples above them. ``links``, if there are any, are the pages to which the
    first cells lead."""

    caption: str
    file: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    doubtful: frozenset[tuple[int, int]] = frozenset()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A short fact beside the title."""

    name: str
    value: str
    status: Status = Status.NOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A generated sentence and the anchor of what shows it (``see`` says what that is); the anchor may be empty."""

    text: str
    anchor: str = ""
    see: str = "figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure of the page with its texts and tables.

    ``title`` names the quantity, ``unit`` its unit (empty: the title says it); ``latency`` tells that the unit is the
    chosen latency unit. ``finding`` is the generated sentence. The table repeats every number that is drawn.
    """

    anchor: str
    title: str
    unit: str
    how_to_read: str
    finding: str
    figure: Figure
    table: Table
    latency: bool = False


Named = tuple[str, str]
"""A text and its name: a fact, or a command to copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Something that must be read before anything else. ``lines`` are its points, one below the other."""

    status: Status
    title: str
    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a result comes from: facts in groups, the commands, the plan in full, and the raw files."""

    groups: tuple[tuple[str, tuple[Named, ...]], ...]
    commands: tuple[Named, ...]
    plan: str
    files: Table | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """Where within the broker the time went."""

    sentences: tuple[Sentence, ...]
    charts: tuple[Chart, ...]
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The traffic between the nodes of the broker. ``matrix`` has a row for each sending node and a column for each
    receiving node."""

    sentences: tuple[Sentence, ...]
    chart: Chart
    purposes: Table
    matrix: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The verdicts on the findings of one plan: in words, as a figure and as a table; ``record`` is the same for
    programs."""

    name: str
    verdict: str
    sentence: Sentence
    chart: Chart
    table: Table
    lines: tuple[str, ...]
    record: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Figures that another tool states, without a histogram behind them."""

    title: str
    text: str
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. ``prefix`` makes its anchors unique on the page; it is empty when there is but one run. ``name`` says
    what tells the run from the others of the page, and ``measured`` what was measured. ``factors`` are the figures of
    what each swept setting does."""

    prefix: str
    run_id: str
    measured: str
    title: str
    subtitle: str
    chips: tuple[Chip, ...]
    banners: tuple[Banner, ...]
    sentences: tuple[Sentence, ...]
    headline: Table | None
    checks: tuple[Check, ...]
    charts: tuple[Chart, ...]
    steps: Table
    events: Table
    ledger: Table | None
    ledger_text: str
    provenance: Provenance
    factors: tuple[Chart, ...] = ()
    notes: tuple[Sentence, ...] = ()
    anatomy: Anatomy | None = None
    traffic: Traffic | None = None
    recoveries: Table | None = None
    verdicts: tuple[Verdicts, ...] = ()
    stated: Stated | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """A background load of a run beside the measured load, whose figures leave it out. ``headline`` has the first
    figures of each row of ``steps``."""

    prefix: str
    title: str
    subtitle: str
    sentences: tuple[Sentence, ...]
    headline: Table
    charts: tuple[Chart, ...]
    steps: Table
    ledger: Table | None
    ledger_text: str
    chips: tuple[Chip, ...] = ()
    banners: tuple[Banner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnDrive:
    """A drive as a layout draws it: a box with its name, its kind, and the roles that lie on it."""

    name: str
    what: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLayout:
    """A layout as a drawing. ``io`` says which threads do the I/O."""

    name: str
    io: str
    drives: tuple[DrawnDrive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Layouts of drives side by side: their drives, and the figures of brokers on them."""

    title: str
    subtitle: str
    sentences: tuple[Sentence, ...]
    headline: Table
    drawn: tuple[DrawnLayout, ...]
    cells: tuple[Chart, ...]
    spectra: tuple[Chart, ...]
    over_time: tuple[Chart, ...]
    per_message: tuple[Chart, ...]
    interference: tuple[Chart, ...]
    verdicts: tuple[Sentence, ...] = ()
    prefix: str = "l-"
    chips: tuple[Chip, ...] = ()
    banners: tuple[Banner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnHost:
    """A host as the topology draws it: a box with its name, its machine, and its processes."""

    name: str
    what: str
    parts: tuple[str, ...]
    is_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The hosts of one run: all together, each by itself, and the links between them. ``even`` says what each load host
    sent and how well the clocks agree. ``limits`` names what limited the rate of each step; ``missing`` the hosts or
    facts without figures, and why; ``links_missing`` why there is no figure of links. ``round_trips`` is the matrix of
    load hosts and nodes, and ``round_trips_text`` points out its remarkable values."""

    prefix: str
    title: str
    subtitle: str
    even: Sentence
    sentences: tuple[Sentence, ...]
    drawn: tuple[DrawnHost, ...]
    facts: Table
    round_trips: Table | None
    round_trips_text: tuple[Sentence, ...]
    limits: Table
    each: tuple[Chart, ...]
    clocks: tuple[Chart, ...]
    clock_facts: Table
    saturation: tuple[Chart, ...]
    nodes: Table | None
    leaders: Table | None
    elections: tuple[Sentence, ...]
    nodes_time: tuple[Chart, ...]
    links: tuple[Chart, ...]
    links_missing: str
    skew: Table | None
    skew_text: str
    missing: tuple[Sentence, ...]
    chips: tuple[Chip, ...] = ()
    banners: tuple[Banner, ...] = ()


Link = tuple[str, str]
"""An address and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A metric over time: the verdict, the changes, and a chart for each series of runs."""

    title: str
    subtitle: str
    sentences: tuple[Sentence, ...]
    changes: Table
    charts: tuple[Chart, ...]
    prefix: str = ""
    chips: tuple[Chip, ...] = ()
    banners: tuple[Banner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPage:
    """Published findings over all sources: the score of each broker in words, as a picture and as a table."""

    title: str
    subtitle: str
    sentences: tuple[Sentence, ...]
    headline: Table
    picture: Chart
    prefix: str = ""
    chips: tuple[Chip, ...] = ()
    banners: tuple[Banner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPart:
    """The findings of one source: what holds and why others do not beside the score, the measured ratios of each
    workload against the claimed ones, a row for each finding and broker, and the figures that the source states."""

    prefix: str
    title: str
    subtitle: str
    source: Sentence
    sentences: tuple[Sentence, ...]
    score: Chart
    ratios: tuple[Chart, ...]
    table: Table
    levels: tuple[Chart, ...]
    chips: tuple[Chip, ...] = ()
    banners: tuple[Banner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Several runs side by side: the answer over all of them with its table, the charts that show all of them, and the
    table of the runs. ``notes`` say where the details of the runs are if they are not on this page."""

    title: str
    subtitle: str
    sentences: tuple[Sentence, ...]
    headline: Table
    runs: tuple[Run, ...]
    table: Table
    charts: tuple[Chart, ...]
    verdicts: tuple[Verdicts, ...] = ()
    notes: tuple[Sentence, ...] = ()
    prefix: str = ""
    chips: tuple[Chip, ...] = ()
    banners: tuple[Banner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, each of one run or several repetitions: whether they are alike, what changed, and what changed along.

    ``differences`` is None if the sides differ in nothing; ``alike`` says whether they can be compared, and why. Sides
    that cannot be compared have no ``verdicts``. ``headline`` and ``gravest`` are the rows to read first, as a table
    and as a picture; ``forest`` has all, if there are more. ``inside`` shows the stages of the broker.
    """

    title: str
    subtitle: str
    sentences: tuple[Sentence, ...]
    headline: Table | None
    gravest: Chart | None
    alike: Sentence
    differences: Table | None
    verdicts: Table | None
    forest: tuple[Chart, ...]
    spectra: tuple[Chart, ...]
    over_time: tuple[Chart, ...]
    inside: tuple[Chart, ...]
    resources: Table | None
    prefix: str = ""
    chips: tuple[Chip, ...] = ()
    banners: tuple[Banner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The whole page. ``parts`` are models with the names of their kinds (:data:`reports.pages.kinds.KINDS`), in the
    order of the page. ``banners`` speak of the page, not of a part. ``home`` is the page that leads to this one."""

    title: str
    generated: str
    parts: tuple[tuple[str, object], ...]
    banners: tuple[Banner, ...] = ()
    verdicts: tuple[Verdicts, ...] = ()
    home: Link | None = None

    @property
    def known_runs(self) -> tuple[Run, ...]:
        """All runs that the page speaks of, with or without their details."""
        return next((model.runs for _, model in self.parts if isinstance(model, Overview)), self.runs)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs whose details are on the page."""
        return tuple(model for _, model in self.parts if isinstance(model, Run))
