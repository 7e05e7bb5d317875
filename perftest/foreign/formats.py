"""Which tool wrote a file, by the content of the file; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from perftest.foreign.hdr_log import is_hdr_log, read_hdr_log
from perftest.foreign.measured import ForeignFileError, ForeignRun
from perftest.foreign.openmessaging import is_openmessaging_result, read_openmessaging
from perftest.foreign.perftest_csv import (
    is_perftest_console,
    is_perftest_csv,
    read_perftest_console,
    read_perftest_csv,
)
from perftest.foreign.perftest_multi import is_perftest_multi, read_perftest_multi
from perftest.metrics.interval import Series


def read_results(octets: bytes, file: str, *, unit_ns: int | None, tags: Mapping[str, Series]) -> list[ForeignRun]:
    """The runs that a result file tells of; none if the file is of no known format. Only PerfTestMulti writes the
    results of several runs into one file.

    :param file: the name of the file, for errors
    :param unit_ns: nanoseconds per unit of an HdrHistogram log; None if unknown
    :param tags: the series of each tag of an HdrHistogram log
    :raises ForeignFileError: the format is known, and a part of the file cannot be used
    """
    try:
        text = octets.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = octets.decode("cp1252", "replace")  # of Windows: a micro sign there, or a spreadsheet's file
        if is_perftest_csv(text):
            return [read_perftest_csv(text, file)]
        if is_perftest_console(text):
            return [read_perftest_console(text, file)]
        line = octets.count(b"\n", 0, error.start) + 1
        fix = "give the file as the tool wrote it, not packed"
        raise ForeignFileError("this is no text in UTF-8", f"{file}:{line}", fix) from error
    if is_perftest_csv(text):
        return [read_perftest_csv(text, file)]
    if is_perftest_console(text):
        return [read_perftest_console(text, file)]
    if is_hdr_log(text):
        if unit_ns is None:
            fix = "tell the unit: --unit ns, --unit us or --unit ms"
            raise ForeignFileError("an HdrHistogram log does not say the unit of its values", file, fix)
        return [read_hdr_log(text, file, unit_ns=unit_ns, tags=tags)]
    return _of_json(text, file)


def _of_json(text: str, file: str) -> list[ForeignRun]:
    if not text.lstrip().startswith("{"):
        return []
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        fix = "give the file as the tool wrote it: it may be cut short"
        raise ForeignFileError(f"this is not JSON: {error.msg}", f"{file}:{error.lineno}", fix) from error
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(
            "this JSON is nested too deeply, or has a number too long", file, "give another"
        ) from error
    if is_openmessaging_result(data):
        return [read_openmessaging(data, file)]
    return read_perftest_multi(data, file) if is_perftest_multi(data) else []
