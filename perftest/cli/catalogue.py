"""What the commands on a catalogue share: the store they ask, and how they read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from perftest.cli.sections import option

STORE: Final = ".store"
"""The store of many runs lies beside them: ``runs/.store``."""

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2})?)?")


def store_option(function: Any) -> Any:
    """Declare ``--store``."""
    declared: Callable[[Any], Any] = option(
        "--store",
        section="Target",
        metavar="PLACE",
        default=str(Path("runs") / STORE),
        envvar="PERFTEST_STORE",
        help="Store of report tables: a directory, or a URI such as s3a://bucket/store.",
    )
    return declared(function)


class DateType(click.ParamType[int]):
    """``2026-11-01`` or ``2026-11-01T12:00``, UTC."""

    name = "DATE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The Unix time in nanoseconds."""
        text = str(value).strip()
        try:
            if not _DATE.fullmatch(text):
                raise ValueError
            return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000_000
        except ValueError:
            self.fail(f"{text!r} is no date; write 2026-11-01 or 2026-11-01T12:00 (UTC)", param, ctx)


DATE: Final = DateType()


def day(t_ns: int) -> str:
    """A Unix time to the minute, UTC."""
    return f"{datetime.fromtimestamp(t_ns / 1e9, UTC):%Y-%m-%d %H:%M}"
