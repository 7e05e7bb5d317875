"""One run as the page shows it, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from perftest.results.trust import Check, Status
from reports.pages import answer, settings, words
from reports.pages.anatomy import anatomy
from reports.pages.figures import knee_chart, manifest_of, spectrum_chart, timeline_chart
from reports.pages.foreign import imported
from reports.pages.invalid import invalid_run
from reports.pages.link_traffic import link_traffic
from reports.pages.model import Banner, Chart, Chip, Run, Sentence
from reports.pages.provenance import provenance, utc
from reports.pages.rates import is_scheduled
from reports.pages.simulated import marked
from reports.pages.sweep import factor_charts
from reports.pages.tables import events_table, ledger_table, recoveries_table, steps_table
from reports.pages.trust_words import caution, ledger_chip, remarks, trust_chip
from reports.stats.foreign import foreign_facts
from reports.stats.validity import checks, derived_checks, limited, modelled_drives
from reports.store.tables import Tables


def run_section(
    tables: Tables,
    curve: answer.Curve | None,
    *,
    name: str = "",
    prefix: str,
    rebuild: Sequence[str],
    files: Sequence[tuple[str, int]],
    drawn: bool = True,
) -> Run:
    """Everything about the one run that ``tables`` hold, with its knee ``curve``. ``name`` tells the run from others of
    the page; ``prefix`` goes before each anchor. A run that is not ``drawn`` has no figures."""
    run = tables.runs.iloc[0]
    tables = replace(tables, steps=settings.in_order(tables.steps, settings.swept(run)))
    ledger = tables.ledger.iloc[0] if len(tables.ledger) else None
    found = checks(tables)
    of_group = derived_checks(tables) if (tables.steps["group"] != "").any() else found  # its steps have namesakes
    section = Run(
        prefix=prefix,
        run_id=str(run["run_id"]),
        name=name,
        measured=(measured := _measured(run)),
        title=settings.title(run),
        subtitle=f"{measured} · {run['run_id']}",
        chips=tuple(_chips(run, ledger, found, modelled_drives(tables))),
        banners=tuple(_banners(run, tables.steps, ledger, found)),
        sentences=tuple(answer.sentences(run, tables.steps, curve, ledger, prefix=prefix)),
        headline=answer.headline(run, tables.steps, curve),
        checks=tuple(found),
        charts=tuple(_charts(run, tables, curve, prefix)) if drawn else (),
        steps=steps_table(run, tables.steps, [remarks(of_group, int(step)) for step in tables.steps["step"]]),
        events=events_table(str(run["run_id"]), tables.events),
        ledger=None if ledger is None else ledger_table(str(run["run_id"]), ledger),
        ledger_text=answer.ledger_sentence(ledger),
        provenance=provenance(run, tables.hosts, rebuild=rebuild, files=files),
        factors=tuple(factor_charts(tables, curve, prefix=prefix)) if drawn else (),
        anatomy=anatomy(run, tables, prefix=prefix) if drawn else None,
        traffic=link_traffic(tables, prefix=prefix) if drawn else None,
        recoveries=recoveries_table(str(run["run_id"]), tables.events),
        notes=(*caution(found, prefix=prefix), *_notes(run, tables.steps, curve)),
    )
    section = imported(section, foreign_facts(run), tables.steps)
    return marked(section, manifest_of(run).get("simulated") or {})


def _measured(run: pd.Series[Any]) -> str:
    """What was measured, on what, and when."""
    broker = f"{run['product'] or 'unknown broker'} {run['broker_version']}".strip()
    nodes = int(run["broker_nodes"])
    known = f"{broker}, {words.plural(nodes, 'node')}" if nodes else broker
    return f"{run['name']} · {known} · {utc(int(run['started_ns']))}"


def _chips(run: pd.Series[Any], ledger: pd.Series[Any] | None, found: Sequence[Check], drives: str) -> list[Chip]:
    return [
        ledger_chip(["" if ledger is None else str(ledger["verdict"])]),
        trust_chip(found),
        Chip(name="Loop", value=str(run["loop"])),
        Chip(name="Queue", value=str(run["queue_types"]).replace(",", ", ")),
        *([Chip(name="Drives", value=f"modelled: {drives}")] if drives else []),
        *([Chip(name="A confirm means", value=str(run["durability"]))] if run["durability"] else []),
    ]


def _banners(
    run: pd.Series[Any], steps: pd.DataFrame, ledger: pd.Series[Any] | None, found: Sequence[Check]
) -> list[Banner]:
    banners, own = [], set()
    if ledger is not None and ledger["verdict"] == "violated":
        own.add("ledger")
        text = answer.ledger_sentence(ledger) + " No other figure on this page matters until that is explained."
        banners.append(
            Banner(status=Status.FAIL, title="The broker broke its promise, or the generator its account", text=text)
        )
    if run["state"] != "finished":
        own.add("finished")
        banners.append(_unfinished(run, len(steps)))
    return [*banners, *invalid_run([check for check in found if check.check not in own])]


def _unfinished(run: pd.Series[Any], begun: int) -> Banner:
    planned = int(run["steps_planned"])
    done = f"{begun} of {words.plural(planned, 'step')} began; the page shows what was recorded until then."
    what, status = {
        "interrupted": ("This run was interrupted", Status.WARN),
        "failed": (f"This run failed: {run['ended_reason'] or 'reason not recorded'}", Status.FAIL),
    }.get(str(run["state"]), ("This run was killed, or is still going", Status.WARN))
    return Banner(status=status, title=what, text=done)


def _notes(run: pd.Series[Any], steps: pd.DataFrame, curve: answer.Curve | None) -> list[Sentence]:
    """Why there is no knee curve, for a reader who looks for one."""
    if curve is not None:
        return []
    why = "only one step delivered messages" if settings.swept(run) else "no setting was swept"
    if settings.swept(run) and len(limited(steps)) > 1:
        why = "in all steps but one at most the load generator or its machine was the limit"
    return [Sentence(text=f"There is no knee curve: {why}.")]


def _charts(run: pd.Series[Any], tables: Tables, curve: answer.Curve | None, prefix: str) -> list[Chart]:
    steps, points = tables.steps, tables.spectrum
    charts = [
        _knee(run, steps, curve, prefix),
        spectrum_chart(run, steps, points, kind="e2e", prefix=prefix),
        spectrum_chart(run, steps, points, kind="confirm", prefix=prefix),
        timeline_chart(run, steps, tables.timeline, tables.events, tables.brokers, prefix=prefix),
    ]
    return [chart for chart in charts if chart is not None]


def _knee(run: pd.Series[Any], steps: pd.DataFrame, found: answer.Curve | None, prefix: str) -> Chart | None:
    if found is None:
        return None
    if is_scheduled(steps):
        return knee_chart(run, found.sweep, finding="", prefix=prefix, ringed=False)
    return knee_chart(run, found.sweep, finding=answer.knee_sentences(found), prefix=prefix)
