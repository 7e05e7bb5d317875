"""``perftest report spark-archive``: what the executors of a Spark cluster need, as one file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from perftest.cli.extras import require
from perftest.cli.sections import SectionedCommand, option
from perftest.exits import Exit

NAME = "spark-archive"


@click.command(
    NAME,
    cls=SectionedCommand,
    exits=(Exit.RUN_ERROR, Exit.NOT_INSTALLED),
    examples=(
        "perftest report spark-archive",
        "perftest report spark-archive --out /srv/spark/perftest-env.zip",
        "perftest report spark-archive --python 3.12 --out perftest-env-3.12.zip",
    ),
)
@option(
    "--out",
    section="Output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("perftest-env.zip"),
    help="File to write.",
)
@option(
    "--python",
    section="Target",
    metavar="VERSION",
    default=None,
    help="Python of the executors, such as 3.12.  [default: the Python of this command]",
)
def spark_archive(out: Path, python: str | None) -> None:
    """Write an archive with all that executors need besides Python: this project and its libraries.

    `perftest report --spark-master` sends such an archive by itself. With the archive on a file system of the cluster,
    --spark-conf spark.archives=URI#perftest-env sends nothing.
    """
    require("report", "the archive for executors")
    from reports.pipeline.executor_archive import HERE, archive_for_executors
    from reports.pipeline.java import cache_directory

    made = archive_for_executors(cache_directory(os.environ), python or HERE)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(made, out)
    click.echo(out)
