"""Options that several commands share: which broker is measured, and where results go."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from perftest.ci.job_outputs import Annotations, parse_annotations
from perftest.cli.sections import option, options
from perftest.cli.ui.completion import layout_names
from perftest.options.targets import BROKER_HELP, FUSE, HOME_HELP
from perftest.screen import UI_NAMES
from perftest.spec.cluster import Product
from perftest.spec.units import UnitError


class AnnotationsType(click.ParamType[Annotations]):
    """``github``, ``gitlab`` or ``gitlab=FILE``."""

    name = "annotations"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Annotations:
        """The service and its file. click reports another word, with the option's name."""
        if isinstance(value, Annotations):
            return value
        try:
            return parse_annotations(str(value))
        except UnitError as error:
            self.fail(f"{error.rule}; {error.fix}", param, ctx)


ANNOTATIONS: Final = AnnotationsType()

# fmt: off
target_options = options(
    option("-h", "--uri", section="Target", default=None, metavar="URI",
           help="AMQP URI of the broker. Without a URI, a local three-node cluster is started for this command."),
    option("-H", "--uris", section="Target", default=None, metavar="URIS",
           help="AMQP URIs of several brokers, separated by commas."),
    option("--cluster", section="Target", type=click.Path(path_type=Path, file_okay=False), default=None,
           help="Measure the local cluster that `perftest broker start` keeps in DIRECTORY."),
)
"""``-h``, ``-H`` and ``--cluster``."""
out_options = options(
    option("--out", section="Output", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"),
           help="Directory in which the run directory is created."),
    option("--ui", section="Output", type=click.Choice(UI_NAMES), default="auto",
           help="How progress is shown: live screen, line per interval, plain lines of PerfTest, JSON lines, or none."),
)
"""``--out`` and ``--ui``."""
job_options = options(
    option("--junit", section="Output", type=click.Path(path_type=Path, dir_okay=False), default=None, metavar="FILE",
           help="Write the verdicts to FILE as JUnit XML, a case for each."),
    option("--annotations", section="Output", type=ANNOTATIONS, default=None, metavar="github|gitlab[=FILE]",
           help="Annotate the build with what failed: print GitHub's lines to stderr, or write GitLab's code quality "
                "report (FILE, or gl-code-quality-report.json)."),
)
"""``--junit`` and ``--annotations``: the parts of :class:`~perftest.ci.job_outputs.JobOutputs`."""
# fmt: on

LAYOUT_PATH: Final = click.Path(path_type=Path, dir_okay=False)

layout_option = option(
    "--layout",
    section="Target",
    type=LAYOUT_PATH,
    shell_complete=layout_names,
    default=None,
    help="Layout file or bundled layout, such as disks/three_hdd: which drives hold which files of the nodes of the "
    "cluster that is started for this command.",
)
"""``--layout`` of commands that start a cluster."""
drives_option = option(
    "--drives",
    section="Target",
    type=click.Choice([FUSE]),
    default=None,
    show_default="as the layout says",
    help="Make FUSE drives of the modelled drives of a layout: real file systems in memory, below any broker. Needs "
    "root. RabbitMQ has them in any case.",
)
"""``--drives`` of commands that start a cluster on a layout."""
broker_option = option(
    "--broker",
    section="Target",
    type=click.Choice([product.value for product in Product]),
    default=None,
    show_default="as the workload says, or reference",
    help=BROKER_HELP,
)
"""``--broker`` of commands that start a cluster."""
brokers_option = option(
    "--broker",
    "brokers",
    section="Target",
    type=click.Choice([product.value for product in Product]),
    multiple=True,
    show_default="as the workload says, or reference",
    help=f"{BROKER_HELP} Repeatable: each broker is measured on each layout, in alternation.",
)
"""``--broker`` of commands that start a cluster of each of several brokers."""
home_option = option(
    "--rabbitmq-home",
    section="Target",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    show_default="the installed one",
    help=HOME_HELP,
)
"""``--rabbitmq-home`` of commands that start a cluster."""
