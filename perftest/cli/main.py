"""The entry point of ``perftest``, and the only place where exceptions become messages and exit codes.

``perftest --help`` must be quick, because people ask for it often. So this module imports nothing heavier than click,
and imports each command only when it is called.
"""

from __future__ import annotations

import importlib
import io
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import click

import perftest
from perftest.cli.extras import not_installed
from perftest.cli.sections import ExplainedUsageError, ProposingGroup
from perftest.errors import HelpfulError, three_lines
from perftest.exits import MEANING, Exit

COMMANDS: Final = {
    "Run": {
        "run": ("perftest.cli.run:run", "Publish and consume with one setting, and measure."),
        "sweep": ("perftest.cli.sweep:sweep", "Measure a series of settings, one step after the other."),
        "search": ("perftest.cli.search:search", "Find the highest rate that meets objectives, or the best setting."),
        "reproduce": ("perftest.cli.reproduce:reproduce", "Try published findings again, on several brokers."),
        "simulate": ("perftest.cli.simulate:simulate", "Run workloads at virtual time, on modelled drives."),
        "remote": ("perftest.cli.remote:remote", "Run a workload on many hosts over SSH, as one run."),
        "lab": ("perftest.cli.lab:lab", "Make several hosts on this machine, to try runs over hosts."),
        "doctor": ("perftest.cli.doctor:doctor", "Check how well this machine can measure."),
    },
    "Results": {
        "report": ("perftest.cli.report:report", "Make an HTML report of one or more runs."),
        "runs": (
            "perftest.cli.store.runs:runs",
            "Find runs in a store of many runs, and mark them with tags and notes.",
        ),
        "query": ("perftest.cli.store.query:query", "Ask the tables of many runs in SQL."),
        "import-results": ("perftest.cli.import_results:import_results", "Make runs of result files of other tools."),
        "export": ("perftest.cli.export:export", "Write a run in the format of another program."),
        "history": ("perftest.cli.store.history:history", "Show a metric over time, and where it changed."),
        "compare": ("perftest.cli.compare:compare", "Compare two sets of runs, and judge each change."),
    },
    "Reference broker": {
        "broker": ("perftest.cli.broker:broker", "Start, inspect and stop a local cluster of the bundled broker.")
    },
    "Workloads": {
        "workload": ("perftest.cli.workloads.workload:workload", "List, show, check and import workload files.")
    },
}
"""For each section of the help: the commands, where each is implemented, and the sentence that describes it."""

_EXAMPLES: Final = (
    "perftest sweep flow_control/in_flight --quick          measure the bundled cluster in six short steps",
    "perftest run -h amqp://rabbit1 -u q -qq -c 200 -z 60   measure a quorum queue of your broker for a minute",
    "perftest report runs/*-in_flight-*                     make an HTML report of the sweep",
)


class LazyGroup(ProposingGroup):
    """A group of commands. It imports a command only when the command is called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words before the command. A line of PerfTest, which has no command, gets the command proposed."""
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        if args and args[0].startswith("-") and args[0] not in own and not ctx.resilient_parsing:
            _propose_run(ctx, args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        return [name for commands in COMMANDS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is no such command."""
        for commands in COMMANDS.values():
            if cmd_name in commands:
                module, _, attribute = commands[cmd_name][0].partition(":")
                command = getattr(importlib.import_module(module), attribute)
                assert isinstance(command, click.Command)
                return command
        return None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, commands by section, options and exit codes; no command is imported for that."""
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in _EXAMPLES))
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, sentence) for name, (_, sentence) in commands.items()])
        rows = [record for parameter in self.get_params(ctx) if (record := parameter.get_help_record(ctx))]
        with formatter.section("Options"):
            formatter.write_dl(rows)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), meaning) for code, meaning in MEANING.items()])


def _propose_run(ctx: click.Context, args: Sequence[str]) -> None:
    """Raise the error about options of ``perftest run`` that stand without the command. Other words are click's."""
    from perftest.options import tokens
    from perftest.results.provenance import redact_command

    if [*args] == ["-h"]:
        fix = "for help write `perftest --help`"
        raise ExplainedUsageError([("-h is an option of `perftest run`: the URI of a broker", "perftest", fix)], ctx)
    if tokens.read(args).values:
        line = shlex.join(["perftest", "run", *redact_command(args)])
        raise ExplainedUsageError([("these are options of `perftest run`", "perftest", f"write `{line}`")], ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["--help", "-?"], "max_content_width": 100})
@click.version_option(perftest.__version__, "--version", "-v", prog_name="perftest")
def cli() -> None:
    """Measure AMQP 0-9-1 brokers, and learn what the figures mean.

    Commands that measure take the address of your broker with -h. Without -h they start the bundled three-node cluster
    and stop it afterwards.
    """


def main() -> NoReturn:
    """Run the command line of this process, and exit with its code."""
    _replace_what_a_terminal_lacks()
    sys.exit(call(sys.argv[1:]))


def _replace_what_a_terminal_lacks() -> None:
    """Print ? for a character that the encoding of the terminal or the file does not have (the µ of µs, a name): no
    character may end a measured run. This holds for everything that the process prints, also through click and rich."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def call(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Errors are printed to stderr in three lines."""
    try:
        result = cli.main(args=list(arguments), prog_name="perftest", standalone_mode=False)
        sys.stdout.flush()
        return int(result or 0)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return Exit.USAGE
    except click.ClickException as error:
        parts: Sequence[tuple[str, str, str]] = getattr(error, "parts", None) or [_usage(error)]
        for what, where, fix in parts:
            _say(what, where, fix, Exit.USAGE)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # click turns a broken pipe into SystemExit, and ends so after it has completed words for the shell.
        return Exit.OK if getattr(error, "code", 1) == 0 else _broken_pipe()
    except Exception as error:
        return _translate(error)


def _translate(error: Exception) -> int:
    """Print an exception: an error for people, or a bug."""
    if isinstance(error, ModuleNotFoundError):
        error = not_installed(error) or error
    if isinstance(error, HelpfulError):
        click.echo(error.lines(), err=True)
        return error.code
    if os.environ.get("PERFTEST_DEBUG"):
        traceback.print_exception(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    fix = "this is a bug: please report it, with the output of the same command under PERFTEST_DEBUG=1"
    return _say(f"{type(error).__name__}: {error}", where, fix, Exit.RUN_ERROR)


def _usage(error: click.ClickException) -> tuple[str, str, str]:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "perftest"
    near: Sequence[str] | None = getattr(error, "possibilities", None)
    message = (error.message if near else error.format_message()).rstrip(".")
    return message[:1].lower() + message[1:], path, f"did you mean {near[0]}?" if near else f"see `{path} --help`"


def _say(what: str, where: str, fix: str, code: int) -> int:
    click.echo(three_lines(what, where, fix), err=True)
    return int(code)


def _broken_pipe() -> int:
    """End without an error, because the reader of the output (``head``) has closed it; write nothing more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.OK


if __name__ == "__main__":
    main()
