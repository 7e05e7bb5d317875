"""The file of ``--output-file``: a row per interval of the whole run, PerfTest's columns first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perftest.cli.exits import CliError
from perftest.cli.ui.gathering import Gathered
from perftest.metrics.interval import Phase
from perftest.results.intervals import HEADER, csv_line_of
from perftest.results.writer import writable

_MILLIS_NS: Final = 1_000_000
_MICROS_NS: Final = 1000


class CsvFile:
    """Written as the run goes. Messages that are drained after the last publish have no row: PerfTest has none, and a
    mean over the rows is one of the load. The run directory has them."""

    def __init__(self, path: Path, label: str, *, in_millis: bool) -> None:
        """Begin the file anew. Raises CliError."""
        self._path = path
        self._label = f'"{label}"' if "," in label else label
        self._unit_ns = _MILLIS_NS if in_millis else _MICROS_NS
        try:
            path.write_text(HEADER.replace("(µs)", "(ms)") if in_millis else HEADER, encoding="utf-8")
        except OSError as error:
            what = f"the CSV file cannot be written: {error.strerror or error}"
            raise CliError(what, str(path), "give another path with -o/--output-file") from error

    def interval(self, gathered: Gathered, started_ns: int) -> None:
        """Append a row. Raises RunNotWritableError."""
        if gathered.record.phase is Phase.DRAIN:
            return
        line = csv_line_of(gathered.record, gathered.latencies, self._label, started_ns, self._unit_ns)
        with writable(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(line)
