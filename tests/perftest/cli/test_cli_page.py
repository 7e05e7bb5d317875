"""The table of options in docs/cli.md is made of the table of the code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from perftest.cli.sections import SECTIONS
from perftest.options.option import Arity, Effect, Option
from perftest.options.table import OPTIONS, by_effect

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"
BEGIN, END = "<!-- options of run: begin -->\n", "<!-- options of run: end -->\n"


def table() -> str:
    """A table per section, and what is accepted or refused only."""
    return "\n".join([*_obeyed(), *_others()]) + "\n"


def _obeyed() -> Iterator[str]:
    for section in SECTIONS:
        rows = [each for each in OPTIONS if each.section == section and each.effect is Effect.OBEYED]
        if rows:
            yield from [
                f"\n**{section}**\n",
                "| option | beside a URI | bundled cluster | meaning |",
                "|---|---|---|---|",
            ]
            yield from (f"| {_names(each)} | {' | '.join(_defaults(each))} | {_escaped(each.help)} |" for each in rows)


def _others() -> Iterator[str]:
    for effect, heading in ((Effect.WITHOUT, "Accepted without effect"), (Effect.REFUSED, "Refused")):
        yield from [f"\n**{heading}**\n", "| options | why |", "|---|---|"]
        for reason, options in by_effect(effect):
            yield f"| {', '.join(_names(each) for each in options)} | {_escaped(reason)} |"


def _names(option: Option) -> str:
    return ", ".join(f"`{flag}`" for flag in option.flags)


def _defaults(option: Option) -> tuple[str, str]:
    """Beside a URI, and with the bundled cluster."""
    if option.arity is Arity.FLAG:
        return "off", "off"
    shown, colon, local = option.shown.partition("; bundled cluster: ")
    there = shown or option.default or "none"
    return _escaped(there), _escaped(local if colon else option.local or there)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def test_the_page_has_the_options_of_the_code() -> None:
    """An option that is explained elsewhere than where it is made is explained wrongly one day: REWRITE=1."""
    text = PAGE.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    inside, closed, after = rest.partition(END)
    assert found and closed
    if os.environ.get("REWRITE"):
        PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")
    else:
        assert inside == table()
