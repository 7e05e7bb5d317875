"""Help pages in sections: a sentence, examples, options by topic, exit codes; and the types of option values.

click has no sections. So each option carries the name of its section, and the command sorts its options by section.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import click

from perftest.exits import MEANING, Exit

SECTIONS: Final = (
    "Target",
    "Topology",
    "Links",
    "Load",
    "Publishers",
    "Consumers",
    "Connections",
    "Timing",
    "Measurement",
    "Judgement",
    "Output",
    "Metrics",
    "Other",
)

_HELP_WIDTH: Final = 100


class SectionedOption(click.Option):
    """An option with the name of its section."""

    def __init__(self, *arguments: Any, section: str = "Other", **settings: Any) -> None:
        assert section in SECTIONS
        super().__init__(*arguments, **settings)
        self.section = section


class SectionedCommand(click.Command):
    """A command with examples before its options and exit codes after them."""

    def __init__(
        self, *arguments: Any, examples: Sequence[str] = (), exits: Iterable[Exit] = (), **settings: Any
    ) -> None:
        settings["context_settings"] = {"help_option_names": ["--help", "-?"], "max_content_width": _HELP_WIDTH}
        super().__init__(*arguments, **settings)
        self.examples = examples
        self.exits = sorted({Exit.OK, Exit.USAGE, *exits})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then a list of options for each section, in the order of :data:`SECTIONS`."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in self.examples))
        for section in SECTIONS:
            rows = [
                record
                for parameter in self.get_params(ctx)
                if isinstance(parameter, click.Option)
                and getattr(parameter, "section", "Other") == section
                and (record := parameter.get_help_record(ctx)) is not None
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows, col_max=34)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes that this command can end with."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), MEANING[code]) for code in self.exits])


class ExplainedUsageError(click.UsageError):
    """A wrong command line. ``parts`` has what, where and fix of each thing that is wrong."""

    def __init__(self, parts: Sequence[tuple[str, str, str]], ctx: click.Context) -> None:
        super().__init__("; ".join(what for what, _, _ in parts), ctx)
        self.parts = parts


class ProposingGroup(click.Group):
    """A group of commands that proposes a command for a misspelt name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names. Raises ExplainedUsageError, with the nearest name."""
        name, known = args[0], self.list_commands(ctx)
        if name in known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        fix = f"did you mean `{ctx.command_path} {near[0]}`?" if near else f"see `{ctx.command_path} --help`"
        raise ExplainedUsageError([(f"no such command {name!r}", ctx.command_path, fix)], ctx)


class SummaryGroup(ProposingGroup):
    """A group of commands. Its help shows the first sentence of each command, never shortened."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(1000)) for name in self.list_commands(ctx)]
            )


def option(*names: str, section: str, **settings: Any) -> Callable[[Any], Any]:
    """Declare an option in a section. Its default is shown in the help."""
    settings.setdefault("show_default", not settings.get("is_flag", False))
    return click.option(*names, cls=SectionedOption, section=section, **settings)


def options(*declared: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Declare several options, in the order of the help."""

    def decorate(function: Any) -> Any:
        for each in reversed(declared):
            function = each(function)
        return function

    return decorate


def json_option(function: Any) -> Any:
    """Declare ``--json``, which every command has that prints something."""
    return option("--json", "as_json", section="Output", is_flag=True, help="Print JSON instead of text.")(function)


class QuantityType(click.ParamType[Any]):
    """A quantity with a unit. :mod:`perftest.spec.units` reads it."""

    def __init__(self, name: str, parse: str) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The quantity in its base unit. click reports a value that cannot be read, with the option's name."""
        from perftest.spec import units

        if not isinstance(value, str):
            return value
        try:
            return getattr(units, self._parse)(value)
        except units.UnitError as error:
            self.fail(f"{error.rule}; {error.fix}", param, ctx)


DURATION: Final = QuantityType("duration", "parse_duration_s")
SIZE: Final = QuantityType("size", "parse_size_bytes")
COUNT: Final = QuantityType("count", "parse_count")
SHARE: Final = QuantityType("share", "parse_share")
BANDWIDTH: Final = QuantityType("bandwidth", "parse_bandwidth_mbit")
HTTP_URL: Final = QuantityType("url", "parse_http_url")
IN_FLIGHT: Final = QuantityType("count", "parse_in_flight")
PREFETCH: Final = QuantityType("count", "parse_prefetch")
ACK_INTERVAL: Final = QuantityType("count", "parse_ack_interval")


def number_of(text: str) -> float:
    """``0.05``, also for ``5%``. Raises ValueError."""
    stripped = text.strip()
    return float(stripped.removesuffix("%")) / (100 if stripped.endswith("%") else 1)


class PartType(click.ParamType[float]):
    """``5%`` or ``0.05``, between 0 and 1."""

    name = "PART"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number as a part of 1: ``5%`` is 0.05."""
        text = str(value).strip()
        try:
            part = number_of(text)
        except ValueError:
            part = -1.0
        if not 0 <= part < 1:
            self.fail(f"{text!r} is not a part of the whole; write 5% or 0.05", param, ctx)
        return part


PART: Final = PartType()
