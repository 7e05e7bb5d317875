"""``python -m reports.pipeline RUN... --store DIR``: fill a store, in a process that takes the JVM along when it ends.

Says on stderr what it waits for, in lines that end in an ellipsis, and prints one JSON line.

Exit codes: 0, 1 (Java or Spark does not work), 2 (input or usage), 130 (interrupted).
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from perftest.errors import HelpfulError
from perftest.results.errors import RunDirectoryError
from perftest.results.reader import run_directories
from reports.pipeline import source
from reports.store.store import Store


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--store", required=True, help="Report store: a directory, or a URI such as s3a://bucket/store.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
def main(runs: tuple[Path, ...], store: str, master: str, conf: tuple[str, ...]) -> None:
    """Compute the report tables of RUNS, which are run directories or hold some, and publish them in a store."""
    try:
        click.echo(json.dumps(_publish(runs, store, master, conf)))
    except HelpfulError as error:
        click.echo(error.lines(), err=True)
        raise SystemExit(2 if isinstance(error, RunDirectoryError) else error.code) from error


def _publish(runs: tuple[Path, ...], place: str, master: str, conf: tuple[str, ...]) -> dict[str, object]:
    began = time.monotonic()
    # Before Spark is imported, let alone started: a wrong path is told at once, and what is known is not read again.
    listed = source.list_runs(run for each in runs for run in run_directories(each))
    stored = Store.open(place).manifest.runs
    unread = source.unread(listed, {run.source: run.signature for run in stored.values()})
    sources = {each.source for each in listed} - {each.source for each in unread}
    known = [run.run_id for run in stored.values() if run.source in sources]
    found: dict[str, object] = {"store": place, "runs": known, "left_out": {}, "rows": {}, "read": 0}
    if not unread:
        return found | {"start_s": 0.0, "run_s": 0.0}
    _say("starting Java")
    from reports.pipeline.run import run_sources
    from reports.pipeline.session import parse_conf, spark_session

    with spark_session(master, parse_conf(conf), source.input_bytes(unread)) as spark:
        started = time.monotonic()
        _say(f"reading {len(unread)} run{'s' if len(unread) > 1 else ''}")
        published = run_sources(spark, unread, place, say=_say)
    return found | {
        "publication": published.number,
        "runs": [*known, *published.runs],
        "left_out": {each.source: each.reason for each in published.left_out},
        "rows": dict(published.rows),
        "read": len(unread),
        "start_s": round(started - began, 3),
        "run_s": round(published.seconds, 3),
    }


def _say(words: str) -> None:
    click.echo(f"{words} …", err=True)


if __name__ == "__main__":
    main()
