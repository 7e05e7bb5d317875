"""Words that a shell offers for the next word of a command line: names of workloads, layouts, runs, metrics; files.

Each function has the arguments of click's ``shell_complete``. An item of the type ``file`` or ``dir`` stands first: a
shell then offers the names, and files only if no name fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from perftest.ci.job_outputs import GITHUB, GITLAB
from perftest.metrics.names import COMPARED, METRICS, SHORT_NAMES, filters_of
from perftest.options.option import Option
from perftest.screen import UI_NAMES
from perftest.spec.cluster import Product

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
RUNS: Final = Path("runs")
"""Directory of runs in which names are looked for."""
_HOLDS_RUNS: Final = ("manifest.json", "sweep.json", "layouts.json")
_QUEUE_ARGUMENTS: Final = (
    *(f"x-queue-type={kind}" for kind in ("quorum", "classic", "keyed")),
    *("x-max-length=", "x-max-length-bytes=", "x-overflow=", "x-message-ttl=", "x-single-active-consumer="),
)
_WORDS: Final = {
    "annotations": (GITHUB, GITLAB),
    "product": tuple(product.value for product in Product),
    "ui": UI_NAMES,
}
"""The words of an option, by its kind, where its metavar does not name them."""


def workload_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundled workloads, or files."""
    import workloads

    return [CompletionItem(incomplete, type="file"), *_fitting(workloads.names(), incomplete)]


def layout_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundled layouts, or files."""
    import workloads

    return [CompletionItem(incomplete, type="file"), *_fitting(workloads.layout_names(), incomplete)]


def run_places(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs and rounds in the directory ``runs``, the latest first, or directories."""
    found = sorted((place for name in _HOLDS_RUNS for place in RUNS.glob(f"*/{name}")), reverse=True)
    return [CompletionItem(incomplete, type="dir"), *_fitting((str(place.parent) for place in found), incomplete)]


def metric_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Metrics of objectives."""
    return _fitting(METRICS, incomplete)


def history_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Metrics of histories."""
    return _fitting((*COMPARED, *SHORT_NAMES), incomplete)


def compared_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Metrics of comparisons, and the filters that choose several of them."""
    return _fitting(filters_of(COMPARED), incomplete)


def setting_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Settings of a step, each with its ``=``."""
    from dataclasses import fields

    from perftest.spec.plan import Settings

    return _fitting((*(f"{each.name}=" for each in fields(Settings)), "layout="), incomplete)


def of_option(option: Option) -> Complete | None:
    """The function for an option of PerfTest's table; None if nothing can be offered."""
    if option.key == "queue_arguments":
        return _of(_QUEUE_ARGUMENTS)
    if option.key == "layout":
        return layout_names
    if option.kind == "objective":
        return metric_names
    if option.kind in _WORDS:
        return _of(_WORDS[option.kind])
    if option.kind == "path" and option.metavar in ("FILE", "DIRECTORY"):
        return _files if option.metavar == "FILE" else _directories
    words = re.fullmatch(r"[\w.-]+(?:\|[\w.-]+)+", option.metavar)
    return _of(option.metavar.split("|")) if words else None


def _of(words: Iterable[str]) -> Complete:
    known = tuple(words)
    return lambda _ctx, _param, incomplete: _fitting(known, incomplete)


def _files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def _directories(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def _fitting(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
