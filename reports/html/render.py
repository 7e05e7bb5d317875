"""Render a page as one HTML file that makes no request and needs no second file, or as one of several that share the
files of a folder beside them.

Every value goes through the template engine's escaping. Only four texts are inserted as they are: our own style sheet
and script, plotly.js, and the JSON island, in which ``<`` is written as an escape so that no value can end the element.
The content security policy allows exactly the two scripts, by their digests, and no connection to anywhere. A page with
a shared folder may load scripts and style sheets from where the page itself lies; a browser checks no digests of files.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from perftest.results.trust import title
from reports.charts import theme
from reports.pages import words
from reports.pages.kinds import articles, charts
from reports.pages.model import Cell, Chart, Column, Kind, Page

_HERE: Final = Path(__file__).parent

SHARED_POLICY: Final = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""Of pages that share a folder: files from disk, or from the server that the page came from."""

_ISLAND_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render(page: Page, *, shared: str = "") -> str:
    """The whole file as text. With ``shared``, the name of a folder beside the page, the page loads script and style
    from the files there (:func:`shared_files`)."""
    parts = articles(page)
    scripts = {} if shared else {"plotly": plotly_script(), "script": report_script()}
    rendered: str = _template().render(
        page=page,
        articles=parts,
        shared=shared,
        policy=SHARED_POLICY if shared else content_policy(*scripts.values()),
        style=Markup("" if shared else style_sheet()),
        island=figures_island(chart for part in parts for section in part.sections for chart in charts(section)),
        **{name: Markup(text) for name, text in scripts.items()},
    )
    return rendered


def shared_files() -> dict[str, str]:
    """The files that pages with a shared folder load from it, by name."""
    return {"plotly.min.js": plotly_script(), "report.js": report_script(), "report.css": style_sheet()}


def plotly_script() -> str:
    """The text of plotly.js with the charts that pages have: the bundle for Cartesian axes, which comes with this
    package."""
    return _own("plotly/plotly-cartesian.min.js")


def content_policy(*scripts: str) -> str:
    """The content security policy that lets exactly these inline scripts run."""
    digests = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def style_sheet() -> str:
    """The style sheet, with the palettes as custom properties. The reader's theme overrides the system's."""
    light, dark = (_properties(theme.PALETTES[name]) for name in theme.THEMES)
    return (
        f":root{{color-scheme:light;{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}"
        f"@media screen{{:root[data-theme=light]{{color-scheme:light;{light}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n{_own('report.css')}"
    )


def island(data: Any) -> str:
    """``data`` as JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ISLAND_ESCAPES)


def figures_island(drawn: Iterable[Chart]) -> Markup:
    """The data from which report.js draws these figures, for the script element ``report-data``."""
    figures = {each.anchor: each.figure for each in drawn}
    return Markup(island({"palettes": theme.PALETTES, "scales": theme.SCALES, "figures": figures}))


def report_script() -> str:
    """The text of report.js, which draws figures and makes tables sortable."""
    return _own("report.js")


def cell(value: Cell, column: Column) -> str:
    """The text of a cell. Latencies are in the unit that the page starts with."""
    if value is None:
        return words.NOT_MEASURED
    if isinstance(value, str):
        return value
    match column.kind:
        case Kind.LATENCY:
            return words.significant(value / words.LATENCY_UNITS[column.unit])
        case Kind.COUNT:
            return words.whole(value)
        case Kind.RATE:
            return words.whole(value) if abs(value) >= 100 or value == 0 else words.significant(value)
        case Kind.CHANGE:
            return f"{value:+,.1f}"
        case _:
            return words.significant(value)


_CODE: Final = re.compile("`([^`]+)`")


_ADDRESS: Final = re.compile(r"\[([^\]]+)\]\((https?://[^\s<>)]+)\)|(https?://[^\s<>]*[^\s<>.,;:)])")
"""An address, or a link as in Markdown."""


_UNIT: Final = re.compile(r"`[^`]+`|(?<=\d) (?=(?:%|ms|µs|s|msg/s)(?!\w))")
"""Code, which stays as it is, or the space between a number and its unit."""


def coded(text: str) -> Markup:
    """The text as HTML, with what stands between backticks as code, and with addresses and Markdown's links as links.
    No line ends between a number and its unit."""
    joined = _UNIT.sub(lambda found: found[0] if found[0] != " " else "\u00a0", text)
    with_code = _CODE.sub(r"<code>\1</code>", str(escape(joined)))
    return Markup(_ADDRESS.sub(_link, with_code))


def _link(found: re.Match[str]) -> str:
    title, linked, address = found.groups()
    return f'<a href="{linked or address}">{title or address}</a>'


def slug(value: str) -> str:
    """The words of a text as a name for the style sheet: ``✕ regressed`` becomes ``regressed``."""
    return "-".join(re.findall(r"[a-z]+", value.lower()))


def raw(value: Cell) -> str:
    """The number behind a cell, for sorting and for CSV: as short as it is exact enough."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _properties(palette: Any) -> str:
    return "".join(f"--{name}:{value};" for name, value in palette.items())


@cache
def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    return environment().get_template("template.html")


def environment(*folders: Path) -> Environment:
    """The template engine with the filters of the pages, for templates of ``folders``, which may import parts.html."""
    loader = FileSystemLoader([*folders, _HERE])
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters |= {
        "cell": cell,
        "raw": raw,
        "slug": slug,
        "kind": lambda block: type(block).__name__,
        "named": title,
        "coded": coded,
    }
    return found
