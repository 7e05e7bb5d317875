"""The shared parts of the commands on a catalogue: the store they ask, and how they read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import click

from perftest.cli.sections import option, options

STORE: Final = ".store"
"""The store of many runs lies beside them: ``runs/.store``."""
STORE_VARIABLE: Final = "PERFTEST_STORE"
"""Names the store for all commands."""

_WITH_UNIT: Final = re.compile(r"\d.*[^\d.]")
_URI: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2})?)?")


def store_option(function: Any) -> Any:
    """Declare ``--store``."""
    declared: Callable[[Any], Any] = option(
        "--store",
        section="Target",
        metavar="PLACE",
        default=str(Path("runs") / STORE),
        envvar=STORE_VARIABLE,
        help="Store of report tables: a directory, or a URI such as s3a://bucket/store.",
    )
    return declared(function)


def spark_options(function: Any) -> Any:
    """Declare ``--spark-master`` and ``--spark-conf``."""
    declared = options(
        option(
            "--spark-master",
            section="Target",
            metavar="URL",
            default="local[*]",
            envvar="PERFTEST_SPARK_MASTER",
            help="Spark that reads the runs: local[*], spark://HOST:PORT, yarn or k8s://URL.",
        ),
        option(
            "--spark-conf",
            section="Target",
            metavar="KEY=VALUE",
            multiple=True,
            help="A setting of Spark, such as spark.executor.memory=4g. Repeatable.",
        ),
    )
    return declared(function)


def plain_setting(text: str) -> str:
    """``size=1k`` by the names and in the units of the tables: ``size_bytes=1000``. Values without a unit, words, and
    what cannot be read stay as they are."""
    from perftest.spec.fields import key_of, quantity_of
    from perftest.spec.plan import Settings
    from perftest.spec.units import UnitError

    key, equals, value = text.partition("=")
    known = {each.name: each.name for each in fields(Settings)}
    name = (known | {key_of(Settings, each): each for each in known}).get(key)
    quantity = quantity_of(Settings, name) if name is not None else None
    if quantity is None or not _WITH_UNIT.fullmatch(value.strip()):
        return f"{name or key}{equals}{value}"
    try:
        return f"{name}={quantity.parse(value):.15g}"
    except UnitError:
        return text


class RunPlaceType(click.ParamType["Path | str"]):
    """A path of this machine, or a URI such as ``s3a://bucket/runs``."""

    name = "PLACE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """The path; a URI stays a text, because a path has no two slashes. A URI of this machine becomes a path."""
        if not isinstance(value, str) or not _URI.match(value):
            return Path(value)
        return Path(unquote(urlsplit(value).path)) if value.startswith("file:") else value


RUN_PLACE: Final = RunPlaceType()


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
