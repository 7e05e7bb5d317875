"""The click command that is made from the option table. It reads its command line with PerfTest's rules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import click

import perftest
from perftest.cli.sections import ExplainedUsageError, SectionedCommand, SectionedOption
from perftest.cli.ui.completion import of_option
from perftest.options import tokens
from perftest.options.option import Arity, Effect, Option
from perftest.options.table import BY_KEY, OPTIONS, by_effect

ENVIRONMENT: Final = "perftest.environment"
"""Key of ``click.Context.meta``: names of the environment variables that were obeyed."""
WORDS: Final = "perftest.words"
"""Key of ``click.Context.meta``: the words of the command line, followed by the options from the environment."""
REPEATED: Final = "perftest.repeated"
"""Key of ``click.Context.meta``: notes about options that were given more than once, and variables of no effect."""


class TableCommand(SectionedCommand):
    """A command with the options of the table."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params += [_parameter(each) for each in OPTIONS]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words with PerfTest's rules, add options from the environment, and hand plain options to click."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, [])  # the shell asks for words, and the line may end in the middle
        if any(word in ("-?", "-help", "--help") for word in args):
            return super().parse_args(ctx, ["--help"])
        line = tokens.read(args)
        if line.complaints and not ctx.resilient_parsing:  # a shell asks how an unfinished line may go on
            raise ExplainedUsageError([(each.what, ctx.command_path, each.fix) for each in line.complaints], ctx)
        surrounding = tokens.from_environment(os.environ)
        obeyed = {key: values for key, values in surrounding.items() if key not in line.values}
        ctx.meta[ENVIRONMENT] = [BY_KEY[key].variable for key in obeyed]
        ctx.meta[WORDS] = [*args, *_canonical(obeyed)]
        ctx.meta[REPEATED] = [*line.repeated(), *tokens.without_effect(os.environ)]
        return super().parse_args(ctx, list(_canonical({**obeyed, **line.values})))

    def format_help_sections(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that have no effect, and the options that are refused."""
        for effect, heading in ((Effect.WITHOUT, "Accepted without effect"), (Effect.REFUSED, "Refused")):
            with formatter.section(heading):
                for reason, options in by_effect(effect):
                    formatter.write_text(f"{' '.join(each.flag for each in options)}: {reason}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, the options by section, and the options that have no effect or are refused."""
        super().format_options(ctx, formatter)
        self.format_help_sections(ctx, formatter)


def show_and_leave(ctx: click.Context, given: dict[str, Any]) -> None:
    """Obey ``--version``, ``--env`` and ``--metrics-help``, which need no broker."""
    if given.pop("show_version"):
        click.echo(f"perftest, version {perftest.__version__}")
        ctx.exit()
    if given.pop("show_environment"):
        formatter = ctx.make_formatter()
        formatter.write_dl(tokens.listing(os.environ), col_max=34)
        click.echo(formatter.getvalue(), nl=False)
        ctx.exit()
    if given.pop("show_metrics"):
        formatter = ctx.make_formatter()
        shown = (each for each in ctx.command.params if getattr(each, "section", "") == "Metrics")
        formatter.write_dl([record for each in shown if (record := each.get_help_record(ctx))], col_max=34)
        click.echo(formatter.getvalue(), nl=False)
        ctx.exit()


def _canonical(values: dict[str, list[str]]) -> Iterator[str]:
    """Each given value as one word that click can read in one way only: ``--name=value``."""
    for key, given in values.items():
        option = BY_KEY[key]
        for text in given if option.arity is Arity.MANY else given[:1]:
            yield f"--{option.long[0]}" if option.arity is Arity.FLAG else f"--{option.long[0]}={text}"


def _parameter(option: Option) -> SectionedOption:
    """An option as click shows it. click does not read its value, so that all problems are reported together."""
    words = f"{option.help}{_defaults(option)}"
    common: dict[str, Any] = {"section": option.section, "help": words, "hidden": option.effect is not Effect.OBEYED}
    if option.arity is Arity.FLAG:
        return SectionedOption([*option.flags, option.key], is_flag=True, **common)
    return SectionedOption(
        [*option.flags, option.key],
        type=click.STRING,
        metavar=option.metavar,
        multiple=option.arity is Arity.MANY,
        shell_complete=of_option(option),
        **common,
    )


def _defaults(option: Option) -> str:
    """``[default: off; bundled cluster: 1000]``, or nothing."""
    if option.arity is Arity.FLAG:
        return ""
    shown = option.shown or option.default
    if option.local:
        shown = f"{shown}; bundled cluster: {option.local}" if shown else ""
    return f"  [default: {shown}]" if shown else ""
