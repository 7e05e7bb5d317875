"""What one more run costs in a store of many: ``python -m tests.reports.store.bench_store [RUNS]``.

The runs lie in publications of 500, as a large report leaves them. Prints the CPU time of opening the store, of
publishing one run, and of reading the tables of that run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reports.store import schema
from reports.store.store import Store, read_tables
from tests.reports.store.testing.small_runs import publish, small_run

LOT = 500


def cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return round((time.process_time() - began) * 1000, 1)


def measure(runs: int, place: Path) -> dict[str, object]:
    for first in range(0, runs, LOT):
        names = (f"20261121-101502-in_flight-{number:05}" for number in range(first, min(first + LOT, runs)))
        with Store.open(place).publication() as publication:
            for name in names:
                run = small_run(name, 1, day=first // LOT, tables=(schema.LEDGER, schema.STEPS))
                publication.add(replace(run, source=f"/data/measurements/runs/{name}", signature="0123456789abcdef"))
            publication.land()
    one = small_run("one-more", 1, tables=schema.TABLES[1:])
    return {
        "runs": runs,
        "open_cpu_ms": cpu_ms(lambda: Store.open(place)),
        "publish_one_cpu_ms": cpu_ms(lambda: publish(place, one)),
        "read_one_cpu_ms": cpu_ms(lambda: read_tables(place, ["one-more"])),
    }


def main() -> None:
    for runs in [int(text) for text in sys.argv[1:]] or [100, 10_000]:
        with tempfile.TemporaryDirectory() as place:
            sys.stdout.write(json.dumps(measure(runs, Path(place))) + "\n")


if __name__ == "__main__":
    main()
