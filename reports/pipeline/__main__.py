"""``python -m reports.pipeline RUN... --store PLACE``: fill a store, in a process that takes the JVM along when it
ends.

Shows its steps on stderr, in lines that end in an ellipsis, and prints one JSON line.

Exit codes: 0, 1 (Java, Spark or a place does not work), 2 (input or usage), 130 (interrupted).
"""

from __future__ import annotations

import json

import click

from perftest.errors import HelpfulError
from perftest.results.errors import RunDirectoryError
from reports.pipeline.job import Job, run


@click.command()
@click.argument("runs", nargs=-1, required=True)
@click.option("--store", help="Report store: a directory, or a URI.  [default: .store in the folder of the runs]")
@click.option("--beside", help="Directory of a store for a page, if the page cannot read or have the other one.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
def main(runs: tuple[str, ...], store: str | None, beside: str | None, master: str, conf: tuple[str, ...]) -> None:
    """Compute the report tables of RUNS, paths or URIs of run directories or of directories that hold some, and publish
    them in a store."""
    try:
        click.echo(json.dumps(run(Job(places=runs, store=store, beside=beside, master=master, conf=conf), _say)))
    except HelpfulError as error:
        click.echo(error.lines(), err=True)
        raise SystemExit(2 if isinstance(error, RunDirectoryError) else error.code) from error


def _say(words: str) -> None:
    click.echo(f"{words} …", err=True)


if __name__ == "__main__":
    main()
